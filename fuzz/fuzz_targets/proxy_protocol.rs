//! PROXY protocol headers: the result does not depend on how the bytes arrive.
//!
//! Input: the first bytes of a connection.
//!
//! Checked:
//!
//! - A result stays the same whatever follows.
//! - No prefix of an accepted header is refused, and none is accepted early.
//! - The parser never asks for more bytes than the longest header has.
//! - An accepted relayed address that is written again in version 1 reads the same.

#![no_main]

use http_engine::proxy_protocol::{MAX_V1, MAX_V2, ProxyOrigin, ProxyProgress, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let whole = parse(data);
    let mut verdict = None;
    for len in 0..=data.len() {
        let progress = parse(&data[..len]);
        match verdict {
            None if progress == Ok(ProxyProgress::NeedMore) => {
                assert!(len < MAX_V2, "asks for more after {len} bytes")
            }
            None => verdict = Some(progress),
            Some(first) => assert_eq!(progress, first, "another verdict after {len} bytes"),
        }
    }
    assert_eq!(verdict.unwrap_or(Ok(ProxyProgress::NeedMore)), whole);

    let Ok(ProxyProgress::Done(header)) = whole else { return };
    assert!(header.consumed <= data.len() && header.consumed <= MAX_V2);
    assert_eq!(parse(&data[..header.consumed]), whole);
    assert_eq!(parse(&data[..header.consumed - 1]), Ok(ProxyProgress::NeedMore));

    if let ProxyOrigin::Relayed { source, destination } = header.origin {
        assert_eq!(source.is_ipv4(), destination.is_ipv4());
        let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
        let (from, to) = (source.ip(), destination.ip());
        let line = format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port());
        assert!(line.len() <= MAX_V1);
        let Ok(ProxyProgress::Done(again)) = parse(line.as_bytes()) else { panic!("{line:?} is refused") };
        assert_eq!(again.origin, header.origin);
    }
});

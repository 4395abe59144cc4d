//! PROXY protocol: how the bytes are cut into reads never changes what they mean, and no more is ever asked
//! for than a header may have.
#![no_main]

use gateway::proxy_protocol::{Header, MAX_V1, MAX_V2, Origin, Progress, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let bytes = &bytes[..bytes.len().min(MAX_V2 + 64)];
    let mut decided = None;
    for read in 0..=bytes.len() {
        let progress = parse(&bytes[..read]);
        match decided {
            // Once decided, what follows changes nothing.
            Some(earlier) => assert_eq!(progress, earlier, "after {read} bytes"),
            None if progress == Ok(Progress::NeedMore) => {
                assert!(read < if bytes[..read].starts_with(b"PROXY ") { MAX_V1 } else { MAX_V2 });
            }
            None => {
                if let Ok(Progress::Done(header)) = progress {
                    // Neither asked for more than it took, nor took what it was not shown.
                    assert_eq!(header.consumed, read);
                    relay_again(header);
                }
                decided = Some(progress);
            }
        }
    }
});

/// What was understood can be told on, and is understood the same.
fn relay_again(header: Header) {
    let Origin::Relayed { source, destination } = header.origin else { return };
    assert_eq!(source.is_ipv4(), destination.is_ipv4());
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.ip(), destination.ip());
    let line = format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port());
    let again = Header { consumed: line.len(), origin: header.origin };
    assert_eq!(parse(line.as_bytes()), Ok(Progress::Done(again)));
}

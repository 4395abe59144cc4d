//! The `Forwarded` field: no client can hide or change what the nearest proxy added.
//!
//! Input: values of the field, one per line, as a client sent them.
//!
//! Checked:
//!
//! - An element that a proxy appends, to the last value or as a value of its own, is the last one
//!   that is read, unchanged, or nothing is read.
//! - Values that are read one by one are read the same when they are one list (RFC 9110 §5.3).
//! - The text of an element alone is read as that element.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use http_engine::forwarded::forwarded_elements;
use libfuzzer_sys::fuzz_target;

/// What the proxy appends.
const PROXY: &str = "for=192.0.2.1;proto=https;host=app.example";

fuzz_target!(|data: &[u8]| {
    let values: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let alone = forwarded_elements(values.iter().copied());
    let joined = values.join(&b", "[..]);
    if let Some(elements) = &alone {
        let list = forwarded_elements([&joined[..]].into_iter()).expect("the list is read like its parts");
        assert_eq!(format!("{list:?}"), format!("{elements:?}"));
        for element in elements {
            let again = forwarded_elements([element.text.as_bytes()].into_iter());
            let again = again.expect("an element that was read is read alone");
            assert_eq!(format!("{again:?}"), format!("{:?}", [element]));
        }
    }
    let appended = [&joined[..], b", ", PROXY.as_bytes()].concat();
    let beside = values.iter().copied().chain([PROXY.as_bytes()]);
    for read in [forwarded_elements([&appended[..]].into_iter()), forwarded_elements(beside)] {
        let Some(read) = read else { continue };
        let last = read.last().expect("the element of the proxy");
        assert_eq!(last.client, Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))));
        assert_eq!((last.proto.as_deref(), last.host.as_deref()), (Some("https"), Some("app.example")));
        assert_eq!(last.text, PROXY);
    }
});

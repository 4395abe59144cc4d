//! Messages of released versions. Nodes of two versions run side by side during an upgrade, so each
//! must read what the other writes.
//!
//! A line of `released_messages.txt` is a message as a release wrote it, in base64. A release that
//! writes something else adds a line; none is ever removed.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coherence::wire::{Body, Keys, Message};
use coherence::{ConsumerId, Epoch, LogEvent, LogHead, Nonce, PeerName, Tag};

const KEPT: &str = include_str!("released_messages.txt");

/// One message of each kind, in the order of the file.
fn messages() -> Vec<Body> {
    let (nonce, head) = (Nonce([3; 16]), LogHead { epoch: Epoch([1; 16]), seq: 41 });
    let (consumer, name) = (ConsumerId([2; 16]), PeerName::new("gateway-a").unwrap());
    let event = |not_before| LogEvent {
        seq: 42,
        tags: vec![Tag([7; 16]), Tag([8; 16])],
        not_before,
        until: 1_800_000_000_000,
    };
    let probe =
        |applied| Body::Probe { consumer, name: name.clone(), lease: Duration::from_secs(5), nonce, applied };
    vec![
        Body::Event { epoch: head.epoch, event: event(None) },
        Body::Event { epoch: head.epoch, event: event(Some(1_700_000_000_000)) },
        probe(None),
        probe(Some(head)),
        Body::Echo { nonce, head },
        Body::RangeRequest { nonce, after: head },
        Body::RangeUnavailable { nonce },
        Body::Applied { consumer, head },
        Body::Query(b"a query".to_vec()),
        Body::Answer { nonce, sealed: b"an answer".to_vec() },
    ]
}

#[test]
fn messages_of_released_versions_are_read_and_written() {
    let keys = Keys::single(1, &[9; 32]);
    let authority = PeerName::new("https://login.example.com").unwrap();
    let messages = messages().into_iter().map(|body| Message { authority: authority.clone(), body });
    let written: Vec<_> =
        messages.clone().map(|message| BASE64_STANDARD.encode(keys.write(&message).unwrap())).collect();
    let kept: Vec<_> = KEPT.lines().filter(|line| !line.starts_with('#')).collect();
    for (line, message) in kept.iter().zip(messages) {
        assert_eq!(keys.read(&BASE64_STANDARD.decode(line).unwrap()).unwrap(), message);
    }
    assert_eq!(kept, written, "another form: add lines to the file\n{}", written.join("\n"));
}

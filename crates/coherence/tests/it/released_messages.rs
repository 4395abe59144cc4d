//! Messages of released versions. Nodes of two versions run side by side during an upgrade, so each
//! must read what the other writes.
//!
//! `released_messages.txt` has a group for each release that wrote another form than the release
//! before it, oldest first. A group is a line `release VERSION-COMMIT` and then each message, in
//! base64, in the order of [`messages`]. A form that no release has written yet is the last group,
//! `release next`. All other groups stay as they are. A new kind of message is added at the end of
//! [`messages`], so an older group has fewer lines.

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

/// The groups of the file: name of the release, and its lines.
fn groups(file: &str) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in file.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("release ") {
            Some(name) => groups.push((name, Vec::new())),
            None => groups.last_mut().expect("the first line names a release").1.push(line),
        }
    }
    groups
}

/// Whether this version reads every group, and writes the form of the newest one. Otherwise what
/// differs.
fn check(file: &str, keys: &Keys, messages: &[Message]) -> Result<(), String> {
    let groups = groups(file);
    for (release, lines) in &groups {
        if lines.is_empty() || lines.len() > messages.len() {
            return Err(format!("{release}: {} lines for {} messages", lines.len(), messages.len()));
        }
        for (line, message) in lines.iter().zip(messages) {
            let bytes = BASE64_STANDARD.decode(line).map_err(|error| format!("{release}: {error}"))?;
            match keys.read(&bytes) {
                Ok(read) if read == *message => {}
                other => return Err(format!("{release}: {message:?} is read as {other:?}")),
            }
        }
    }
    let written: Vec<_> =
        messages.iter().map(|message| BASE64_STANDARD.encode(keys.write(message).unwrap())).collect();
    let (release, newest) = groups.last().ok_or("no release is kept")?;
    if *newest == written {
        return Ok(());
    }
    Err(format!("not the form of {release}: add or correct the group `next`\n{}", written.join("\n")))
}

fn of_authority(bodies: Vec<Body>) -> Vec<Message> {
    let authority = PeerName::new("https://login.example.com").unwrap();
    bodies.into_iter().map(|body| Message { authority: authority.clone(), body }).collect()
}

#[test]
fn messages_of_released_versions_are_read_and_written() {
    check(KEPT, &Keys::single(1, &[9; 32]), &of_authority(messages())).unwrap();
}

/// Two forms of one message differ in their key here: this version reads both, and writes one.
#[test]
fn every_group_is_read_and_only_the_newest_form_is_written() {
    let (former, present) = ((2, [8; 32]), (1, [9; 32]));
    let keys = Keys::new(&[present, former]).unwrap();
    let messages = of_authority(messages());
    let group = |name: &str, (number, secret): (u8, [u8; 32]), messages: &[Message]| {
        let keys = Keys::single(number, &secret);
        let lines = messages.iter().map(|message| BASE64_STANDARD.encode(keys.write(message).unwrap()));
        format!("release {name}\n{}\n", lines.collect::<Vec<_>>().join("\n"))
    };
    // The older release did not have the last kind.
    let older = group("1.0.0", former, &messages[..messages.len() - 1]);
    let newer = group("1.1.0", present, &messages);
    assert_eq!(check(&format!("# both\n{older}{newer}"), &keys, &messages), Ok(()));

    let unread = check(&format!("{older}{newer}"), &Keys::single(present.0, &present.1), &messages);
    assert!(unread.unwrap_err().starts_with("1.0.0: "));
    let mut swapped = messages.clone();
    swapped.swap(0, 1);
    let misread = check(&(group("1.0.0", former, &swapped) + &newer), &keys, &messages);
    assert!(misread.unwrap_err().starts_with("1.0.0: "));
    for newest in [group("1.1.0", former, &messages), group("1.1.0", present, &messages[1..])] {
        assert!(check(&(newer.clone() + &newest), &keys, &messages).unwrap_err().contains("1.1.0"));
    }
    let fewer = newer.clone() + &group("1.2.0", present, &messages[..2]);
    assert!(check(&fewer, &keys, &messages).unwrap_err().starts_with("not the form of 1.2.0: "));
    for nothing in ["", "# nothing\n", "release 1.0.0\n"] {
        assert!(check(nothing, &keys, &messages).is_err(), "{nothing:?}");
    }
}

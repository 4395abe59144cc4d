//! Conformance: what every transport must do while it works.

use std::time::Duration;

use bytes::Bytes;

use super::{QUEUE, Subscription, Topic, Transport, TransportState};
use crate::log_types::PeerName;
use crate::wire;

const PATIENCE: Duration = Duration::from_secs(10);

/// Time limit for working off a full queue.
const BACKLOG: Duration = Duration::from_secs(30);

/// Message that [`warm`] sends. A second one may be on its way when the first has arrived.
const WARM: &[u8] = b"warm";

fn name(text: &str) -> PeerName {
    PeerName::new(text).expect("a name")
}

/// Waits until a transport is up.
pub async fn wait_up(way: &impl Transport) {
    let mut state = way.state();
    let up = state.wait_for(|state| *state == TransportState::Up);
    tokio::time::timeout(PATIENCE, up).await.expect("it comes up").expect("it lives");
}

/// The next message, which must arrive soon.
pub async fn next(subscription: &mut Subscription) -> Bytes {
    loop {
        let next = tokio::time::timeout(PATIENCE, subscription.recv()).await;
        let message = next.expect("a message comes").expect("it lives");
        if message != WARM {
            return message;
        }
    }
}

/// Whether no message is waiting.
pub fn is_empty(subscription: &mut Subscription) -> bool {
    std::iter::from_fn(|| subscription.try_recv().ok()).all(|message| message == WARM)
}

/// Sends until a message arrives: a subscription may take a while to be known everywhere.
pub async fn wait_subscribed(from: &impl Transport, topic: &Topic, to: &mut Subscription) {
    let began = tokio::time::Instant::now();
    loop {
        from.send(topic, Bytes::from_static(WARM));
        if let Ok(Some(_)) = tokio::time::timeout(Duration::from_millis(100), to.recv()).await {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "nothing arrives on {topic}");
    }
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_millis(200), to.recv()).await {}
}

/// Sends until this message has arrived. Others may be queued before it, and a full queue may drop
/// it.
async fn wait_delivered(from: &impl Transport, topic: &Topic, message: &Bytes, to: &mut Subscription) {
    let began = tokio::time::Instant::now();
    while began.elapsed() < BACKLOG {
        from.send(topic, message.clone());
        let pause = tokio::time::Instant::now() + Duration::from_millis(100);
        while let Ok(Some(next)) = tokio::time::timeout_at(pause, to.recv()).await {
            if next == *message {
                return;
            }
        }
    }
    panic!("{message:?} does not arrive on {topic}");
}

/// Checks the promises of a transport, on two instances that `make` creates.
pub async fn run<T: Transport, F: Future<Output = T>>(make: impl Fn() -> F) {
    let (one, other) = (make().await, make().await);
    wait_up(&one).await;
    wait_up(&other).await;
    // Names that no broker accepts as they are.
    let events = Topic::Events(name("https://id.example/realms/Main#>*"));
    let questions = Topic::Questions(name("https://id.example/realms/Main#>*"));
    let elsewhere = Topic::Events(name("https://id.example/realms/main#>*"));
    let mut at_one = one.subscribe(events.clone());
    let mut at_other = other.subscribe(events.clone());
    let mut at_questions = other.subscribe(questions.clone());
    let mut strange = other.subscribe(elsewhere.clone());
    wait_subscribed(&one, &events, &mut at_one).await;
    wait_subscribed(&one, &events, &mut at_other).await;
    wait_subscribed(&one, &questions, &mut at_questions).await;
    wait_subscribed(&one, &elsewhere, &mut strange).await;
    while at_one.try_recv().is_ok() {}

    // Every subscriber gets the message unchanged, the sender's own too.
    let largest: Vec<u8> = (0..wire::MAX_MESSAGE).map(|at| (at % 251).to_le_bytes()[0]).collect();
    for message in [Bytes::from_static(b"\0"), Bytes::from_static(b"second"), Bytes::from(largest)] {
        one.send(&events, message.clone());
        assert_eq!(next(&mut at_one).await, message);
        assert_eq!(next(&mut at_other).await, message);
    }
    // Topics are separate.
    one.send(&questions, Bytes::from_static(b"asked"));
    assert_eq!(next(&mut at_questions).await, "asked");
    assert!(is_empty(&mut at_other) && is_empty(&mut strange));

    // While no subscriber is slow, everything arrives, in order.
    let many = 1000_u32;
    for number in 0..many {
        one.send(&events, Bytes::copy_from_slice(&number.to_be_bytes()));
        if number % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    for number in 0..many {
        assert_eq!(next(&mut at_other).await, number.to_be_bytes()[..]);
    }

    // A subscriber that does not read blocks nothing, and costs no more than a queue.
    while at_one.try_recv().is_ok() {}
    for _ in 0..QUEUE + 5_000 {
        one.send(&events, Bytes::from_static(b"more"));
        tokio::task::yield_now().await;
    }
    assert!(at_one.len() <= QUEUE);
    drop((at_one, at_other));
    let mut later = other.subscribe(events.clone());
    wait_delivered(&one, &events, &Bytes::from_static(b"later"), &mut later).await;
}

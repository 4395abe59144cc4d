//! Several transports used as one.
//!
//! Owns: which transport carries which message. Does not own: the transports.
//!
//! - Events are sent over each transport, and received from all. An event that arrives twice
//!   changes nothing.
//! - Questions are sent over the first and nearest transport, where one node answers. Once that
//!   transport has left some probes without an echo, questions are sent over each.
//!
//! So the transports replace each other without an explicit failover, and a consumer does not make
//! every node of an authority read its database.
//!
//! Only one byte of a message is read: it says whether the message is a probe or an echo. Its MAC
//! is not checked, so an attacker can change which transport carries questions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::{QUEUE, Subscription, Topic, Transport, TransportState};
use crate::wire;

/// Probes that the first transport may leave without an echo before questions go over each.
const MAX_UNANSWERED: u32 = 2;

/// Transports of which each one suffices.
#[derive(Clone)]
pub struct MultiTransport {
    transports: Arc<[Arc<dyn Transport>]>,
    /// Probes since the first transport last delivered an echo.
    unanswered: Arc<AtomicU32>,
    state: watch::Receiver<TransportState>,
}

impl MultiTransport {
    /// Combines these transports, the nearest first. Needs a Tokio runtime.
    pub fn new(ways: Vec<Arc<dyn Transport>>) -> Self {
        let mut states: Vec<_> = ways.iter().map(|way| way.state()).collect();
        let (tell, state) = watch::channel(combined_state(&mut states));
        tokio::spawn(async move {
            while wait_for_change(&mut states).await {
                let now = combined_state(&mut states);
                tell.send_if_modified(|before| {
                    let other = *before != now;
                    *before = now;
                    other
                });
                if tell.is_closed() {
                    return;
                }
            }
        });
        Self { transports: ways.into(), unanswered: Arc::default(), state }
    }
}

/// The combined state: down if one is down, so that its loss is noticed; up when all are.
fn combined_state(states: &mut [watch::Receiver<TransportState>]) -> TransportState {
    let states: Vec<_> = states.iter_mut().map(|state| state.borrow_and_update().clone()).collect();
    let down = states.iter().find(|state| matches!(state, TransportState::Down(_)));
    let starting = states.iter().find(|state| **state == TransportState::Starting);
    down.or(starting).cloned().unwrap_or(TransportState::Up)
}

/// Waits until one state has changed; `false` when none can change any more.
async fn wait_for_change(states: &mut [watch::Receiver<TransportState>]) -> bool {
    let mut waiting: Vec<_> = states.iter_mut().map(|state| Box::pin(state.changed())).collect();
    let first = std::future::poll_fn(|cx| {
        let ready = waiting.iter_mut().find_map(|waiting| match waiting.as_mut().poll(cx) {
            std::task::Poll::Ready(changed) => Some(changed.is_ok()),
            std::task::Poll::Pending => None,
        });
        ready.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    });
    first.await
}

impl Transport for MultiTransport {
    fn send(&self, topic: &Topic, message: Bytes) {
        let unanswered = if wire::is_probe(&message) {
            self.unanswered.fetch_add(1, Ordering::Relaxed)
        } else {
            // The echo of the last probe may still be on its way.
            self.unanswered.load(Ordering::Relaxed).saturating_sub(1)
        };
        let nearest = matches!(topic, Topic::Questions(_)) && unanswered < MAX_UNANSWERED;
        let most = if nearest { 1 } else { self.transports.len() };
        for way in self.transports.iter().take(most) {
            way.send(topic, message.clone());
        }
    }

    fn subscribe(&self, topic: Topic) -> Subscription {
        let (to, subscription) = mpsc::channel(QUEUE);
        let answers = matches!(topic, Topic::Events(_));
        for (at, way) in self.transports.iter().enumerate() {
            let (mut from, to) = (way.subscribe(topic.clone()), to.clone());
            let unanswered = (answers && at == 0).then(|| self.unanswered.clone());
            tokio::spawn(async move {
                loop {
                    tokio::select! {
                        message = from.recv() => match message {
                            Some(message) => {
                                if let Some(unanswered) = unanswered.as_ref().filter(|_| wire::is_echo(&message)) {
                                    unanswered.store(0, Ordering::Relaxed);
                                }
                                // A full queue drops messages, here as in every transport.
                                let _ = to.try_send(message);
                            }
                            None => return,
                        },
                        () = to.closed() => return,
                    }
                }
            });
        }
        subscription
    }

    fn state(&self) -> watch::Receiver<TransportState> {
        self.state.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Memory;
    use super::*;
    use crate::log_types::PeerName;

    /// A transport whose state the test sets.
    struct FixedState(Memory, watch::Receiver<TransportState>);

    impl Transport for FixedState {
        fn send(&self, topic: &Topic, message: Bytes) {
            self.0.send(topic, message);
        }

        fn subscribe(&self, topic: Topic) -> Subscription {
            self.0.subscribe(topic)
        }

        fn state(&self) -> watch::Receiver<TransportState> {
            self.1.clone()
        }
    }

    #[tokio::test]
    async fn each_way_carries_and_one_that_is_down_shows() {
        let (one, other) = (Memory::default(), Memory::default());
        let (say, other_state) = watch::channel(TransportState::Starting);
        let several = MultiTransport::new(vec![
            Arc::new(one.clone()),
            Arc::new(FixedState(other.clone(), other_state)),
        ]);
        let topic = Topic::Events(PeerName::new("main").expect("a name"));
        let mut messages = several.subscribe(topic.clone());
        one.send(&topic, Bytes::from_static(b"one"));
        assert_eq!(messages.recv().await.as_deref(), Some(&b"one"[..]));
        other.send(&topic, Bytes::from_static(b"other"));
        assert_eq!(messages.recv().await.as_deref(), Some(&b"other"[..]));
        let (mut at_one, mut at_other) = (one.subscribe(topic.clone()), other.subscribe(topic.clone()));
        several.send(&topic, Bytes::from_static(b"both"));
        assert_eq!(at_one.recv().await, at_other.recv().await);

        let questions = Topic::Questions(PeerName::new("main").expect("a name"));
        let (mut asked_one, mut asked_other) =
            (one.subscribe(questions.clone()), other.subscribe(questions.clone()));
        for _ in 0..2 {
            assert_eq!(messages.recv().await.as_deref(), Some(&b"both"[..]));
        }
        // Only the kind counts: version, kind, and any other bytes.
        let (probe, echo, applied) = (b"\x01\x02", b"\x01\x03", b"\x01\x06");
        let event = b"\x01\x01";
        several.send(&questions, Bytes::from_static(probe));
        several.send(&questions, Bytes::from_static(probe));
        for _ in 0..5 {
            several.send(&questions, Bytes::from_static(applied));
        }
        one.send(&topic, Bytes::from_static(event));
        assert_eq!(messages.recv().await.as_deref(), Some(&event[..]), "which answers nothing");
        several.send(&questions, Bytes::from_static(probe));
        for sent in [probe, probe, applied, applied, applied, applied, applied, probe] {
            assert_eq!(asked_one.recv().await.as_deref(), Some(&sent[..]));
        }
        assert_eq!(asked_other.recv().await.as_deref(), Some(&probe[..]), "when two had no echo");
        several.send(&questions, Bytes::from_static(applied));
        assert_eq!(asked_other.recv().await.as_deref(), Some(&applied[..]));
        assert_eq!(asked_one.recv().await.as_deref(), Some(&applied[..]));
        one.send(&topic, Bytes::from_static(echo));
        assert_eq!(messages.recv().await.as_deref(), Some(&echo[..]));
        several.send(&questions, Bytes::from_static(probe));
        assert_eq!(asked_one.recv().await.as_deref(), Some(&probe[..]));
        assert!(asked_other.try_recv().is_err());

        let mut state = several.state();
        assert_eq!(*state.borrow_and_update(), TransportState::Starting);
        say.send_replace(TransportState::Down("gone".into()));
        state.changed().await.expect("told");
        assert_eq!(*state.borrow_and_update(), TransportState::Down("gone".into()));
        say.send_replace(TransportState::Up);
        state.changed().await.expect("told");
        assert_eq!(*state.borrow_and_update(), TransportState::Up);
    }
}

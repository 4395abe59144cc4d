//! Reserve: a transport whose events are read only while another transport is not up.
//!
//! Owns: when events are read from it. Does not own: the transport.
//!
//! The nodes of a provider share a database, and without it they have no lease. While the database
//! carries messages as well, every event reaches every node that way. A second copy over a broker
//! costs broker and node more than the first, and gives no safety. So a node sends its events over
//! the broker, for consumers that have no database, and reads questions there. It reads events there
//! only while messages over the database fail.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::{QUEUE, Subscription, Topic, Transport, TransportState};

/// How long the reserve is still read when the other transport is up again: the other nodes
/// reconnect as well, and until then send their events over the reserve alone.
const OVERLAP: Duration = Duration::from_secs(10);

/// A transport in reserve.
pub struct ReserveTransport {
    transport: Arc<dyn Transport>,
    /// State of the transport that it stands in for.
    nearer: watch::Receiver<TransportState>,
}

impl ReserveTransport {
    /// Keeps `transport` in reserve for the one with the state `nearer`.
    pub fn new(transport: Arc<dyn Transport>, nearer: watch::Receiver<TransportState>) -> Self {
        Self { transport, nearer }
    }
}

impl Transport for ReserveTransport {
    fn send(&self, topic: &Topic, message: Bytes) {
        self.transport.send(topic, message);
    }

    fn subscribe(&self, topic: Topic) -> Subscription {
        if matches!(topic, Topic::Questions(_)) {
            return self.transport.subscribe(topic);
        }
        let (to, subscription) = mpsc::channel(QUEUE);
        let (transport, mut nearer) = (self.transport.clone(), self.nearer.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = read_in_reserve(&*transport, &topic, &mut nearer, &to) => {}
                () = to.closed() => {}
            }
        });
        subscription
    }

    fn state(&self) -> watch::Receiver<TransportState> {
        self.transport.state()
    }
}

/// Reads the topic whenever the nearer transport is not up. Ends with the transport.
async fn read_in_reserve(
    transport: &dyn Transport,
    topic: &Topic,
    nearer: &mut watch::Receiver<TransportState>,
    to: &mpsc::Sender<Bytes>,
) {
    loop {
        // A transport that is gone stays in its last state.
        if nearer.wait_for(|state| *state != TransportState::Up).await.is_err() {
            return;
        }
        let mut from = transport.subscribe(topic.clone());
        let read = async {
            while let Some(message) = from.recv().await {
                // A full queue drops messages, here as in every transport.
                let _ = to.try_send(message);
            }
        };
        tokio::select! {
            () = read => return,
            () = up_again(nearer) => {}
        }
    }
}

/// Waits until the transport has been up for [`OVERLAP`].
async fn up_again(nearer: &mut watch::Receiver<TransportState>) {
    loop {
        if nearer.wait_for(|state| *state == TransportState::Up).await.is_err() {
            return std::future::pending().await;
        }
        let down = nearer.wait_for(|state| *state != TransportState::Up);
        if !matches!(tokio::time::timeout(OVERLAP, down).await, Ok(Ok(_))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Memory;
    use super::*;
    use crate::log_types::PeerName;

    /// Lets the task of the subscription react.
    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_read_only_while_the_nearer_transport_is_not_up() {
        let name = PeerName::new("main").expect("a name");
        let (events, questions) = (Topic::Events(name.clone()), Topic::Questions(name));
        let (broker, (set, nearer)) = (Memory::default(), watch::channel(TransportState::Starting));
        let reserve = ReserveTransport::new(Arc::new(broker.clone()), nearer);
        let (mut read, mut asked) = (reserve.subscribe(events.clone()), reserve.subscribe(questions.clone()));
        let mut elsewhere = broker.subscribe(events.clone());
        let mut is_read = async || {
            settle().await;
            broker.send(&events, Bytes::from_static(b"event"));
            settle().await;
            read.try_recv().is_ok()
        };
        assert!(is_read().await, "before the nearer transport is up");
        set.send_replace(TransportState::Up);
        assert!(is_read().await, "other nodes are not up yet");
        tokio::time::sleep(OVERLAP / 2).await;
        set.send_replace(TransportState::Down("gone".into()));
        settle().await;
        set.send_replace(TransportState::Up);
        tokio::time::sleep(OVERLAP.saturating_sub(Duration::from_millis(1))).await;
        assert!(is_read().await, "it was down meanwhile");
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(!is_read().await, "the nearer transport brings them");
        set.send_replace(TransportState::Down("gone again".into()));
        assert!(is_read().await);
        set.send_replace(TransportState::Up);
        tokio::time::sleep(OVERLAP * 2).await;
        assert!(!is_read().await);

        broker.send(&questions, Bytes::from_static(b"question"));
        assert_eq!(asked.recv().await.as_deref(), Some(&b"question"[..]), "at any time");
        while elsewhere.try_recv().is_ok() {}
        reserve.send(&events, Bytes::from_static(b"sent"));
        assert_eq!(elsewhere.recv().await.as_deref(), Some(&b"sent"[..]), "at any time");
    }
}

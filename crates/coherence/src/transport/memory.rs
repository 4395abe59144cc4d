//! In-process transport, for a node that is alone.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use super::subscribers::Subscribers;
use super::{Subscription, Topic, Transport, TransportState};

/// A transport within the process. Clones are endpoints of the same one.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    subscribers: Subscribers,
    state: watch::Sender<TransportState>,
}

impl Default for Memory {
    fn default() -> Self {
        let (state, _) = watch::channel(TransportState::Up);
        Self(Arc::new(Shared { subscribers: Subscribers::default(), state }))
    }
}

impl Transport for Memory {
    fn send(&self, topic: &Topic, message: Bytes) {
        self.0.subscribers.deliver(topic, &message);
    }

    fn subscribe(&self, topic: Topic) -> Subscription {
        self.0.subscribers.add(topic)
    }

    fn state(&self) -> watch::Receiver<TransportState> {
        self.0.state.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance;
    use super::*;

    #[tokio::test]
    async fn conforms() {
        let way = Memory::default();
        conformance::run(|| {
            let way = way.clone();
            async move { way }
        })
        .await;
    }
}

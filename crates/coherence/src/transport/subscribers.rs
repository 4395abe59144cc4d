//! Subscribers: which topics are read on this node.
//!
//! Owns: the queues of subscribers by topic, and the difference between the topics they need and
//! those that a server was asked for ([`RequestedTopics`]). Does not own: how a server is asked.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::{QUEUE, Subscription, Topic};

/// The subscribers of one endpoint of a transport.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    by_topic: Mutex<HashMap<Topic, Vec<mpsc::Sender<Bytes>>>>,
    changed: watch::Sender<()>,
}

impl Subscribers {
    /// Adds a subscriber, which is removed after it drops its subscription.
    pub(super) fn add(&self, topic: Topic) -> Subscription {
        let (to, subscription) = mpsc::channel(QUEUE);
        self.by_topic.lock().entry(topic).or_default().push(to);
        self.changed.send_replace(());
        subscription
    }

    /// Passes a message to all subscribers of the topic, and returns whether there are any. A
    /// subscriber that does not keep up loses it.
    pub(super) fn deliver(&self, topic: &Topic, message: &Bytes) -> bool {
        let mut by_topic = self.by_topic.lock();
        let Some(subscribers) = by_topic.get_mut(topic) else { return false };
        subscribers
            .retain(|to| !matches!(to.try_send(message.clone()), Err(mpsc::error::TrySendError::Closed(_))));
        let any = !subscribers.is_empty();
        if !any {
            by_topic.remove(topic);
            self.changed.send_replace(());
        }
        any
    }

    /// Topics that still have a subscriber.
    pub(super) fn topics(&self) -> HashSet<Topic> {
        let mut by_topic = self.by_topic.lock();
        by_topic.retain(|_, subscribers| subscribers.iter().any(|to| !to.is_closed()));
        by_topic.keys().cloned().collect()
    }
}

/// Topics that one connection has asked its server for.
#[derive(Debug)]
pub(super) struct RequestedTopics {
    requested: HashSet<Topic>,
    changed: watch::Receiver<()>,
}

impl RequestedTopics {
    /// Begins without any topic.
    pub(super) fn new(subscribers: &Subscribers) -> Self {
        Self { requested: HashSet::new(), changed: subscribers.changed.subscribe() }
    }

    /// Waits until the topics may have changed. Cancellation-safe.
    pub(super) async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            // No subscriber can be added any more.
            std::future::pending::<()>().await;
        }
    }

    /// Topics to subscribe to, and topics to unsubscribe from. They count as subscribed and
    /// unsubscribed from now on.
    pub(super) fn difference(&mut self, subscribers: &Subscribers) -> (Vec<Topic>, Vec<Topic>) {
        self.changed.mark_unchanged();
        let now = subscribers.topics();
        let more = now.difference(&self.requested).cloned().collect();
        let less = self.requested.difference(&now).cloned().collect();
        self.requested = now;
        (more, less)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_types::PeerName;

    fn topic(name: &str) -> Topic {
        Topic::Events(PeerName::new(name).unwrap())
    }

    #[test]
    fn a_server_is_asked_for_what_is_new_and_given_back_what_nobody_reads() {
        let subscribers = Subscribers::default();
        let mut wanted = RequestedTopics::new(&subscribers);
        let (first, second) = (subscribers.add(topic("a")), subscribers.add(topic("a")));
        assert_eq!(wanted.difference(&subscribers), (vec![topic("a")], vec![]));
        drop(first);
        assert_eq!(wanted.difference(&subscribers), (vec![], vec![]), "somebody reads it still");
        drop(second);
        let _other = subscribers.add(topic("b"));
        assert_eq!(wanted.difference(&subscribers), (vec![topic("b")], vec![topic("a")]));
    }

    #[tokio::test]
    async fn whoever_is_gone_is_noticed_with_the_next_message() {
        let subscribers = Subscribers::default();
        let gone = subscribers.add(topic("a"));
        let mut wanted = RequestedTopics::new(&subscribers);
        wanted.difference(&subscribers);
        drop(gone);
        subscribers.deliver(&topic("a"), &Bytes::new());
        wanted.changed().await;
        assert_eq!(wanted.difference(&subscribers), (vec![], vec![topic("a")]));
    }
}

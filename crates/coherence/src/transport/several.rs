//! Several ways as one.
//!
//! Owns: sending over each, hearing from all. Does not own: the ways. What comes over two of them is heard twice, which changes
//! nothing; so each takes over from the other without anybody deciding that it should.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::{QUEUE, State, Subscription, Topic, Transport};

/// Ways, each of which would do.
#[derive(Clone)]
pub struct Several {
    ways: Arc<[Arc<dyn Transport>]>,
    state: watch::Receiver<State>,
}

impl Several {
    /// Of these. Needs a runtime around it.
    pub fn new(ways: Vec<Arc<dyn Transport>>) -> Self {
        let mut states: Vec<_> = ways.iter().map(|way| way.state()).collect();
        let (tell, state) = watch::channel(together(&mut states));
        tokio::spawn(async move {
            while changed(&mut states).await {
                let now = together(&mut states);
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
        Self { ways: ways.into(), state }
    }
}

/// Down if one is, for that one is missed; up when all are.
fn together(states: &mut [watch::Receiver<State>]) -> State {
    let states: Vec<_> = states.iter_mut().map(|state| state.borrow_and_update().clone()).collect();
    let down = states.iter().find(|state| matches!(state, State::Down(_)));
    let starting = states.iter().find(|state| **state == State::Starting);
    down.or(starting).cloned().unwrap_or(State::Up)
}

/// Waits until one has changed; false when none will any more.
async fn changed(states: &mut [watch::Receiver<State>]) -> bool {
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

impl Transport for Several {
    fn send(&self, topic: &Topic, message: Bytes) {
        for way in &*self.ways {
            way.send(topic, message.clone());
        }
    }

    fn subscribe(&self, topic: Topic) -> Subscription {
        let (to, subscription) = mpsc::channel(QUEUE);
        for way in &*self.ways {
            let (mut from, to) = (way.subscribe(topic.clone()), to.clone());
            tokio::spawn(async move {
                loop {
                    tokio::select! {
                        message = from.recv() => match message {
                            // A queue that is full drops, here as everywhere.
                            Some(message) => drop(to.try_send(message)),
                            None => return,
                        },
                        () = to.closed() => return,
                    }
                }
            });
        }
        subscription
    }

    fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Memory;
    use super::*;
    use crate::words::Name;

    /// A way whose state is said from outside.
    struct Said(Memory, watch::Receiver<State>);

    impl Transport for Said {
        fn send(&self, topic: &Topic, message: Bytes) {
            self.0.send(topic, message);
        }

        fn subscribe(&self, topic: Topic) -> Subscription {
            self.0.subscribe(topic)
        }

        fn state(&self) -> watch::Receiver<State> {
            self.1.clone()
        }
    }

    #[tokio::test]
    async fn each_way_carries_and_one_that_is_down_shows() {
        let (one, other) = (Memory::default(), Memory::default());
        let (say, said) = watch::channel(State::Starting);
        let several = Several::new(vec![Arc::new(one.clone()), Arc::new(Said(other.clone(), said))]);
        let topic = Topic::Events(Name::new("main").expect("a name"));
        let mut heard = several.subscribe(topic.clone());
        one.send(&topic, Bytes::from_static(b"one"));
        assert_eq!(heard.recv().await.as_deref(), Some(&b"one"[..]));
        other.send(&topic, Bytes::from_static(b"other"));
        assert_eq!(heard.recv().await.as_deref(), Some(&b"other"[..]));
        let (mut at_one, mut at_other) = (one.subscribe(topic.clone()), other.subscribe(topic.clone()));
        several.send(&topic, Bytes::from_static(b"both"));
        assert_eq!(at_one.recv().await, at_other.recv().await);

        let mut state = several.state();
        assert_eq!(*state.borrow_and_update(), State::Starting);
        say.send_replace(State::Down("gone".into()));
        state.changed().await.expect("told");
        assert_eq!(*state.borrow_and_update(), State::Down("gone".into()));
        say.send_replace(State::Up);
        state.changed().await.expect("told");
        assert_eq!(*state.borrow_and_update(), State::Up);
    }
}

//! Shared read: one read answers all callers that are waiting when it starts.
//!
//! Owns: which callers a read answers: those that called before it started, never later ones. So
//! each caller sees everything that was durable at its call, and at most one read runs at a time.
//! Does not own: what is read.
//!
//! A read continues after its callers have been dropped: others are about to need it.

use tokio::sync::{mpsc, oneshot};

/// Handle for callers. The reading task ends when the last handle is dropped.
pub(crate) struct SharedRead<T>(mpsc::UnboundedSender<oneshot::Sender<T>>);

impl<T> Clone for SharedRead<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Clone + Send + 'static> SharedRead<T> {
    /// Starts the reading task on the current runtime. `read` performs one read.
    pub(crate) fn start<F, R>(read: F) -> Self
    where
        F: Fn() -> R + Send + 'static,
        R: Future<Output = T> + Send + 'static,
    {
        let (sender, mut requests) = mpsc::unbounded_channel::<oneshot::Sender<T>>();
        tokio::spawn(async move {
            while let Some(first) = requests.recv().await {
                let mut waiting = vec![first];
                while let Ok(another) = requests.try_recv() {
                    waiting.push(another);
                }
                waiting.retain(|one| !one.is_closed());
                if waiting.is_empty() {
                    continue;
                }
                // After a panic the callers' channels are dropped, and they get `None`.
                let Ok(answer) = tokio::spawn(read()).await else { continue };
                for one in waiting {
                    let _ = one.send(answer.clone());
                }
            }
        });
        Self(sender)
    }

    /// The result of a read that started after this call; `None` when that read panicked.
    pub(crate) async fn read(&self) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.0.send(sender).ok()?;
        answer.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    const TAKES: Duration = Duration::from_millis(10);

    /// A shared read that returns its own number.
    fn counted() -> SharedRead<u64> {
        let count = Arc::new(AtomicU64::new(0));
        SharedRead::start(move || {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                sleep(TAKES).await;
                assert_ne!(number, 7, "the seventh panics");
                number
            }
        })
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_before_it_begins_joins_and_who_asks_later_waits_for_the_next() {
        let (shared, begun) = (counted(), Instant::now());
        let first = async { tokio::join!(shared.read(), shared.read()) };
        let later = async {
            sleep(TAKES / 2).await;
            let all: Vec<_> = (0..500)
                .map(|_| {
                    tokio::spawn({
                        let shared = shared.clone();
                        async move { shared.read().await }
                    })
                })
                .collect();
            for one in all {
                assert_eq!(one.await.unwrap(), Some(2), "what was begun before may know less");
            }
        };
        assert_eq!(tokio::join!(first, later).0, (Some(1), Some(1)));
        assert_eq!(begun.elapsed(), TAKES * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_survives_who_asked_for_it_and_nothing_is_read_for_nobody() {
        let shared = counted();
        for _ in 0..5 {
            assert!(tokio::time::timeout(TAKES / 2, shared.read()).await.is_err());
            sleep(TAKES * 2).await;
        }
        assert_eq!(shared.read().await, Some(6), "those who gave up had one each");
        assert_eq!(shared.read().await, None, "it panicked");
        assert_eq!(shared.read().await, Some(8));
        let hasty = tokio::time::timeout(TAKES / 2, async { tokio::join!(shared.read(), shared.read()) });
        let (hasty, patient) = tokio::join!(hasty, async {
            sleep(TAKES / 4).await;
            shared.read().await
        });
        assert_eq!((hasty.is_err(), patient), (true, Some(10)));
    }
}

//! Status: writes the status documents of objects, on the leader.
//!
//! Owns: which documents are still to be written, their pace, and what a failed write means. Does not
//! own: what a document says (`controller::conditions`), who leads ([`crate::leader`]).
//!
//! Only the latest document of an object is written. A replica that does not lead drops its
//! documents: the one that leads derives the same. A document that cannot be written waits apart from
//! the others, so that they never wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use controller::names::ObjectKey;
use controller::plan::StatusDocument;
use kube::api::{Patch, PatchParams};
use outage::{Outage, RECOVERY_PERIOD};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::retries::{Retries, until};
use super::watched::{api, describe};

/// Field manager of the documents (server-side apply).
const MANAGER: &str = "postern";
/// Writes in flight.
const CONCURRENCY: usize = 16;
/// Writes per second, so that a start with tens of thousands of objects does not occupy the API
/// server. 40 000 documents take under 4 minutes; those that came last are written first.
const PER_SECOND: u32 = 200;
/// First pause before a failed write is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause before a write is tried again that the API server has refused: it will hardly answer anything
/// else before the object or a right changes.
const REFUSED_PAUSE: Duration = Duration::from_mins(5);
/// Time limit of a write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Documents that are still to be written.
#[derive(Default)]
pub(super) struct StatusQueue {
    waiting: Mutex<Waiting>,
    changed: Notify,
    written: AtomicU64,
    failed: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    /// By object, with the turn in which it came last.
    documents: BTreeMap<ObjectKey, (u64, Box<str>)>,
    /// The objects by turn, less those in flight.
    turns: BTreeMap<u64, ObjectKey>,
    turn: u64,
    /// Objects whose document is being written. A later one waits for the end of it, so that an
    /// earlier document never replaces a later one.
    in_flight: BTreeSet<ObjectKey>,
    /// Documents that could not be written. They are written after all others.
    failed: Retries<ObjectKey, Box<str>>,
    /// How often all documents were dropped.
    epoch: u64,
}

/// A document that is being written.
struct Taken {
    object: ObjectKey,
    body: Box<str>,
    epoch: u64,
}

impl Waiting {
    fn put(&mut self, object: ObjectKey, body: Box<str>) {
        self.failed.forget(&object);
        self.turn += 1;
        let entry = self.documents.entry(object.clone()).or_insert_with(|| (self.turn, Box::default()));
        entry.1 = body;
        if !self.in_flight.contains(&object) {
            // A document that waits already keeps its turn.
            self.turns.insert(entry.0, object);
        }
    }

    /// The latest one: what changes now matters more than what a start has found. Then those that have
    /// failed.
    fn take(&mut self, now: Instant) -> Option<Taken> {
        let (object, body) = match self.turns.pop_last() {
            Some((_, object)) => {
                let (_, body) = self.documents.remove(&object)?;
                (object, body)
            }
            None => self.failed.take_due(now)?,
        };
        self.in_flight.insert(object.clone());
        Some(Taken { object, body, epoch: self.epoch })
    }

    /// Takes note of the end of a write. `retry`: it has failed, and the first pause before another.
    fn ended(&mut self, taken: Taken, retry: Option<Duration>, now: Instant) {
        let Taken { object, body, epoch } = taken;
        self.in_flight.remove(&object);
        if let Some((turn, _)) = self.documents.get(&object) {
            self.turns.insert(*turn, object);
        } else if let Some(pause) = retry.filter(|_| epoch == self.epoch) {
            self.failed.failed(object, body, pause, now);
        } else if epoch == self.epoch {
            self.failed.forget(&object);
        }
    }

    fn clear(&mut self) {
        self.documents.clear();
        self.turns.clear();
        self.failed = Retries::default();
        self.epoch += 1;
    }
}

/// Numbers of the status writer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatusCounts {
    /// Documents that wait.
    pub waiting: usize,
    /// Documents that were written.
    pub written: u64,
    /// Writes that failed.
    pub failed: u64,
}

impl StatusQueue {
    /// Adds documents, in place of earlier ones of the same objects.
    pub(super) fn put(&self, documents: impl IntoIterator<Item = StatusDocument>) {
        let mut waiting = self.waiting.lock();
        for StatusDocument { object, body } in documents {
            waiting.put(object, body);
        }
        drop(waiting);
        self.changed.notify_one();
    }

    /// Drops all documents.
    pub(super) fn clear(&self) {
        self.waiting.lock().clear();
    }

    /// Its numbers.
    pub(super) fn counts(&self) -> StatusCounts {
        let waiting = self.waiting.lock();
        StatusCounts {
            waiting: waiting.documents.len() + waiting.failed.waiting(),
            written: self.written.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }

    /// Writes documents for ever.
    pub(super) async fn run(self: Arc<Self>, client: kube::Client) {
        let outage = Outage::new("status of objects").with_effect("conditions may be out of date");
        let outage = Arc::new(outage.with_recovery_period(RECOVERY_PERIOD));
        let slots = Arc::new(Semaphore::new(CONCURRENCY));
        let mut pace = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
        loop {
            let (taken, due) = {
                let mut waiting = self.waiting.lock();
                (waiting.take(Instant::now()), waiting.failed.next_due())
            };
            let Some(taken) = taken else {
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = until(due) => {}
                }
                pace.reset();
                continue;
            };
            pace.tick().await;
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            let (queue, client, outage) = (self.clone(), client.clone(), outage.clone());
            tokio::spawn(async move {
                let retry = queue.write(&client, &taken, &outage).await;
                queue.waiting.lock().ended(taken, retry, Instant::now());
                queue.changed.notify_one();
                drop(slot);
            });
        }
    }

    /// Writes a document. Answers the first pause before it is tried again, if it has to be.
    async fn write(&self, client: &kube::Client, taken: &Taken, outage: &Outage) -> Option<Duration> {
        let Taken { object, body, epoch } = taken;
        if self.waiting.lock().epoch != *epoch {
            // Another replica may lead by now.
            return None;
        }
        // It was made by serializing a value.
        let value = serde_json::from_str::<Value>(body).ok()?;
        let api = api(client, object.kind, Some(&object.at.namespace));
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(&value);
        let written = api.patch_status(&object.at.name, &params, &patch);
        let (why, pause) = match tokio::time::timeout(WRITE_TIMEOUT, written).await {
            Ok(Ok(_)) => {
                outage.succeeded();
                self.written.fetch_add(1, Relaxed);
                return None;
            }
            // The object is gone, or changed meanwhile: the watch brings what follows from that.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                outage.succeeded();
                return None;
            }
            Ok(Err(error)) => {
                let is_refused =
                    matches!(&error, kube::Error::Api(status) if matches!(status.code, 403 | 422));
                (describe(&error), if is_refused { REFUSED_PAUSE } else { RETRY_PAUSE })
            }
            Err(_) => ("the API server does not answer in time".to_owned(), RETRY_PAUSE),
        };
        self.failed.fetch_add(1, Relaxed);
        outage.failed(format!("{object}: {why}"));
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use controller::names::{Kind, NamespacedName};

    use super::super::test_api::{client, refusal};
    use super::*;

    fn document(name: &str, body: &str) -> StatusDocument {
        let object = NamespacedName::new("team", name).of(Kind::HttpRoute);
        StatusDocument { object, body: serde_json::json!({ "of": body }).to_string().into() }
    }

    /// A queue whose writes of names that begin with `bad` get this answer, and what was asked.
    fn queue(code: u16) -> (Arc<StatusQueue>, Arc<Mutex<Vec<String>>>) {
        let (queue, asked) = (Arc::new(StatusQueue::default()), Arc::<Mutex<Vec<String>>>::default());
        let log = asked.clone();
        let client = client(move |_, path| {
            let name = path.rsplit('/').nth(1).unwrap().to_owned();
            log.lock().push(name.clone());
            async move {
                if name.starts_with("bad") {
                    return refusal(code, "no");
                }
                if name.starts_with("slow") {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                }
                (200, serde_json::json!({ "metadata": { "name": name } }))
            }
        });
        tokio::spawn(queue.clone().run(client));
        (queue, asked)
    }

    fn count(asked: &Mutex<Vec<String>>, name: &str) -> usize {
        asked.lock().iter().filter(|one| one.starts_with(name)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn documents_that_cannot_be_written_do_not_hold_up_others() {
        let (queue, asked) = queue(500);
        queue.put((0..200).map(|number| document(&format!("bad-{number}"), "x")));
        tokio::time::sleep(Duration::from_secs(5)).await;
        queue.put((0..200).map(|number| document(&format!("good-{number}"), "x")));
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(count(&asked, "good"), 200);
        assert_eq!(queue.counts().waiting, 200);
        tokio::time::sleep(Duration::from_mins(10)).await;
        // At 0, 1, 3, 7, 15, 31 seconds, and then each minute.
        let asked = count(&asked, "bad");
        assert!((200 * 14..200 * 18).contains(&asked), "{asked}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_tried_again_when_it_changes_or_after_minutes() {
        let (queue, asked) = queue(422);
        queue.put([document("bad", "x")]);
        tokio::time::sleep(Duration::from_mins(4)).await;
        assert_eq!(count(&asked, "bad"), 1);
        queue.put([document("bad", "y")]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(count(&asked, "bad"), 2);
        tokio::time::sleep(Duration::from_mins(6)).await;
        assert_eq!(count(&asked, "bad"), 3);
        assert_eq!(queue.counts(), StatusCounts { waiting: 1, written: 0, failed: 3 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_no_longer_leads_drops_what_has_failed() {
        let (queue, asked) = queue(500);
        queue.put([document("bad", "x")]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        queue.clear();
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!((count(&asked, "bad"), queue.counts().waiting), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_document_waits_for_the_end_of_an_earlier_write() {
        let (queue, asked) = queue(500);
        queue.put([document("slow", "x")]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.put([document("slow", "y"), document("good", "x")]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((count(&asked, "slow"), count(&asked, "good")), (1, 1));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!((count(&asked, "slow"), queue.counts().waiting), (2, 0));
    }

    #[test]
    fn what_ends_after_the_queue_was_cleared_is_not_put_back() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        let StatusDocument { object, body } = document("a", "x");
        waiting.put(object.clone(), body.clone());
        let taken = waiting.take(now).unwrap();
        waiting.clear();
        waiting.ended(taken, Some(RETRY_PAUSE), now);
        assert_eq!((waiting.documents.len(), waiting.failed.waiting()), (0, 0));
        waiting.put(object, body);
        assert!(waiting.take(now).is_some());
    }
}

//! Status: writes the status documents of objects, on the leader.
//!
//! Owns: which documents are still to be written, their pace, and what a failed write means. Does not
//! own: what a document says (`controller::conditions`), who leads ([`crate::leader`]).
//!
//! Only the latest document of an object is written. A replica that does not lead drops its
//! documents: the one that leads derives the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use controller::names::ObjectKey;
use controller::plan::StatusDocument;
use kube::api::{Patch, PatchParams};
use outage::Outage;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};

use super::watched::{api, describe};

/// Field manager of the documents (server-side apply).
const MANAGER: &str = "postern";
/// Writes in flight.
const CONCURRENCY: usize = 16;
/// Writes per second, so that a start with tens of thousands of objects does not occupy the API
/// server. 40 000 documents take under 4 minutes; those that came last are written first.
const PER_SECOND: u32 = 200;
/// Pause before a failed write is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

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
    /// The objects by turn.
    turns: BTreeMap<u64, ObjectKey>,
    turn: u64,
}

impl Waiting {
    fn put(&mut self, object: ObjectKey, body: Box<str>) {
        self.turn += 1;
        let entry = self.documents.entry(object.clone()).or_insert_with(|| (self.turn, Box::default()));
        entry.1 = body;
        // A document that waits already keeps its turn.
        self.turns.insert(entry.0, object);
    }

    /// The latest one: what changes now matters more than what a start has found.
    fn take(&mut self) -> Option<(ObjectKey, Box<str>)> {
        let (_, object) = self.turns.pop_last()?;
        let (_, body) = self.documents.remove(&object)?;
        Some((object, body))
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
        let mut waiting = self.waiting.lock();
        waiting.documents.clear();
        waiting.turns.clear();
    }

    /// Its numbers.
    pub(super) fn counts(&self) -> StatusCounts {
        StatusCounts {
            waiting: self.waiting.lock().documents.len(),
            written: self.written.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }

    /// Writes documents for ever.
    pub(super) async fn run(self: Arc<Self>, client: kube::Client) {
        let outage = Arc::new(Outage::new("status of objects").with_effect("conditions may be out of date"));
        let slots = Arc::new(Semaphore::new(CONCURRENCY));
        let mut pace = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
        loop {
            let Some((object, body)) = self.waiting.lock().take() else {
                self.changed.notified().await;
                pace.reset();
                continue;
            };
            pace.tick().await;
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            let (queue, client, outage) = (self.clone(), client.clone(), outage.clone());
            tokio::spawn(async move {
                queue.write(&client, object, body, &outage).await;
                drop(slot);
            });
        }
    }

    async fn write(&self, client: &kube::Client, object: ObjectKey, body: Box<str>, outage: &Outage) {
        // It was made by serializing a value.
        let Ok(value) = serde_json::from_str::<Value>(&body) else { return };
        let api = api(client, object.kind, Some(&object.at.namespace));
        let params = PatchParams::apply(MANAGER).force();
        match api.patch_status(&object.at.name, &params, &Patch::Apply(&value)).await {
            Ok(_) => {
                outage.succeeded();
                self.written.fetch_add(1, Relaxed);
            }
            // The object is gone, or changed meanwhile: the watch brings what follows from that.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => outage.succeeded(),
            Err(error) => {
                self.failed.fetch_add(1, Relaxed);
                outage.failed(format!("{object}: {}", describe(&error)));
                tokio::time::sleep(RETRY_PAUSE).await;
                let mut waiting = self.waiting.lock();
                if !waiting.documents.contains_key(&object) {
                    waiting.put(object, body);
                }
                drop(waiting);
                self.changed.notify_one();
            }
        }
    }
}

//! Receivers of the audit log, and how far each has it.
//!
//! Owns: which receivers there are, how each is reached, and the numbers that metrics show. Does not
//! own: delivery ([`crate::audit_delivery`]), positions (`store::audit_receivers`).

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use auth::time::Timestamp;
use outage::Outage;
use parking_lot::Mutex;
use store::{Store, StoreError, audit_receivers::RegisterAuditReceiver};

use crate::receivers::Bearer;

/// A receiver of the audit log.
#[derive(Debug, Clone)]
pub struct AuditReceiver {
    /// Name of the receiver, also its key in the store.
    pub name: String,
    /// Where entries go.
    pub destination: AuditDestination,
}

/// Destination of entries.
#[derive(Debug, Clone)]
pub enum AuditDestination {
    /// Lines of JSON at the end of a file.
    File(PathBuf),
    /// POST requests with several entries each.
    Endpoint {
        /// URL of the receiver.
        url: String,
        /// Secret with which the provider authenticates to the receiver.
        bearer: Bearer,
        /// Form of the body.
        format: AuditFormat,
    },
}

/// Form of several entries in one body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditFormat {
    /// One JSON object per line (`application/x-ndjson`).
    JsonLines,
    /// One JSON array (`application/json`).
    JsonArray,
}

/// State of one receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSample {
    /// Name of the receiver.
    pub receiver: String,
    /// Number of entries that it does not have yet; `None`: not known yet.
    pub lag: Option<u64>,
    /// Number of entries that this process has delivered.
    pub delivered: u64,
    /// Number of attempts of this process that failed and are repeated.
    pub failed: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Numbers {
    lag: Option<u64>,
    delivered: u64,
    failed: u64,
}

/// All receivers, with their numbers.
#[derive(Debug)]
pub(crate) struct AuditReceivers {
    pub(crate) all: Vec<Arc<AuditReceiver>>,
    numbers: Mutex<BTreeMap<String, Numbers>>,
    /// Outages of the receivers, by name.
    outages: BTreeMap<String, Outage>,
}

impl AuditReceivers {
    pub(crate) fn new(all: Vec<AuditReceiver>) -> Self {
        let outage = |receiver: &AuditReceiver| {
            let outage = Outage::new(format!("audit receiver {}", receiver.name));
            (receiver.name.clone(), outage.with_effect("entries are kept and delivered later"))
        };
        let outages = all.iter().map(outage).collect();
        Self { all: all.into_iter().map(Arc::new).collect(), numbers: Mutex::default(), outages }
    }

    /// Registers the receivers in the store; each receives entries that are written from then on.
    pub(crate) async fn register(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        for receiver in &self.all {
            store.write(RegisterAuditReceiver { receiver: receiver.name.clone(), now }).await?;
        }
        Ok(())
    }

    /// Records how many entries a receiver does not have yet.
    pub(crate) fn record_lag(&self, receiver: &str, lag: u64) {
        self.numbers.lock().entry(receiver.to_owned()).or_default().lag = Some(lag);
    }

    /// Records the result of an attempt: the number of delivered entries, or the reason of the
    /// failure.
    pub(crate) fn record_attempt(&self, receiver: &str, result: &Result<u64, String>) {
        if let Some(outage) = self.outages.get(receiver) {
            outage.record(result);
        }
        let mut numbers = self.numbers.lock();
        let numbers = numbers.entry(receiver.to_owned()).or_default();
        match result {
            Ok(entries) => numbers.delivered += entries,
            Err(_) => numbers.failed += 1,
        }
    }

    pub(crate) fn samples(&self) -> Vec<AuditSample> {
        let numbers = self.numbers.lock();
        let sample = |receiver: &Arc<AuditReceiver>| {
            let Numbers { lag, delivered, failed } = numbers.get(&receiver.name).copied().unwrap_or_default();
            AuditSample { receiver: receiver.name.clone(), lag, delivered, failed }
        };
        self.all.iter().map(sample).collect()
    }
}

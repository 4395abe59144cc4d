//! Outages of clients that receive back-channel logout: one log line when a client fails, one when
//! it is back.

use std::{collections::BTreeMap, sync::Arc};

use outage::{CALM, Outage};
use parking_lot::Mutex;

/// Outage of each client, by its identifier.
#[derive(Debug, Default)]
pub(crate) struct Outages(Mutex<BTreeMap<String, Arc<Outage>>>);

impl Outages {
    pub(crate) fn of(&self, client: &str) -> Arc<Outage> {
        let mut all = self.0.lock();
        if let Some(outage) = all.get(client) {
            return outage.clone();
        }
        let outage = Outage::of(format!("back-channel logout of client {client}"))
            .with_effect("logouts are delivered later")
            .with_calm(CALM);
        all.entry(client.to_owned()).or_insert_with(|| Arc::new(outage)).clone()
    }
}

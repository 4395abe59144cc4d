//! Outages of clients that receive back-channel logout: one log line when a client fails, one when
//! it is back.

use std::{collections::BTreeMap, sync::Arc};

use outage::{Outage, RECOVERY_PERIOD};
use parking_lot::Mutex;

/// Outage of each client, by its identifier.
#[derive(Debug, Default)]
pub(crate) struct Outages(Mutex<BTreeMap<String, Arc<Outage>>>);

impl Outages {
    pub(crate) fn for_client(&self, client: &str) -> Arc<Outage> {
        let mut all = self.0.lock();
        if let Some(outage) = all.get(client) {
            return outage.clone();
        }
        let outage = Outage::new(format!("back-channel logout of client {client}"))
            .with_effect("logouts are delivered later")
            .with_recovery_period(RECOVERY_PERIOD);
        all.entry(client.to_owned()).or_insert_with(|| Arc::new(outage)).clone()
    }
}

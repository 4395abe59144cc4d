//! Maintenance: the periodic work of a provider.
//!
//! Owns: the schedule, and the log lines when one of the tasks begins to fail and when it succeeds
//! again. The store itself reports an unavailable database.
//!
//! Does not own: the tasks ([`crate::keys`], [`crate::logout`], [`crate::signals`], the store's
//! sweep). Every node runs all tasks; the store ensures that work happens once where it must.

use std::{sync::Arc, time::Duration};

use outage::Outage;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{keys::KeyError, provider::Provider};

/// How often the key ring is read: far more often than [`crate::keys::LEAD`], so that every node
/// publishes a key long before any node signs with it.
const KEY_READ_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest time between two key reads that revocations trigger: each may have revoked a key.
const MIN_KEY_READ_INTERVAL: Duration = Duration::from_millis(100);
/// How often it is checked whether a key is due for rotation.
const ROTATION_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// How often the queues of deliveries are read.
const DELIVERY_INTERVAL: Duration = Duration::from_millis(500);
/// How often expired rows are deleted.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);
/// How long events of the revocation log are kept.
const LOG_RETENTION: Duration = Duration::from_hours(48);

/// Runs all periodic work until the future is dropped.
pub async fn maintain(provider: Arc<Provider>) {
    let every = |period| {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let (mut keys, mut rotation) = (every(KEY_READ_INTERVAL), every(ROTATION_CHECK_INTERVAL));
    let (logout_provider, mut deliveries) = (provider.clone(), every(DELIVERY_INTERVAL));
    let deliver_logouts = async move {
        let duty = Outage::new("delivery of logouts");
        loop {
            deliveries.tick().await;
            report(&duty, &crate::logout::deliver(&logout_provider).await.map_err(KeyError::from));
        }
    };
    let (event_provider, mut events) = (provider.clone(), every(DELIVERY_INTERVAL));
    let deliver_events = async move {
        let duty = Outage::new("delivery of security events");
        loop {
            events.tick().await;
            report(&duty, &crate::signals::push::deliver(&event_provider).await.map_err(KeyError::from));
        }
    };
    let (old, mut sweep) = (provider.clone(), every(SWEEP_INTERVAL));
    let clean = async move {
        let duty = Outage::new("deletion of expired rows");
        loop {
            sweep.tick().await;
            old.logins().sweep(old.now());
            let swept = old.store().delete_expired(old.now(), LOG_RETENTION).await;
            if let Ok(swept) = &swept {
                tracing::debug!(rows = swept.expired, events = swept.events, "expired rows deleted");
            }
            report(&duty, &swept.map_err(KeyError::from));
        }
    };
    let registered = provider.clone();
    let note = async move {
        match registered.clients().ignored_settings(registered.store()).await {
            Ok(lines) => {
                for line in lines {
                    tracing::warn!("{line}");
                }
            }
            Err(error) => tracing::debug!(%error, "reading stored clients failed"),
        }
    };
    let others = async move {
        let (reading, rotating) = (Outage::new("signing keys"), Outage::new("rotation of signing keys"));
        loop {
            tokio::select! {
                _ = keys.tick() => report(&reading, &provider.keys().refresh(provider.key_access()).await),
                () = provider.key_refresh_requested() => {
                    report(&reading, &provider.keys().refresh(provider.key_access()).await);
                    // A burst of revocations triggers one read.
                    sleep(MIN_KEY_READ_INTERVAL).await;
                }
                _ = rotation.tick() => {
                    let period = provider.lifetimes().signing_key;
                    report(&rotating, &provider.keys().rotate_due(provider.key_access(), period, provider.now()).await);
                }
            }
        }
    };
    // Concurrent, so that neither a slow client nor a million expired rows delay the reading of
    // keys.
    tokio::join!(note, deliver_logouts, deliver_events, clean, others);
}

fn report<T>(duty: &Outage, done: &Result<T, KeyError>) {
    match done {
        Err(KeyError::Store(error)) if error.is_outage() => {
            tracing::debug!(%error, "maintenance postponed, store unavailable");
        }
        done => duty.record(done),
    }
}

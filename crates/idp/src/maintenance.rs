//! Maintenance: the periodic work of a provider.
//!
//! Owns: the schedule, and the log lines when one of the tasks begins to fail and when it succeeds
//! again. The store itself reports an unavailable database.
//!
//! Does not own: the tasks ([`crate::keys`], [`crate::logout`], [`crate::signals`],
//! [`crate::audit_delivery`], [`crate::audit_retention`], [`crate::mail_delivery`], the store's
//! sweep). Every node runs all tasks; the store ensures that work happens once where it must.

use std::{sync::Arc, time::Duration};

use outage::Outage;
use store::StoreError;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use crate::{keys::KeyError, logout::Deliveries, provider::Provider};

/// How often the key ring is read: far more often than [`crate::keys::LEAD`], so that every node
/// publishes a key long before any node signs with it.
const KEY_READ_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest time between two key reads that revocations trigger.
const MIN_KEY_READ_INTERVAL: Duration = Duration::from_millis(100);
/// How often it is checked whether a key is due for rotation.
const ROTATION_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// How often the queues of deliveries are read.
const DELIVERY_INTERVAL: Duration = Duration::from_millis(500);
/// How often failed sign-ins and refused grants are written to the audit log.
const FAILURE_INTERVAL: Duration = Duration::from_secs(1);
/// How often expired rows are deleted.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);
/// How long events of the revocation log are kept.
const LOG_RETENTION: Duration = Duration::from_hours(48);

/// Runs all periodic work until the future is dropped.
pub async fn maintain(provider: Arc<Provider>) {
    let (mut keys, mut rotation) = (every(KEY_READ_INTERVAL), every(ROTATION_CHECK_INTERVAL));
    let of = || provider.clone();
    let deliver_logouts = deliver_logouts(of());
    let deliver_events = repeat("delivery of security events", DELIVERY_INTERVAL, of(), |of| async move {
        crate::signals::push::deliver(&of).await
    });
    let deliver_audit = repeat("delivery of the audit log", DELIVERY_INTERVAL, of(), |of| async move {
        crate::audit_delivery::deliver(&of).await
    });
    let deliver_mails = repeat("delivery of mails", DELIVERY_INTERVAL, of(), |of| async move {
        crate::mail_delivery::deliver(&of).await
    });
    let write_failures =
        repeat("audit of failed sign-ins and grants", FAILURE_INTERVAL, of(), |of| async move {
            of.write_failures(false).await
        });
    let (old, mut sweep) = (provider.clone(), every(SWEEP_INTERVAL));
    let clean = async move {
        let (duty, retention) = (Outage::new("deletion of expired rows"), audit_retention_outage());
        loop {
            sweep.tick().await;
            old.logins().sweep(old.now());
            match crate::audit_retention::expire(&old).await {
                Ok(expired) => retention.record(&expired),
                Err(error) => report(&retention, &Err::<(), _>(KeyError::from(error))),
            }
            let swept = old.store().delete_expired(old.now(), LOG_RETENTION).await;
            if let Ok(swept) = &swept {
                let (rows, events, audit_entries) = (swept.expired, swept.events, swept.audit_entries);
                tracing::debug!(rows, events, audit_entries, "expired rows deleted");
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
    tokio::join!(
        note,
        deliver_logouts,
        deliver_events,
        deliver_mails,
        write_failures,
        deliver_audit,
        clean,
        others
    );
}

/// Delivers logouts again and again. Those to a client that does not answer may be under way for
/// longer than one run.
async fn deliver_logouts(provider: Arc<Provider>) {
    let (duty, mut ticks) = (Outage::new("delivery of logouts"), every(DELIVERY_INTERVAL));
    let mut deliveries = Deliveries::default();
    loop {
        ticks.tick().await;
        report(&duty, &deliveries.run(&provider).await.map_err(KeyError::from));
    }
}

fn audit_retention_outage() -> Outage {
    Outage::new("expiry of the audit log").with_effect("its entries are kept")
}

fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Runs a task again and again, with this time between two runs.
async fn repeat<T, Work>(
    duty: &'static str,
    period: Duration,
    provider: Arc<Provider>,
    task: impl Fn(Arc<Provider>) -> Work,
) where
    Work: Future<Output = Result<T, StoreError>>,
{
    let (duty, mut ticks) = (Outage::new(duty), every(period));
    loop {
        ticks.tick().await;
        report(&duty, &task(provider.clone()).await.map_err(KeyError::from));
    }
}

fn report<T>(duty: &Outage, done: &Result<T, KeyError>) {
    match done {
        Err(KeyError::Store(error)) if error.is_outage() => {
            tracing::debug!(%error, "maintenance postponed, store unavailable");
        }
        done => duty.record(done),
    }
}

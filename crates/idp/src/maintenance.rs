//! What a provider does by itself, from time to time.
//!
//! Owns: when, and what is said when one of these cannot be done: a line when it begins to fail and one when it is done again. A database
//! that is away is the store's to tell of. Does not own: what ([`crate::keys`], [`crate::logout`], [`crate::signals`], the store's sweep). Every node does all of it: what must
//! happen once is decided by the store.

use std::{sync::Arc, time::Duration};

use outage::Outage;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{keys::KeyError, provider::Provider};

/// How often the keys are read: far more often than [`crate::keys::LEAD`], so that every node publishes a key long before any
/// node signs with it.
const KEYS: Duration = Duration::from_secs(5);
/// After a revocation that may have been of a key, for so long no other is a reason to read them.
const HURRY: Duration = Duration::from_millis(100);
/// How often somebody looks whether a key has signed for long enough.
const ROTATION: Duration = Duration::from_mins(1);
/// How often clients that have to hear something are looked for.
const DELIVERIES: Duration = Duration::from_millis(500);
/// How often what is over is deleted.
const SWEEP: Duration = Duration::from_mins(1);
/// How long the log of revocations is kept.
const LOG_KEPT: Duration = Duration::from_hours(48);

/// Tends the provider until the future is dropped.
pub async fn maintain(provider: Arc<Provider>) {
    let every = |period| {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let (mut keys, mut rotation) = (every(KEYS), every(ROTATION));
    let (told, mut deliveries) = (provider.clone(), every(DELIVERIES));
    let deliver = async move {
        let duty = Outage::of("delivery of logouts");
        loop {
            deliveries.tick().await;
            report(&duty, &crate::logout::deliver(&told).await.map_err(KeyError::from));
        }
    };
    let (others_told, mut events) = (provider.clone(), every(DELIVERIES));
    let tell = async move {
        let duty = Outage::of("delivery of security events");
        loop {
            events.tick().await;
            report(&duty, &crate::signals::push::deliver(&others_told).await.map_err(KeyError::from));
        }
    };
    let (old, mut sweep) = (provider.clone(), every(SWEEP));
    let clean = async move {
        let duty = Outage::of("deletion of expired rows");
        loop {
            sweep.tick().await;
            old.logins().sweep(old.now());
            let swept = old.store().sweep(old.now(), LOG_KEPT).await;
            if let Ok(swept) = &swept {
                tracing::debug!(rows = swept.expired, events = swept.events, "swept");
            }
            report(&duty, &swept.map_err(KeyError::from));
        }
    };
    let registered = provider.clone();
    let note = async move {
        match registered.clients().left_out(registered.store()).await {
            Ok(lines) => {
                for line in lines {
                    tracing::warn!("{line}");
                }
            }
            Err(error) => tracing::debug!(%error, "stored clients were not looked at"),
        }
    };
    let others = async move {
        let (reading, rotating) = (Outage::of("signing keys"), Outage::of("rotation of signing keys"));
        loop {
            tokio::select! {
                _ = keys.tick() => report(&reading, &provider.keys().refresh(provider.place()).await),
                () = provider.hurried() => {
                    report(&reading, &provider.keys().refresh(provider.place()).await);
                    // Many revocations at once are one reason to look.
                    sleep(HURRY).await;
                }
                _ = rotation.tick() => {
                    let period = provider.lifetimes().signing_key;
                    report(&rotating, &provider.keys().rotate_due(provider.place(), period, provider.now()).await);
                }
            }
        }
    };
    // neither a client that takes its time nor a million rows that are over may keep the keys from being read
    tokio::join!(note, deliver, tell, clean, others);
}

fn report<T>(duty: &Outage, done: &Result<T, KeyError>) {
    match done {
        Err(KeyError::Store(error)) if error.is_outage() => tracing::debug!(%error, "not done now"),
        done => duty.note(done),
    }
}

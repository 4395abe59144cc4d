//! What a provider does by itself, from time to time.
//!
//! Owns: when. Does not own: what ([`crate::keys`], [`crate::logout`], [`crate::signals`], the store's sweep). Every node does all of it: what must
//! happen once is decided by the store.

use std::{sync::Arc, time::Duration};

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
pub async fn tend(provider: Arc<Provider>) {
    let every = |period| {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let (mut keys, mut rotation) = (every(KEYS), every(ROTATION));
    let (told, mut deliveries) = (provider.clone(), every(DELIVERIES));
    let deliver = async move {
        loop {
            deliveries.tick().await;
            if let Err(error) = crate::logout::deliver(&told).await {
                tracing::warn!(%error, "logouts cannot be delivered now");
            }
        }
    };
    let (others_told, mut events) = (provider.clone(), every(DELIVERIES));
    let tell = async move {
        loop {
            events.tick().await;
            if let Err(error) = crate::signals::push::deliver(&others_told).await {
                tracing::warn!(%error, "security events cannot be delivered now");
            }
        }
    };
    let (old, mut sweep) = (provider.clone(), every(SWEEP));
    let clean = async move {
        loop {
            sweep.tick().await;
            old.logins().sweep(old.now());
            match old.store().sweep(old.now(), LOG_KEPT).await {
                Ok(swept) => tracing::debug!(rows = swept.expired, events = swept.events, "swept"),
                Err(error) => tracing::warn!(%error, "what is over stays in the database for now"),
            }
        }
    };
    let others = async move {
        loop {
            tokio::select! {
                _ = keys.tick() => report("read", provider.keys().refresh(provider.place()).await),
                () = provider.hurried() => {
                    report("read", provider.keys().refresh(provider.place()).await);
                    // Many revocations at once are one reason to look.
                    sleep(HURRY).await;
                }
                _ = rotation.tick() => {
                    let period = provider.lifetimes().signing_key;
                    report("rotated", provider.keys().rotate_due(provider.place(), period, provider.now()).await);
                }
            }
        }
    };
    // neither a client that takes its time nor a million rows that are over may keep the keys from being read
    tokio::join!(deliver, tell, clean, others);
}

fn report(what: &str, result: Result<(), KeyError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "the signing keys could not be {what}");
    }
}

//! Push delivery of security events (RFC 8935).
//!
//! Owns: the choice of the node that delivers, the order of events, retries. Does not own: the
//! receivers and the events they want ([`crate::receivers::Receivers`]), the tokens
//! ([`super::set`]).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use store::{
    StoreError,
    security_events::{OccurrenceRow, ReleaseReceiver, TakeReceiver, TakenReceiver},
};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use super::set;
use crate::provider::{PostRequest, Provider};
use crate::receivers::{Delivery, MAX_EVENT_AGE, Receiver};

/// How long one node holds a receiver.
const HOLD_TIME: Duration = Duration::from_mins(1);
/// How long of that time it starts deliveries; a delivery in progress then ends before the hold
/// does.
const SEND_TIME: Duration = Duration::from_secs(30);
/// Most events in one run.
const BATCH: u32 = 50;
/// Pause after the first failure; doubled by each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest pause between attempts.
const LAST_RETRY: Duration = Duration::from_mins(5);

/// Delivers pending events to all push receivers.
pub(crate) async fn deliver(provider: &Arc<Provider>) -> Result<(), StoreError> {
    let mut under_way = JoinSet::new();
    for receiver in &provider.receivers().all {
        if matches!(receiver.delivery, Delivery::Push { .. }) {
            let (provider, receiver) = (provider.clone(), receiver.clone());
            under_way.spawn(async move { deliver_to(&provider, &receiver).await });
        }
    }
    under_way.join_all().await.into_iter().collect()
}

async fn deliver_to(provider: &Provider, receiver: &Receiver) -> Result<(), StoreError> {
    let (store, name) = (provider.store(), &receiver.name);
    if !store.is_delivery_due(name, provider.now()).await? {
        return Ok(());
    }
    let take = TakeReceiver { receiver: name.clone(), lease: HOLD_TIME, now: provider.now() };
    let Some(taken) = store.write(take).await? else { return Ok(()) };
    let (finished_seq, has_succeeded) = deliver_pending(provider, receiver, taken).await?;
    let failures = match (has_succeeded, finished_seq > taken.seq) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => taken.failures.saturating_add(1),
    };
    let pause = match failures {
        0 => Duration::ZERO,
        failures => (FIRST_RETRY * 2_u32.saturating_pow((failures - 1).min(20))).min(LAST_RETRY),
    };
    let due_at = provider.now().plus(pause);
    store
        .write(ReleaseReceiver {
            receiver: name.clone(),
            from: taken.seq,
            to: finished_seq,
            failures,
            due_at,
        })
        .await?;
    Ok(())
}

/// Delivers pending events to one receiver. Returns the last finished sequence number, and whether
/// delivery worked.
async fn deliver_pending(
    provider: &Provider,
    receiver: &Receiver,
    taken: TakenReceiver,
) -> Result<(u64, bool), StoreError> {
    let epoch = provider.store().head().await?.epoch;
    let (began, mut finished_seq) = (Instant::now(), taken.seq);
    let (mut given_up, mut has_succeeded) = (0, true);
    for event in provider.store().occurred(taken.seq, BATCH).await? {
        if began.elapsed() >= SEND_TIME {
            break;
        }
        if receiver.wants(event.occurrence.kind) {
            if event.at.plus(MAX_EVENT_AGE) <= provider.now() {
                given_up += 1;
            } else if !deliver_one(provider, receiver, &event, (&set::jti(epoch, event.seq), taken.failures))
                .await
            {
                has_succeeded = false;
                break;
            }
        }
        finished_seq = event.seq;
    }
    provider.receivers().record_dropped(&receiver.name, given_up);
    Ok((finished_seq, has_succeeded))
}

/// Delivers one event. Returns whether it is finished: delivered, or refused permanently.
async fn deliver_one(
    provider: &Provider,
    receiver: &Receiver,
    event: &OccurrenceRow,
    (jti, attempt): (&str, u32),
) -> bool {
    let Delivery::Push { endpoint, bearer } = &receiver.delivery else { return true };
    let body = match set::mint(provider, receiver, event, jti) {
        Ok(body) => body,
        Err(fault) => {
            tracing::error!(%fault, receiver = receiver.name, "signing security event token failed");
            return false;
        }
    };
    let post = PostRequest {
        url: endpoint.clone(),
        content_type: "application/secevent+jwt",
        authorization: Some(Zeroizing::new(format!("Bearer {}", *bearer.0))),
        body,
    };
    let result = provider.outbound().post(post).await;
    let (name, kind) = (&receiver.name, event.occurrence.kind.as_str());
    let (outcome, is_done) = match result {
        Ok(200..=299) => {
            provider.receivers().record_push(name, Ok(()));
            tracing::info!(receiver = name, kind, jti, "security event delivered");
            ("delivered", true)
        }
        // The receiver refused the token and would refuse it again.
        Ok(400) => {
            provider.receivers().record_push(name, Ok(()));
            tracing::warn!(receiver = name, kind, jti, "receiver refused security event with status 400");
            ("refused", true)
        }
        Ok(status) => {
            provider
                .receivers()
                .record_push(name, Err(&format_args!("responded with status {status} at attempt {attempt}")));
            ("failed", false)
        }
        Err(why) => {
            provider.receivers().record_push(name, Err(&why));
            ("failed", false)
        }
    };
    provider.receivers().record_outcome(name, outcome, 1);
    is_done
}

//! Back-channel logout: tells clients that a session ended (OpenID Connect Back-Channel Logout
//! 1.0).
//!
//! Owns: logout tokens and the delivery of queued notifications. Does not own: the connection
//! ([`crate::provider::OutboundClient`]) and the queue. The store fills the queue in the
//! transaction that ends the session, so no notification is lost and no request waits for a
//! delivery.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::Serialize;
use serde_json::{Map, Value, json};
use store::{
    StoreError,
    deliveries::{Delivery, RemoveDelivery, TakeDueDeliveries},
};
use tokio::{
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use crate::{
    client::Client,
    oauth::{error::OAuthFault, form::escape},
    provider::{PostRequest, Provider},
};

/// Time after the first attempt until another node may try; doubles with each attempt.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Notifications that are taken from the queue at once, so the most that one client gets
/// concurrently.
const BATCH: u32 = 16;
/// With this many clients being notified, no more are begun.
const MAX_CLIENTS: usize = 32;
/// How long to wait for clients before the queue is read again.
const ANSWER_WAIT: Duration = Duration::from_millis(500);
/// Lifetime of a logout token: short, because each attempt makes a new one (§2.4).
const LIFETIME: Duration = Duration::from_mins(2);
const TYP: &str = "logout+jwt";
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

#[derive(Serialize)]
struct LogoutToken<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: String,
    sid: String,
    iat: u64,
    exp: u64,
    jti: String,
    events: Map<String, Value>,
}

/// Notifications under way. A client gets the next ones when it has answered all before, so one
/// that does not answer delays no other.
#[derive(Default)]
pub(crate) struct Deliveries {
    /// One task for each client.
    under_way: JoinSet<()>,
    clients: Vec<(String, AbortHandle)>,
}

impl Deliveries {
    /// Delivers notifications that are due. Returns when there are no more, or only such to clients
    /// that have not answered yet.
    pub(crate) async fn run(&mut self, provider: &Arc<Provider>) -> Result<(), StoreError> {
        loop {
            if self.clients.len() < MAX_CLIENTS && self.begin_due(provider).await? > 0 {
                continue;
            }
            match timeout(ANSWER_WAIT, self.under_way.join_next()).await {
                // If the task panicked, its notifications are still queued.
                Ok(Some(_)) => self.clients.retain(|(_, task)| !task.is_finished()),
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }

    /// Begins the delivery of notifications that are due to clients without any under way. Returns
    /// how many were taken from the queue.
    async fn begin_due(&mut self, provider: &Arc<Provider>) -> Result<usize, StoreError> {
        let except = self.clients.iter().map(|(client, _)| client.clone()).collect();
        let take = TakeDueDeliveries { limit: BATCH, except, retry_after: RETRY_DELAY, now: provider.now() };
        let due = provider.store().write(take).await?;
        let taken = due.len();
        let mut by_client: BTreeMap<String, Vec<Delivery>> = BTreeMap::new();
        for delivery in due {
            by_client.entry(delivery.client_id.clone()).or_default().push(delivery);
        }
        for (client, deliveries) in by_client {
            let task = self.under_way.spawn(deliver_all(provider.clone(), deliveries));
            self.clients.push((client, task));
        }
        Ok(taken)
    }
}

/// Delivers the notifications of one client concurrently.
async fn deliver_all(provider: Arc<Provider>, deliveries: Vec<Delivery>) {
    let mut under_way = JoinSet::new();
    for delivery in deliveries {
        let provider = provider.clone();
        under_way.spawn(async move {
            if deliver_one(&provider, &delivery).await {
                match provider.store().write(RemoveDelivery { id: delivery.id }).await {
                    Ok(()) => {}
                    Err(error) if error.is_outage() => {
                        tracing::debug!(%error, "logout notification delivered but still queued, it will be sent again");
                    }
                    Err(error) => {
                        tracing::warn!(%error, "logout notification delivered but still queued, it will be sent again");
                    }
                }
            }
        });
    }
    under_way.join_all().await;
}

/// Delivers one notification. Returns whether it is finished: accepted or refused by the client, or
/// the client no longer exists or has no logout URI.
async fn deliver_one(provider: &Provider, delivery: &Delivery) -> bool {
    let client = match provider.clients().find(provider.store(), &delivery.client_id).await {
        Ok(client) => client,
        Err(error) if error.is_outage() => {
            tracing::debug!(%error, "logout delivery postponed, client lookup failed");
            return false;
        }
        Err(error) => {
            tracing::warn!(%error, "logout delivery postponed, client lookup failed");
            return false;
        }
    };
    let Some(client) = client else { return true };
    let Some(uri) = client.backchannel_logout_uri.as_deref() else { return true };
    let token = match logout_token(provider, &client, delivery) {
        Ok(token) => token,
        Err(fault) => {
            tracing::error!(%fault, client = client.id(), "signing logout token failed");
            return false;
        }
    };
    let mut body = String::from("logout_token=");
    escape(&token, &mut body);
    let response = provider.outbound().post(PostRequest::form(uri, body)).await;
    let (client, attempts) = (client.id(), delivery.attempts);
    let outage = provider.logout_outages().for_client(client);
    match response {
        Ok(200..=299) => {
            outage.succeeded();
            tracing::info!(client, sid = delivery.sid, tries = attempts, "logout delivered to client");
            true
        }
        // The client refused the token and would refuse it again.
        Ok(400) => {
            outage.succeeded();
            tracing::warn!(client, sid = delivery.sid, "client refused logout token with status 400");
            true
        }
        Ok(status) => {
            outage.failed(format_args!("responded with status {status} at attempt {attempts}"));
            false
        }
        Err(why) => {
            outage.failed(why);
            false
        }
    }
}

fn logout_token(provider: &Provider, client: &Client, delivery: &Delivery) -> Result<String, OAuthFault> {
    let iat = provider.now().as_secs();
    let claims = LogoutToken {
        iss: provider.issuer().as_str(),
        aud: client.id(),
        sub: client.subject(provider.secrets(), &delivery.user_id),
        sid: client.sid(provider.secrets(), &delivery.sid),
        iat,
        exp: iat + LIFETIME.as_secs(),
        jti: provider.draw_id()?,
        events: Map::from_iter([(EVENT.to_owned(), json!({}))]),
    };
    provider.sign(client.id_token_algorithm, TYP, &claims)
}

//! Back-channel logout: tells clients that a session ended (OpenID Connect Back-Channel Logout
//! 1.0).
//!
//! Owns: logout tokens and the delivery of queued notifications. Does not own: the connection
//! ([`crate::provider::OutboundClient`]) and the queue. The store fills the queue in the
//! transaction that ends the session, so no notification is lost and no request waits for a
//! delivery.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use serde_json::{Map, Value, json};
use store::{
    StoreError,
    deliveries::{Delivery, RemoveDelivery, TakeDueDeliveries},
};
use tokio::task::JoinSet;

use crate::{
    client::Client,
    oauth::{error::OAuthFault, form::escape},
    provider::{PostRequest, Provider},
};

/// Time after the first attempt until another node may try; doubles with each attempt.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Notifications that are taken from the queue and delivered concurrently.
const BATCH: u32 = 16;
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

/// Delivers notifications that are due. Returns how many were taken from the queue.
pub(crate) async fn deliver(provider: &Arc<Provider>) -> Result<usize, StoreError> {
    let take = TakeDueDeliveries { limit: BATCH, retry_after: RETRY_DELAY, now: provider.now() };
    let due = provider.store().write(take).await?;
    let taken = due.len();
    let mut under_way = JoinSet::new();
    for delivery in due {
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
    Ok(taken)
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

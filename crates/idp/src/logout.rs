//! Telling clients that a session has ended (OpenID Connect Back-Channel Logout 1.0).
//!
//! Owns: logout tokens, and working off what is to be delivered. Does not own: the queue (the store writes it in the
//! transaction that ends the session, so nothing is forgotten and nobody waits), the connection ([`crate::provider::Outbound`]).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use outage::{CALM, Outage};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value, json};
use store::{
    StoreError,
    deliveries::{Delivered, Delivery, TakeDue},
};
use tokio::task::JoinSet;

use crate::{
    client::Client,
    oauth::{error::OAuthFault, form::escape},
    provider::{Post, Provider},
};

/// How long a first try may take before another node tries; it doubles with each.
const PUT_OFF: Duration = Duration::from_secs(10);
/// Taken, and told at the same time.
const BATCH: u32 = 16;
/// How long a logout token counts: shortly, it is made anew for each try (§2.4).
const LIFETIME: Duration = Duration::from_mins(2);
const TYP: &str = "logout+jwt";
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

#[derive(Serialize)]
struct LogoutToken<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    sid: &'a str,
    iat: u64,
    exp: u64,
    jti: String,
    events: Map<String, Value>,
}

/// Whether each client that is told of logouts can be told.
#[derive(Debug, Default)]
pub(crate) struct Outages(Mutex<BTreeMap<String, Arc<Outage>>>);

impl Outages {
    fn of(&self, client: &str) -> Arc<Outage> {
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

/// Tells what is due; answers how many were taken.
pub(crate) async fn deliver(provider: &Arc<Provider>) -> Result<usize, StoreError> {
    let take = TakeDue { limit: BATCH, put_off: PUT_OFF, now: provider.now() };
    let due = provider.store().write(take).await?;
    let taken = due.len();
    let mut under_way = JoinSet::new();
    for delivery in due {
        let provider = provider.clone();
        under_way.spawn(async move {
            if tell(&provider, &delivery).await {
                match provider.store().write(Delivered { id: delivery.id }).await {
                    Ok(()) => {}
                    Err(error) if error.is_outage() => {
                        tracing::debug!(%error, "a delivered logout is delivered again");
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a delivered logout stays in the queue and is delivered again");
                    }
                }
            }
        });
    }
    under_way.join_all().await;
    Ok(taken)
}

/// Whether a delivery is done with: heard, or nobody is there to hear it.
async fn tell(provider: &Provider, delivery: &Delivery) -> bool {
    let client = match provider.clients().find(provider.store(), &delivery.client_id).await {
        Ok(client) => client,
        Err(error) if error.is_outage() => {
            tracing::debug!(%error, "a logout is delivered later");
            return false;
        }
        Err(error) => {
            tracing::warn!(%error, "a logout is delivered later");
            return false;
        }
    };
    let Some(client) = client else { return true };
    let Some(uri) = client.backchannel_logout_uri.as_deref() else { return true };
    let token = match logout_token(provider, &client, delivery) {
        Ok(token) => token,
        Err(fault) => {
            tracing::error!(%fault, client = client.id(), "no logout token could be made");
            return false;
        }
    };
    let mut body = String::from("logout_token=");
    escape(&token, &mut body);
    let heard = provider.outbound().post(Post::form(uri, body)).await;
    let (client, tries) = (client.id(), delivery.tries);
    let outage = provider.logouts().of(client);
    match heard {
        Ok(200..=299) => {
            outage.succeeded();
            tracing::info!(client, sid = delivery.sid, tries, "client told of a logout");
            true
        }
        // it says that the token is no good: it will say so again
        Ok(400) => {
            outage.succeeded();
            tracing::warn!(client, sid = delivery.sid, "client refused a logout token with status 400");
            true
        }
        Ok(status) => {
            outage.failed(format_args!("it answered {status} at try {tries}"));
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
        sub: &delivery.user_id,
        sid: &delivery.sid,
        iat,
        exp: iat + LIFETIME.as_secs(),
        jti: provider.draw_id()?,
        events: Map::from_iter([(EVENT.to_owned(), json!({}))]),
    };
    provider.sign(client.id_token_algorithm, TYP, &claims)
}

//! Checks `[[provider.event_receiver]]`: who receives the security events of the provider.

use auth::token::security_event::EventKind;
use http_engine::url::Url;
use idp::receivers::{Bearer, Delivery, Receiver};

use super::super::super::fault::KeyPath;
use super::super::super::raw::{self, EventType};
use super::super::{Context, check_unique, events::bearer_tokens};

/// The receivers that have no fault.
pub(super) fn read(raw: &raw::Provider, path: &KeyPath, context: &mut Context<'_>) -> Vec<Receiver> {
    let all = raw.event_receiver.iter().enumerate();
    let all: Vec<(KeyPath, &raw::EventReceiver)> =
        all.map(|(at, one)| (path.key("event_receiver").index(at), one)).collect();
    check_unique(
        all.iter().map(|(path, one)| (path.clone(), &one.name)),
        "event receivers",
        &mut context.faults,
    );
    all.iter().filter_map(|(path, raw)| read_receiver(raw, path, context)).collect()
}

fn read_receiver(raw: &raw::EventReceiver, path: &KeyPath, context: &mut Context<'_>) -> Option<Receiver> {
    if raw.audience.trim().is_empty() {
        let hint = "write what the receiver expects, such as its URL";
        context.faults.add(&path.key("audience"), "the text is empty", hint);
    }
    let spare = match raw.endpoint {
        Some(_) => {
            ("poll_token_file", raw.poll_token_file.is_some(), "the key has no effect: events are pushed")
        }
        None => (
            "endpoint_token_file",
            raw.endpoint_token_file.is_some(),
            "the key has no effect: events are polled",
        ),
    };
    if let (key, true, message) = spare {
        context.faults.add(&path.key(key), message, "remove it, or `endpoint`");
    }
    let delivery = match &raw.endpoint {
        Some(endpoint) => {
            let sound = is_endpoint_valid(endpoint, &path.key("endpoint"), context);
            let bearer = token(raw.endpoint_token_file.as_deref(), "endpoint_token_file", path, context)?;
            sound.then(|| Delivery::Push { endpoint: endpoint.clone(), bearer })?
        }
        None => Delivery::Poll {
            bearer: token(raw.poll_token_file.as_deref(), "poll_token_file", path, context)?,
        },
    };
    let events = raw.events.iter().copied().map(kind).collect();
    Some(Receiver { name: raw.name.0.clone(), audience: raw.audience.clone(), events, delivery })
}

/// The bearer token in a file that the key names.
pub(super) fn token(
    file: Option<&std::path::Path>,
    key: &str,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Bearer> {
    let Some(file) = file else {
        let hint =
            "write the output of openssl rand -base64 32 into a file, and configure it at the receiver";
        context.faults.add(path, format!("missing key `{key}`"), hint);
        return None;
    };
    let first = bearer_tokens(file, &path.key(key), context)?.into_iter().next()?;
    Some(Bearer(first))
}

/// Whether the URL is safe to send events or entries to. Notes the fault otherwise.
pub(super) fn is_endpoint_valid(endpoint: &str, at: &KeyPath, context: &mut Context<'_>) -> bool {
    let hint = "write the URL that receives events, such as \"https://app.example/events\"";
    match Url::parse(endpoint) {
        Ok(url) if url.is_https() || url.is_loopback() => true,
        Ok(_) => {
            let message = "over plain http, an attacker on the network can read the token and the events";
            context.faults.add(at, message, "use https; plain http is only for this machine");
            false
        }
        Err(fault) => {
            context.faults.add(at, fault.to_string(), hint);
            false
        }
    }
}

fn kind(raw: EventType) -> EventKind {
    match raw {
        EventType::SessionRevoked => EventKind::SessionRevoked,
        EventType::CredentialChange => EventKind::CredentialChange,
        EventType::TokenClaimsChange => EventKind::TokenClaimsChange,
        EventType::AccountDisabled => EventKind::AccountDisabled,
        EventType::AccountPurged => EventKind::AccountPurged,
    }
}

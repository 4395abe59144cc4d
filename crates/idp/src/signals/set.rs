//! Security event tokens (RFC 8417).
//!
//! Owns: the claims of a token. Does not own: the receivers, the delivery. A token is created anew
//! for each attempt, with identical claims: its `jti` and times are those of the event. So a
//! receiver can detect duplicates.

use serde::Serialize;
use serde_json::{Map, Value, json};
use store::{
    Epoch,
    security_events::{Occurrence, OccurrenceRow},
};

use crate::receivers::Receiver;
use crate::{oauth::error::OAuthFault, provider::Provider};

const TYP: &str = "secevent+jwt";

/// Claims of a token (RFC 8417 §2.2), with a subject by RFC 9493 and SSF §3.
#[derive(Serialize)]
struct Token<'a> {
    iss: &'a str,
    aud: &'a str,
    jti: &'a str,
    iat: u64,
    sub_id: Value,
    events: Map<String, Value>,
}

/// The `jti` of a token for an event: the epoch and the sequence number in the log.
pub fn jti(epoch: Epoch, seq: u64) -> String {
    use std::fmt::Write as _;
    let mut name = String::with_capacity(40);
    for byte in epoch.0 {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    let _ = write!(name, "-{seq}");
    name
}

/// The sequence number in a `jti`. `None`: another epoch, or not a `jti` of this provider.
pub fn parse_jti(epoch: Epoch, name: &str) -> Option<u64> {
    let (_, seq) = name.rsplit_once('-')?;
    let seq = seq.parse().ok()?;
    (self::jti(epoch, seq) == name).then_some(seq)
}

/// Creates the token for an event and a receiver.
///
/// # Errors
/// [`OAuthFault`] when it cannot be signed.
pub(crate) fn mint(
    provider: &Provider,
    receiver: &Receiver,
    event: &OccurrenceRow,
    jti: &str,
) -> Result<String, OAuthFault> {
    let iss = provider.issuer().as_str();
    let at = event.at.as_secs();
    let uri = event.occurrence.kind.uri().unwrap_or_default();
    let mut payload = json!({ "event_timestamp": at });
    if let Some(kind) = change_type(&event.occurrence) {
        payload["credential_type"] = json!("password");
        payload["change_type"] = json!(kind);
    }
    if event.occurrence.kind == auth::token::security_event::EventKind::TokenClaimsChange {
        // CAEP §3.2: the new claims are left out, because the receiver may have no right to read
        // tokens.
        payload["claims"] = json!({});
    }
    let events = Map::from_iter([(uri, payload)]);
    let sub_id = subject(iss, &event.occurrence);
    let token = Token { iss, aud: &receiver.audience, jti, iat: at, sub_id, events };
    provider.sign(provider.receivers().algorithm, TYP, &token)
}

/// The `change_type` of a credential event (CAEP §3.3).
fn change_type(occurrence: &Occurrence) -> Option<&'static str> {
    (occurrence.kind == auth::token::security_event::EventKind::CredentialChange).then_some("update")
}

/// The subject of an event, as specific as possible.
fn subject(iss: &str, occurrence: &Occurrence) -> Value {
    let user = occurrence.user_id.as_ref().map(|sub| json!({ "format": "iss_sub", "iss": iss, "sub": sub }));
    let opaque = |id: &String| json!({ "format": "opaque", "id": id });
    if let Some(jti) = &occurrence.jti {
        return json!({ "format": "jwt_id", "iss": iss, "jti": jti });
    }
    match (user, &occurrence.sid, &occurrence.client_id, &occurrence.granted_by) {
        (Some(user), Some(sid), ..) => json!({ "format": "complex", "user": user, "session": opaque(sid) }),
        (None, Some(sid), ..) => json!({ "format": "complex", "session": opaque(sid) }),
        (Some(user), None, Some(client), _) => {
            json!({ "format": "complex", "user": user, "application": opaque(client) })
        }
        (Some(user), None, None, _) => user,
        (None, None, _, Some(granted_by)) => opaque(granted_by),
        (None, None, client, None) => opaque(client.as_ref().unwrap_or(&String::new())),
    }
}

#[cfg(test)]
mod tests {
    use auth::token::security_event::EventKind;

    use super::*;

    #[test]
    fn a_name_tells_history_and_number() {
        let (one, other) = (Epoch([1; 16]), Epoch([2; 16]));
        let text = jti(one, 7);
        assert_eq!(text, "01010101010101010101010101010101-7");
        assert_eq!(parse_jti(one, &text), Some(7));
        assert_eq!(parse_jti(other, &text), None);
        for bad in
            ["", "7", "-7", "01010101010101010101010101010101-07", "01010101010101010101010101010101-+7"]
        {
            assert_eq!(parse_jti(one, bad), None, "{bad}");
        }
    }

    #[test]
    fn whom_it_happened_to_is_said_as_narrowly_as_can_be() {
        let of = |fill: fn(&mut Occurrence)| {
            let mut occurrence = Occurrence::new(EventKind::SessionRevoked);
            fill(&mut occurrence);
            subject("https://i", &occurrence).to_string()
        };
        assert_eq!(
            of(|occurrence| occurrence.user_id = Some("u".into())),
            r#"{"format":"iss_sub","iss":"https://i","sub":"u"}"#
        );
        assert_eq!(
            of(|occurrence| occurrence.jti = Some("t".into())),
            r#"{"format":"jwt_id","iss":"https://i","jti":"t"}"#
        );
        assert_eq!(
            of(|occurrence| occurrence.granted_by = Some("g".into())),
            r#"{"format":"opaque","id":"g"}"#
        );
        let session = of(|occurrence| {
            occurrence.user_id = Some("u".into());
            occurrence.sid = Some("s".into());
        });
        assert!(session.contains(r#""session":{"format":"opaque","id":"s"}"#), "{session}");
        let consent = of(|occurrence| {
            occurrence.user_id = Some("u".into());
            occurrence.client_id = Some("c".into());
        });
        assert!(consent.contains(r#""application":{"format":"opaque","id":"c"}"#), "{consent}");
    }
}

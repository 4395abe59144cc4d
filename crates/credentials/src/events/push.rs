//! Event push: receives event tokens over HTTP (RFC 8935), with authentication and the responses.

use std::borrow::Cow;
use std::sync::Arc;

use auth::request::{Canonical, Field};
use auth::token::jwt::MAX_TOKEN_BYTES;
use auth::token_error::TokenError;
use aws_lc_rs::constant_time;
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;
use zeroize::Zeroizing;

use super::{EventRefused, RETRY_AFTER, Receiver, TransmitterState};

/// Maximum bytes of the body: more than a token may have, so that an oversized token gets its own
/// error.
pub const MAX_BODY: usize = 2 * MAX_TOKEN_BYTES;

/// A request that delivers an event token.
pub struct EventPush {
    receiver: Arc<Receiver>,
    transmitter: usize,
    /// Whether its content type is that of an event token.
    is_token: bool,
    /// Whether its bearer token is one of the transmitter's.
    is_known: bool,
}

impl Receiver {
    /// Handles a request to the push endpoint of a transmitter; `None` for other requests.
    /// `Some(Err)` is an immediate response.
    pub fn match_push(
        self: &Arc<Self>,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
    ) -> Option<Result<EventPush, LocalReply>> {
        let here = |one: &TransmitterState| one.config.is_pushed_to(request.authority(), request.path());
        let (transmitter, one) = self.transmitters.iter().enumerate().find(|(_, one)| here(one))?;
        if request.method() != "POST" {
            let mut answer = refusal(
                405,
                "invalid_request",
                "security event tokens must be sent with POST",
                Outcome::Malformed,
            );
            answer.fields.push(("allow".into(), "POST".into()));
            return Some(Err(answer));
        }
        let named = |name: &str| {
            let mut of_name = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            match (of_name.next(), of_name.next()) {
                (Some(field), None) => Some(field.value),
                _ => None,
            }
        };
        let kind = named("content-type").and_then(|kind| kind.split(|byte| *byte == b';').next());
        let is_token =
            kind.is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"application/secevent+jwt"));
        let is_known = named("authorization").is_some_and(|shown| is_one_of(shown, &one.tokens.read()));
        Some(Ok(EventPush { receiver: self.clone(), transmitter, is_token, is_known }))
    }
}

/// Whether a credential is one of these tokens; compares all of them, in constant time.
fn is_one_of(shown: &[u8], tokens: &[Zeroizing<String>]) -> bool {
    let Some((scheme, shown)) = shown.split_at_checked("Bearer ".len()) else { return false };
    let same = |token: &Zeroizing<String>| {
        constant_time::verify_slices_are_equal(shown.trim_ascii(), token.as_bytes()).is_ok()
    };
    let found = tokens.iter().fold(false, |found, token| found | same(token));
    scheme.eq_ignore_ascii_case(b"Bearer ") && found
}

impl EventPush {
    /// Whether the body must be read first: only for an authenticated push of an event token.
    pub fn wants_body(&self) -> bool {
        self.is_known && self.is_token
    }

    /// Returns the response. The processing of the events continues when the request is dropped.
    pub async fn answer(self, body: Vec<u8>) -> LocalReply {
        let Self { receiver, transmitter, is_token, is_known } = self;
        let one = &receiver.transmitters[transmitter];
        if !is_known {
            one.count("unknown", "authentication_failed", 1);
            if one.log_throttle.is_due() {
                let transmitter = one.name();
                tracing::warn!(transmitter, "security event push without a valid bearer token");
            }
            let why = "the bearer token does not match the one configured for this transmitter";
            let mut answer = refusal(401, "authentication_failed", why, Outcome::Unauthenticated);
            answer.fields.push(("www-authenticate".into(), "Bearer".into()));
            return answer;
        }
        if !is_token {
            one.count("unknown", "wrong_content_type", 1);
            let why = "the content type is not application/secevent+jwt";
            return refusal(400, "invalid_request", why, Outcome::Malformed);
        }
        let this = receiver.clone();
        let taking = receiver.surroundings.control.spawn(async move {
            let one = &this.transmitters[transmitter];
            this.receive(one, body.trim_ascii()).await
        });
        match taking.await.unwrap_or(Err(EventRefused::Busy)) {
            Ok(()) => {
                let mut answer = refusal(202, "accepted", "", Outcome::Local);
                answer.fields.retain(|(name, _)| *name == "cache-control");
                answer.body = Cow::Borrowed(b"");
                answer
            }
            Err(refused) if refused.is_retryable() => {
                let why = refused.to_string();
                let mut answer = refusal(503, "temporarily_unavailable", &why, Outcome::AuthUnavailable);
                answer.fields.push(("retry-after".into(), RETRY_AFTER.as_secs().to_string().into()));
                answer
            }
            Err(refused) => {
                let why = match &refused {
                    EventRefused::Token(TokenError::TooLarge) => "the token is longer than 16 KiB".to_owned(),
                    refused => refused.to_string(),
                };
                refusal(400, refused.error(), &why, Outcome::Malformed)
            }
        }
    }
}

/// A response in the form of RFC 8935 §2.3.
fn refusal(status: u16, error: &'static str, why: &str, outcome: Outcome) -> LocalReply {
    let body = serde_json::json!({ "err": error, "description": why });
    LocalReply {
        status,
        code: error,
        outcome,
        fields: vec![
            ("content-type".into(), "application/json".into()),
            ("content-language".into(), "en".into()),
            ("cache-control".into(), "no-store".into()),
        ],
        body: Cow::Owned(body.to_string().into_bytes()),
        close: false,
    }
}

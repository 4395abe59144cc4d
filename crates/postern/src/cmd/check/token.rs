//! Token verification, explained in the order in which it happens.
//!
//! The result is that of the verification itself. Steps before the failed step have succeeded;
//! later steps were not run.

use auth::token::jwt;
use auth::token_error::TokenError;
use credentials::config::KeySource;
use gateway::config::Config;

use crate::cmd::check::outline::Outline;
use crate::cmd::token::decode;

/// Steps of the verification, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Form,
    Issuer,
    Algorithm,
    Key,
    Signature,
    Type,
    Audience,
    Claims,
}

/// The step that returns an error.
fn step_of(error: &TokenError) -> Step {
    match error {
        TokenError::TooLarge
        | TokenError::NotJwt
        | TokenError::Encrypted
        | TokenError::Base64(_)
        | TokenError::Json(..)
        | TokenError::NotAnObject(_)
        | TokenError::HeaderMember(_)
        | TokenError::Unsigned
        | TokenError::Symmetric
        | TokenError::UnsupportedAlgorithm
        | TokenError::Critical
        | TokenError::UnencodedPayload
        | TokenError::KidTooLong => Step::Form,
        TokenError::WrongIssuer => Step::Issuer,
        TokenError::AlgorithmNotAllowed => Step::Algorithm,
        TokenError::UnknownKey | TokenError::AmbiguousKey | TokenError::KeyMismatch => Step::Key,
        TokenError::BadSignature => Step::Signature,
        TokenError::WrongType | TokenError::NotAnAccessToken(_) | TokenError::SenderConstrained
        // Only for tokens of a login.
        | TokenError::NotAnIdToken(_)
        | TokenError::NotALogoutToken(_)
        // Only for security event tokens.
        | TokenError::NotASecurityEvent(_)
        | TokenError::UnsupportedSubject(_) => Step::Type,
        TokenError::WrongAudience => Step::Audience,
        TokenError::Claim(fault) if &*fault.claim == "iss" => Step::Form,
        TokenError::Claim(fault) if &*fault.claim == "aud" => Step::Audience,
        // `Inactive` and `Revoked` occur only for tokens that an authority or issuer is queried
        // about.
        TokenError::Claim(_)
        | TokenError::Expired
        | TokenError::NotYetValid
        | TokenError::InFuture(_)
        | TokenError::WrongNonce
        | TokenError::Inactive
        | TokenError::Revoked => Step::Claims,
    }
}

/// Explains how far the verification came. `verdict`: why the token was refused. `unavailable`: its
/// keys could not be fetched.
pub(super) fn explain_token(
    story: &mut Outline,
    config: &Config,
    token: &[u8],
    verdict: Option<&TokenError>,
    unavailable: bool,
) {
    let failed = verdict.map(step_of);
    let failed = if unavailable { Some(Step::Key) } else { failed };
    for (step, text) in steps(config, token, failed) {
        match failed {
            Some(failed) if step > failed => return,
            Some(failed) if step == failed => {
                let why =
                    verdict.map_or_else(|| "the issuer's keys are not available".into(), ToString::to_string);
                story.step(0, Some(false), format_args!("{text}: {why}"));
            }
            _ => story.step(0, Some(true), text),
        }
    }
}

/// What each step checks, for this token and configuration.
fn steps(config: &Config, token: &[u8], failed: Option<Step>) -> Vec<(Step, String)> {
    let mut steps = vec![(Step::Form, "form: a signed JWT in canonical spelling".to_owned())];
    let Ok(unverified) = jwt::parse(token) else { return steps };
    let (header, claims) = decode(token).unwrap_or_default();
    let show = |value: Option<&serde_json::Value>| value.map_or_else(|| "absent".into(), ToString::to_string);
    let issuer = config.authentication.issuers.iter().find(|i| i.config.issuer() == unverified.issuer());
    let name = issuer.map_or_else(
        || "no such issuer is configured".to_owned(),
        |issuer| format!("configured as {:?}", issuer.config.name()),
    );
    steps.push((Step::Issuer, format!("issuer {:?}, {name}", unverified.issuer())));
    let Some(issuer) = issuer else { return steps };
    let join = |values: Vec<&str>| values.join(", ");
    let allowed = join(issuer.config.algorithms().iter().map(auth::algorithm::Algorithm::as_str).collect());
    steps.push((
        Step::Algorithm,
        format!("algorithm {}, allowed are {allowed}", unverified.algorithm().as_str()),
    ));
    let source = match &issuer.keys {
        KeySource::Discovery => "the issuer's discovery".to_owned(),
        KeySource::Uri(uri) => uri.to_string(),
        KeySource::File(file) => file.display().to_string(),
    };
    let kid = unverified.kid().map_or_else(|| "without a name".into(), |kid| format!("{kid:?}"));
    let from = if failed == Some(Step::Key) { "looked for in" } else { "found in" };
    steps.push((Step::Key, format!("key {kid}, {from} {source}")));
    steps.push((Step::Signature, "signature by that key".into()));
    steps.push((Step::Type, format!("type {}, an access token", show(header.get("typ")))));
    let ours = issuer.config.audiences().iter().map(|a| format!("{a:?}")).collect::<Vec<_>>().join(" or ");
    steps.push((Step::Audience, format!("audience {}, must contain {ours}", show(claims.get("aud")))));
    let times = format!(
        "times and claims: nbf {}, exp {}, clock skew {} s",
        show(claims.get("nbf")),
        show(claims.get("exp")),
        issuer.config.clock_skew().as_secs()
    );
    steps.push((Step::Claims, times));
    steps
}

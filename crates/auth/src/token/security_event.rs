//! Security event tokens (RFC 8417), as transmitters of the `OpenID` Shared Signals Framework 1.0
//! send them, after their signature was verified. They say what happened (CAEP 1.0, RISC 1.0),
//! when, and to whom (RFC 9493).
//!
//! Owns: what distinguishes such a token from all others, the supported events, the names of their
//! subjects. Does not own: the signature ([`super::jwt::Unverified::signed`]), how the token was
//! delivered, what follows from an event.
//!
//! An unsupported event is returned as [`EventKind::Other`]: it is not an error, and there will be
//! more such events. A supported event about an unsupported subject is an error. The transmitter
//! wants that subject to be refused, and would otherwise assume that it is.

use std::time::Duration;

use super::claims::{self, check_audience};
use super::jwt::SignedClaims;
use crate::json::Value;
use crate::mapping::MAX_VALUE_BYTES;
use crate::time::Timestamp;
use crate::token_error::{ClaimError, ClaimFault, TokenError};

/// Most events in one token; RFC 8417 §2.2 uses several for the aspects of one occurrence.
const MAX_EVENTS: usize = 16;
/// Most names of one subject, including aliases.
const MAX_NAMES: usize = 32;

const CAEP: &str = "https://schemas.openid.net/secevent/caep/event-type/";
const RISC: &str = "https://schemas.openid.net/secevent/risc/event-type/";
const SSF: &str = "https://schemas.openid.net/secevent/ssf/event-type/";

/// The expected issuer and audiences of a token.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedEvents<'e> {
    /// The transmitter's exact `iss`.
    pub issuer: &'e str,
    /// Audiences of which a token must name one.
    pub audiences: &'e [Box<str>],
    /// Tolerated difference between the transmitter's clock and this one.
    pub clock_skew: Duration,
}

/// Content of a security event token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityEvents<'t> {
    /// Identifies the token.
    pub jti: &'t str,
    /// When the token was issued.
    pub issued: Timestamp,
    /// The events; at least one.
    pub events: Vec<SecurityEvent<'t>>,
}

/// One event of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityEvent<'t> {
    /// The kind of the event.
    pub kind: EventKind,
    /// When it happened: `event_timestamp`, or `toe`, or when the token was issued.
    pub occurred_at: Timestamp,
    /// The unit in which that time was given.
    pub unit: TimeUnit,
    /// The subjects: each name identifies one that is meant. Empty for events about a stream, and
    /// for unsupported events.
    pub names: Vec<SubjectName<'t>>,
    /// The state that a verification event returns (SSF §8.1.4.1), if it has one.
    pub state: Option<&'t str>,
}

/// The unit of an event's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds, as RFC 8417 requires.
    Seconds,
    /// Milliseconds, contrary to RFC 8417.
    Milliseconds,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// A session, or all sessions of a user, ended (CAEP §3.1; RISC `sessions-revoked`).
    SessionRevoked,
    /// Claims of tokens have changed (CAEP §3.2).
    TokenClaimsChange,
    /// A password or another credential was changed, created or removed (CAEP §3.3).
    CredentialChange,
    /// An account was disabled (RISC §2.3).
    AccountDisabled,
    /// An account was deleted (RISC §2.2).
    AccountPurged,
    /// The transmitter shows that the stream works (SSF §8.1.4).
    Verification,
    /// The transmitter has paused, stopped or resumed the stream (SSF §8.1.5).
    StreamUpdated,
    /// Any other event type, which is not supported.
    Other,
}

impl EventKind {
    /// Every kind of event.
    pub const ALL: [Self; 8] = [
        Self::SessionRevoked,
        Self::TokenClaimsChange,
        Self::CredentialChange,
        Self::AccountDisabled,
        Self::AccountPurged,
        Self::Verification,
        Self::StreamUpdated,
        Self::Other,
    ];

    /// The kind with this event type URI; [`EventKind::Other`] when the type is not supported.
    pub fn from_uri(uri: &str) -> Self {
        let (caep, risc, ssf) = (uri.strip_prefix(CAEP), uri.strip_prefix(RISC), uri.strip_prefix(SSF));
        match (caep, risc, ssf) {
            (Some("session-revoked"), ..) | (_, Some("sessions-revoked"), _) => Self::SessionRevoked,
            (Some("token-claims-change"), ..) => Self::TokenClaimsChange,
            (Some("credential-change"), ..) => Self::CredentialChange,
            (_, Some("account-disabled"), _) => Self::AccountDisabled,
            (_, Some("account-purged"), _) => Self::AccountPurged,
            (.., Some("verification")) => Self::Verification,
            (.., Some("stream-updated")) => Self::StreamUpdated,
            _ => Self::Other,
        }
    }

    /// The URI of its type; `None` for [`EventKind::Other`].
    pub fn uri(self) -> Option<String> {
        let base = match self {
            Self::SessionRevoked | Self::TokenClaimsChange | Self::CredentialChange => CAEP,
            Self::AccountDisabled | Self::AccountPurged => RISC,
            Self::Verification | Self::StreamUpdated => SSF,
            Self::Other => return None,
        };
        Some(format!("{base}{}", self.as_str()))
    }

    /// The last part of the URI, for logs, metrics and configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SessionRevoked => "session-revoked",
            Self::TokenClaimsChange => "token-claims-change",
            Self::CredentialChange => "credential-change",
            Self::AccountDisabled => "account-disabled",
            Self::AccountPurged => "account-purged",
            Self::Verification => "verification",
            Self::StreamUpdated => "stream-updated",
            Self::Other => "other",
        }
    }

    /// Whether events of this kind have a subject.
    fn has_subject(self) -> bool {
        !matches!(self, Self::Verification | Self::StreamUpdated | Self::Other)
    }
}

/// A name of a subject of an event (RFC 9493).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectName<'t> {
    /// A user, by issuer and subject; `None`: the transmitter itself is the issuer.
    User(Option<&'t str>, &'t str),
    /// A session, by its `sid`.
    Session(&'t str),
    /// One token, by its issuer and `jti`.
    Token(&'t str, &'t str),
    /// The user who has this e-mail address.
    Email(&'t str),
    /// An identifier of the transmitter: for a user, a session, or an authorization that granted
    /// tokens.
    Opaque(&'t str),
    /// The consent of a user for an application.
    Consent(&'t str, &'t str),
}

/// Checks a token, except for its signature.
///
/// # Errors
/// [`TokenError`] says what is wrong with it. [`TokenError::UnsupportedSubject`]: the token is
/// valid, but its subject is not supported.
pub fn security_events<'t>(
    signed: SignedClaims<'t>,
    expected: &ExpectedEvents<'_>,
    now: Timestamp,
) -> Result<SecurityEvents<'t>, TokenError> {
    let claims = signed.claims;
    if !signed.typ.is_some_and(|typ| super::is_media_type(typ, "secevent+jwt")) {
        return Err(TokenError::WrongType);
    }
    // A security event token never expires (RFC 8417 §2.2, SSF §4.1.7), and has no `sub` (SSF
    // §4.1.3): a token with these may be meant as something else.
    for mark in ["exp", "sub", "nonce"] {
        if claims.get(mark).is_some() {
            return Err(TokenError::NotASecurityEvent(mark));
        }
    }
    if claims::string(claims, "iss")?.ok_or_else(|| missing("iss"))? != expected.issuer {
        return Err(TokenError::WrongIssuer);
    }
    check_audience(claims, expected.audiences)?;
    let latest = now.plus(expected.clock_skew);
    let issued = claims::issued(claims)?.ok_or_else(|| missing("iat"))?;
    claims::check_issued(Some(issued), now, expected.clock_skew)?;
    let jti = nonempty_text(claims, "jti")?.ok_or_else(|| missing("jti"))?;
    let happened = event_time(claims, "toe")?.unwrap_or(EventTime::of_seconds("iat", issued));
    let events = claims.get("events").and_then(Value::members);
    let events = events.ok_or(TokenError::NotASecurityEvent("events"))?;
    if events.len() == 0 || events.len() > MAX_EVENTS {
        return Err(TokenError::NotASecurityEvent("events"));
    }
    let whom = TokenSubject::of(claims)?;
    let events =
        events.map(|(uri, payload)| read_event(EventKind::from_uri(uri), payload, &whom, happened, latest));
    Ok(SecurityEvents { jti, issued, events: events.collect::<Result<_, _>>()? })
}

/// The subject that the whole token names.
struct TokenSubject<'t> {
    subject: Option<Value<'t>>,
    sid: Option<&'t str>,
}

impl<'t> TokenSubject<'t> {
    fn of(claims: Value<'t>) -> Result<Self, TokenError> {
        Ok(Self { subject: claims.get("sub_id"), sid: nonempty_text(claims, "sid")? })
    }

    /// The names of an event's subjects. Earlier drafts put the subject into the event; if it is in
    /// both places, both are meant.
    fn names(&self, payload: Value<'t>) -> Result<Vec<SubjectName<'t>>, TokenError> {
        let mut names = Vec::new();
        for subject in [self.subject, payload.get("subject")].into_iter().flatten() {
            read_subject(subject, &mut names)?;
        }
        names.extend(self.sid.map(SubjectName::Session));
        match names.len() {
            0 => Err(TokenError::UnsupportedSubject("it has no `sub_id`")),
            1..=MAX_NAMES => Ok(names),
            _ => Err(TokenError::UnsupportedSubject("it has more than 32 names")),
        }
    }
}

fn read_event<'t>(
    kind: EventKind,
    payload: Value<'t>,
    whom: &TokenSubject<'t>,
    happened: EventTime,
    latest: Timestamp,
) -> Result<SecurityEvent<'t>, TokenError> {
    if !payload.is_object() {
        return Err(TokenError::NotASecurityEvent("events"));
    }
    let EventTime { at, unit, claim: said_by } = event_time(payload, "event_timestamp")?.unwrap_or(happened);
    if at > latest {
        return Err(TokenError::InFuture(said_by));
    }
    let names = if kind.has_subject() { whom.names(payload)? } else { Vec::new() };
    let state = if kind == EventKind::Verification { nonempty_text(payload, "state")? } else { None };
    Ok(SecurityEvent { kind, occurred_at: at, unit, names, state })
}

/// When something happened, and how that was given.
#[derive(Clone, Copy)]
struct EventTime {
    at: Timestamp,
    unit: TimeUnit,
    /// The member that gave the time.
    claim: &'static str,
}

impl EventTime {
    fn of_seconds(said_by: &'static str, at: Timestamp) -> Self {
        Self { at, unit: TimeUnit::Seconds, claim: said_by }
    }
}

/// The time of an event. A `NumericDate` is in seconds, but some transmitters send milliseconds. A
/// number that is too large for seconds (after the year 9999) is read as milliseconds, since
/// otherwise the subject would not be refused. In milliseconds such a number is a time after
/// January 1978, so no number is ambiguous.
fn event_time(object: Value<'_>, name: &'static str) -> Result<Option<EventTime>, ClaimError> {
    match claims::date(object, name, f64::floor) {
        Err(ClaimError { fault: ClaimFault::OutOfRange, .. }) => {
            let at = claims::date_in_millis(object, name)?;
            Ok(at.map(|at| EventTime { at, unit: TimeUnit::Milliseconds, claim: name }))
        }
        seconds => Ok(seconds?.map(|at| EventTime::of_seconds(name, at))),
    }
}

/// Appends the names in one subject identifier.
fn read_subject<'t>(subject: Value<'t>, names: &mut Vec<SubjectName<'t>>) -> Result<(), TokenError> {
    match subject_format(subject)? {
        "complex" => complex_subject(subject, names),
        "aliases" => {
            let all = subject.get("identifiers").and_then(Value::items);
            let all = all.filter(|all| (1..=MAX_NAMES).contains(&all.len()));
            for alias in
                all.ok_or(TokenError::UnsupportedSubject("its `identifiers` are not a list of subjects"))?
            {
                // Aliases of aliases are forbidden (RFC 9493 §3.2.8), and would permit nesting.
                names.push(simple_subject(alias)?);
            }
            Ok(())
        }
        _ => {
            names.push(simple_subject(subject)?);
            Ok(())
        }
    }
}

/// A subject of several parts (SSF §3.2): it means what matches all of them.
fn complex_subject<'t>(subject: Value<'t>, names: &mut Vec<SubjectName<'t>>) -> Result<(), TokenError> {
    let (mut user, mut session, mut application) = (None, None, None);
    for (part, value) in subject.members().into_iter().flatten() {
        match part {
            "format" => {}
            "user" => user = Some(simple_subject(value)?),
            "session" => session = Some(simple_subject(value)?),
            "application" => application = Some(simple_subject(value)?),
            "tenant" => {
                return Err(TokenError::UnsupportedSubject("tenants are not supported"));
            }
            _ => {
                return Err(TokenError::UnsupportedSubject(
                    "a complex subject may have only `user`, `session` and `application`",
                ));
            }
        }
    }
    let whole = match (user, session, application) {
        // One session, regardless of its user.
        (_, Some(SubjectName::Opaque(sid) | SubjectName::Session(sid) | SubjectName::User(_, sid)), None) => {
            SubjectName::Session(sid)
        }
        (_, Some(token @ SubjectName::Token(..)), None) => token,
        (Some(user), None, None) => match user {
            SubjectName::Opaque(id) => SubjectName::User(None, id),
            user => user,
        },
        (
            Some(SubjectName::User(_, user) | SubjectName::Opaque(user)),
            None,
            Some(SubjectName::Opaque(client) | SubjectName::User(_, client)),
        ) => SubjectName::Consent(user, client),
        _ => {
            return Err(TokenError::UnsupportedSubject("this combination of its parts is not supported"));
        }
    };
    names.push(whole);
    Ok(())
}

/// A subject of one part.
fn simple_subject(subject: Value<'_>) -> Result<SubjectName<'_>, TokenError> {
    let member = |name: &'static str| {
        nonempty_text(subject, name)?
            .ok_or(TokenError::UnsupportedSubject("it lacks a member that its format (RFC 9493) requires"))
    };
    Ok(match subject_format(subject)? {
        "iss_sub" => SubjectName::User(Some(member("iss")?), member("sub")?),
        "opaque" => SubjectName::Opaque(member("id")?),
        "email" => SubjectName::Email(member("email")?),
        "jwt_id" => SubjectName::Token(member("iss")?, member("jti")?),
        "sid" => SubjectName::Session(member("sid")?),
        _ => {
            return Err(TokenError::UnsupportedSubject(
                "supported formats are iss_sub, opaque, email, jwt_id, sid, aliases and complex",
            ));
        }
    })
}

/// The format of a subject; in earlier drafts a complex subject had none.
fn subject_format(subject: Value<'_>) -> Result<&str, TokenError> {
    if !subject.is_object() {
        return Err(TokenError::UnsupportedSubject("it is not an object"));
    }
    match claims::string(subject, "format")? {
        Some(format) => Ok(format),
        None if ["user", "session", "tenant"].iter().any(|part| subject.get(part).is_some()) => Ok("complex"),
        None => Err(TokenError::UnsupportedSubject("it has no `format`")),
    }
}

/// A text that identifies a user or a thing; an empty one is an error.
fn nonempty_text<'t>(claims: Value<'t>, name: &str) -> Result<Option<&'t str>, TokenError> {
    let Some(text) = claims::string(claims, name)? else { return Ok(None) };
    if text.is_empty() {
        return Err(missing(name).into());
    }
    if text.len() > MAX_VALUE_BYTES {
        return Err(ClaimError::new(name, ClaimFault::TooLong).into());
    }
    if text.chars().any(char::is_control) {
        return Err(ClaimError::new(name, ClaimFault::Control).into());
    }
    Ok(Some(text))
}

fn missing(name: &str) -> ClaimError {
    ClaimError::new(name, ClaimFault::Missing)
}

#[cfg(test)]
#[path = "security_event/tests.rs"]
mod tests;

//! Security event tokens (RFC 8417) as transmitters of the `OpenID` Shared Signals Framework 1.0 send them, once a key has vouched
//! for them: what happened (CAEP 1.0, RISC 1.0), when, and to whom (RFC 9493).
//!
//! Owns: what tells such a token from all others, the events that are understood, the names of those they are about. Does not own:
//! the signature ([`super::jwt::Unverified::signed`]), how the token came, what follows from an event.
//!
//! An event that is not understood is told as such: it is nobody's fault, and there will be more of them. One that is understood
//! and about somebody who is not is an error: whoever sent it means somebody to be refused, and would think that they are.

use std::time::Duration;

use super::claims::{self, check_audience};
use super::jwt::Signed;
use crate::json::Value;
use crate::mapping::MAX_VALUE_BYTES;
use crate::time::Timestamp;
use crate::token_error::{ClaimError, ClaimFault, TokenError};

/// Events that one token may hold; RFC 8417 §2.2 means several aspects of one happening.
const MAX_EVENTS: usize = 16;
/// Names of one subject, aliases among them.
const MAX_NAMES: usize = 32;

const CAEP: &str = "https://schemas.openid.net/secevent/caep/event-type/";
const RISC: &str = "https://schemas.openid.net/secevent/risc/event-type/";
const SSF: &str = "https://schemas.openid.net/secevent/ssf/event-type/";

/// Whose tokens are expected, and for whom.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedEvents<'e> {
    /// The transmitter's exact `iss`.
    pub issuer: &'e str,
    /// Of which a token must name one.
    pub audiences: &'e [Box<str>],
    /// How far the transmitter's clock may be from ours.
    pub clock_skew: Duration,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityEvents<'t> {
    /// Names the token.
    pub jti: &'t str,
    /// When it was made.
    pub issued: Timestamp,
    /// What happened; at least one.
    pub events: Vec<SecurityEvent<'t>>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityEvent<'t> {
    /// What.
    pub kind: EventKind,
    /// When: `event_timestamp`, or `toe`, or when the token was made.
    pub at: Timestamp,
    /// In which unit that was said.
    pub unit: Unit,
    /// To whom: each is a name of one who is meant. Empty for events about a stream, and those that are not understood.
    pub names: Vec<SubjectName<'t>>,
    /// What a verification gives back (SSF §8.1.4.1), where it does.
    pub state: Option<&'t str>,
}

/// The unit of an event's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// As RFC 8417 has it.
    Seconds,
    /// As it should not be.
    Milliseconds,
}

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// A session, or all of somebody's, ended (CAEP §3.1; RISC `sessions-revoked`).
    SessionRevoked,
    /// Claims of tokens are not what they were (CAEP §3.2).
    TokenClaimsChange,
    /// A password or another credential was changed, made or taken away (CAEP §3.3).
    CredentialChange,
    /// An account was disabled (RISC §2.3).
    AccountDisabled,
    /// An account was deleted (RISC §2.2).
    AccountPurged,
    /// The transmitter shows that the stream works (SSF §8.1.4).
    Verification,
    /// The transmitter has paused, stopped or resumed the stream (SSF §8.1.5).
    StreamUpdated,
    /// None of these.
    Other,
}

impl EventKind {
    /// All of them.
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

    /// By the URI of its type. One that does not name an event gives [`Kind::Other`].
    pub fn of(uri: &str) -> Self {
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

    /// The URI of its type; `None` for [`Kind::Other`].
    pub fn uri(self) -> Option<String> {
        let base = match self {
            Self::SessionRevoked | Self::TokenClaimsChange | Self::CredentialChange => CAEP,
            Self::AccountDisabled | Self::AccountPurged => RISC,
            Self::Verification | Self::StreamUpdated => SSF,
            Self::Other => return None,
        };
        Some(format!("{base}{}", self.word()))
    }

    /// Its last part, for logs, metrics and configurations.
    pub fn word(self) -> &'static str {
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

    /// Whether it is about somebody.
    fn has_subject(self) -> bool {
        !matches!(self, Self::Verification | Self::StreamUpdated | Self::Other)
    }
}

/// A name of somebody or something that an event is about (RFC 9493).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectName<'t> {
    /// A user, by the issuer that knows them so; `None`: by the transmitter's own.
    User(Option<&'t str>, &'t str),
    /// A session, by its `sid`.
    Session(&'t str),
    /// One token, by its issuer and `jti`.
    Token(&'t str, &'t str),
    /// Whoever has this e-mail address.
    Email(&'t str),
    /// What the transmitter calls so: a user, a session, or what tokens were granted by.
    Opaque(&'t str),
    /// What a user allowed an application.
    Consent(&'t str, &'t str),
}

/// Checks a token, but for its signature.
///
/// # Errors
/// What is wrong with it. [`TokenError::UnsupportedSubject`]: it is a good one, and about somebody who cannot be told here.
pub fn security_events<'t>(
    signed: Signed<'t>,
    expected: &ExpectedEvents<'_>,
    now: Timestamp,
) -> Result<SecurityEvents<'t>, TokenError> {
    let claims = signed.claims;
    if !signed.typ.is_some_and(|typ| super::is_media_type(typ, "secevent+jwt")) {
        return Err(TokenError::WrongType);
    }
    // It never expires (RFC 8417 §2.2, SSF §4.1.7), and is about nobody by `sub` (SSF §4.1.3): one that has these may be meant as
    // something else.
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
    let jti = text(claims, "jti")?.ok_or_else(|| missing("jti"))?;
    let happened = moment(claims, "toe")?.unwrap_or(Moment::of_seconds("iat", issued));
    let events = claims.get("events").and_then(Value::members);
    let events = events.ok_or(TokenError::NotASecurityEvent("events"))?;
    if events.len() == 0 || events.len() > MAX_EVENTS {
        return Err(TokenError::NotASecurityEvent("events"));
    }
    let whom = Whom::of(claims)?;
    let events = events.map(|(uri, payload)| event(EventKind::of(uri), payload, &whom, happened, latest));
    Ok(SecurityEvents { jti, issued, events: events.collect::<Result<_, _>>()? })
}

/// Of whom a whole token is.
struct Whom<'t> {
    subject: Option<Value<'t>>,
    sid: Option<&'t str>,
}

impl<'t> Whom<'t> {
    fn of(claims: Value<'t>) -> Result<Self, TokenError> {
        Ok(Self { subject: claims.get("sub_id"), sid: text(claims, "sid")? })
    }

    /// The names of those that an event is about. Earlier drafts put the subject into the event; where it is in both, both are meant.
    fn names(&self, payload: Value<'t>) -> Result<Vec<SubjectName<'t>>, TokenError> {
        let mut names = Vec::new();
        for subject in [self.subject, payload.get("subject")].into_iter().flatten() {
            read(subject, &mut names)?;
        }
        names.extend(self.sid.map(SubjectName::Session));
        match names.len() {
            0 => Err(TokenError::UnsupportedSubject("it has no `sub_id`")),
            1..=MAX_NAMES => Ok(names),
            _ => Err(TokenError::UnsupportedSubject("it has more than 32 names")),
        }
    }
}

fn event<'t>(
    kind: EventKind,
    payload: Value<'t>,
    whom: &Whom<'t>,
    happened: Moment,
    latest: Timestamp,
) -> Result<SecurityEvent<'t>, TokenError> {
    if !payload.is_object() {
        return Err(TokenError::NotASecurityEvent("events"));
    }
    let Moment { at, unit, said_by } = moment(payload, "event_timestamp")?.unwrap_or(happened);
    if at > latest {
        return Err(TokenError::InFuture(said_by));
    }
    let names = if kind.has_subject() { whom.names(payload)? } else { Vec::new() };
    let state = if kind == EventKind::Verification { text(payload, "state")? } else { None };
    Ok(SecurityEvent { kind, at, unit, names, state })
}

/// When something happened, and how that was said.
#[derive(Clone, Copy)]
struct Moment {
    at: Timestamp,
    unit: Unit,
    /// The member that said it.
    said_by: &'static str,
}

impl Moment {
    fn of_seconds(said_by: &'static str, at: Timestamp) -> Self {
        Self { at, unit: Unit::Seconds, said_by }
    }
}

/// The time of an event. A `NumericDate` has seconds, and some transmitters send milliseconds all the same: a number too large for seconds (it
/// would lie after the year 9999) is read as those, since whoever is meant would not be refused otherwise. In milliseconds such a number is a
/// time after January 1978, so none is ambiguous.
fn moment(object: Value<'_>, name: &'static str) -> Result<Option<Moment>, ClaimError> {
    match claims::date(object, name, f64::floor) {
        Err(ClaimError { fault: ClaimFault::OutOfRange, .. }) => {
            let at = claims::date_in_millis(object, name)?;
            Ok(at.map(|at| Moment { at, unit: Unit::Milliseconds, said_by: name }))
        }
        seconds => Ok(seconds?.map(|at| Moment::of_seconds(name, at))),
    }
}

/// The names in one subject identifier.
fn read<'t>(subject: Value<'t>, names: &mut Vec<SubjectName<'t>>) -> Result<(), TokenError> {
    match format(subject)? {
        "complex" => complex(subject, names),
        "aliases" => {
            let all = subject.get("identifiers").and_then(Value::items);
            let all = all.filter(|all| (1..=MAX_NAMES).contains(&all.len()));
            for alias in all.ok_or(TokenError::UnsupportedSubject("its `identifiers` are no list of them"))? {
                // Aliases of aliases are forbidden (RFC 9493 §3.2.8), and would be a way to nest.
                names.push(simple(alias)?);
            }
            Ok(())
        }
        _ => {
            names.push(simple(subject)?);
            Ok(())
        }
    }
}

/// A subject of several parts (SSF §3.2): whatever has all of them.
fn complex<'t>(subject: Value<'t>, names: &mut Vec<SubjectName<'t>>) -> Result<(), TokenError> {
    let (mut user, mut session, mut application) = (None, None, None);
    for (part, value) in subject.members().into_iter().flatten() {
        match part {
            "format" => {}
            "user" => user = Some(simple(value)?),
            "session" => session = Some(simple(value)?),
            "application" => application = Some(simple(value)?),
            "tenant" => {
                return Err(TokenError::UnsupportedSubject("a tenant cannot be told from the rest here"));
            }
            _ => {
                return Err(TokenError::UnsupportedSubject(
                    "of a complex one only `user`, `session` and `application` are understood",
                ));
            }
        }
    }
    let whole = match (user, session, application) {
        // One session, whoever has it.
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
            return Err(TokenError::UnsupportedSubject("its parts together name nothing that is known here"));
        }
    };
    names.push(whole);
    Ok(())
}

/// A subject of one part.
fn simple(subject: Value<'_>) -> Result<SubjectName<'_>, TokenError> {
    let member = |name: &'static str| {
        text(subject, name)?
            .ok_or(TokenError::UnsupportedSubject("it lacks what its format (RFC 9493) demands"))
    };
    Ok(match format(subject)? {
        "iss_sub" => SubjectName::User(Some(member("iss")?), member("sub")?),
        "opaque" => SubjectName::Opaque(member("id")?),
        "email" => SubjectName::Email(member("email")?),
        "jwt_id" => SubjectName::Token(member("iss")?, member("jti")?),
        "sid" => SubjectName::Session(member("sid")?),
        _ => {
            return Err(TokenError::UnsupportedSubject(
                "of formats only iss_sub, opaque, email, jwt_id, sid, aliases and complex are understood",
            ));
        }
    })
}

/// The format of a subject; earlier drafts knew a complex one by its having none.
fn format(subject: Value<'_>) -> Result<&str, TokenError> {
    if !subject.is_object() {
        return Err(TokenError::UnsupportedSubject("it is no object"));
    }
    match claims::string(subject, "format")? {
        Some(format) => Ok(format),
        None if ["user", "session", "tenant"].iter().any(|part| subject.get(part).is_some()) => Ok("complex"),
        None => Err(TokenError::UnsupportedSubject("it has no `format`")),
    }
}

/// A text that names somebody or something; an empty one names nothing.
fn text<'t>(claims: Value<'t>, name: &str) -> Result<Option<&'t str>, TokenError> {
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

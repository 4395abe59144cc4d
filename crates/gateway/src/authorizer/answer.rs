//! Authorizer answer: parses what an authorizer answered, and decides whether the answer may be
//! cached.
//!
//! Owns: which of its fields go to the service and which to the client, what makes an answer
//! unusable, freshness (RFC 9111). Does not own: the query, what else may revoke an answer
//! ([`credentials::revocation`]).

use std::borrow::Cow;
use std::time::Duration;

use auth::headers::{IdentityHeaders, is_same_alias_class};
use auth::request::Field;
use auth::time::Timestamp;
use coherence::revocation_tags;
use coherence::revocation_tags::RevocationTags;
use credentials::cache::{CacheEntryBasis, Weigh};
use credentials::cookies::sets_login_cookie;
use credentials::revocation::RevocableToken;
use http_engine::labels::{Consulted, Outcome};
use http_engine::local_reply::LocalReply;

use super::question::AuthorizerQuestion;
use crate::authorizer::ENDS_IN;
use crate::config::AuthorizerConfig as Config;

/// Fields of a refusal that go to the client, besides its body and status. All other fields are for
/// the gateway.
const FOR_CLIENTS: [&str; 17] = [
    "cache-control",
    "content-encoding",
    "content-language",
    "content-security-policy",
    "content-type",
    "expires",
    "location",
    "permissions-policy",
    "pragma",
    "referrer-policy",
    "retry-after",
    "set-cookie",
    "strict-transport-security",
    "vary",
    "www-authenticate",
    "x-content-type-options",
    "x-frame-options",
];

/// An authorizer's response as it arrived.
#[derive(Debug, Default)]
pub(crate) struct AuthorizerResponse {
    pub(crate) status: u16,
    /// Field names as received, with their values.
    pub(crate) fields: Vec<(Box<str>, Box<[u8]>)>,
    pub(crate) body: Vec<u8>,
}

/// Why an answer is unusable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("the request has characters that an authorizer query cannot carry")]
    InvalidQuery,
    #[error("the answer is not valid HTTP, or its head is too large")]
    NotHttp,
    #[error("the answer's body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the answer has the invalid status {0}")]
    Status(u16),
    #[error("the answer repeats the field {0}")]
    Repeated(Box<str>),
    #[error("the answer's field {0} is not valid UTF-8")]
    NotText(Box<str>),
    #[error("the answer's field {0} is not a number of milliseconds")]
    NotMillis(&'static str),
}

/// A usable answer of an authorizer.
#[derive(Debug)]
pub(crate) enum AuthorizerAnswer {
    /// The request is allowed.
    Allowed(AuthorizerAllowed),
    /// The request is refused; the client receives this response.
    Refused(AuthorizerRefused),
}

/// The authorizer allows the request.
#[derive(Debug, Default)]
pub(crate) struct AuthorizerAllowed {
    /// Fields for the upstream.
    pub(crate) fields: Vec<(Box<str>, Box<[u8]>)>,
    /// The same fields as lines of an HTTP/1.1 head.
    pub(crate) http1_block: Box<[u8]>,
    /// Whether `fields` contains the caller's identity: then the gateway adds none of its own.
    pub(crate) has_identity: bool,
    /// `Set-Cookie` values for the client.
    pub(crate) cookies: Vec<Box<[u8]>>,
    /// What can revoke the answer at any time.
    pub(crate) revocable: Option<RevocableToken>,
    /// When the credential that the answer depends on expires.
    pub(crate) ends: Option<Timestamp>,
}

/// The authorizer refuses the request; its response goes to the client.
#[derive(Debug)]
pub(crate) struct AuthorizerRefused {
    status: u16,
    fields: Vec<(Box<str>, Box<str>)>,
    body: Box<[u8]>,
}

/// A parsed answer with its caching terms.
pub(crate) struct ParsedAnswer {
    pub(crate) answer: AuthorizerAnswer,
    /// How long the answer is fresh, counted from when it was requested; `None`: it may not be
    /// cached.
    pub(crate) fresh: Option<Duration>,
    /// The issuer that may revoke it, and the tags to revoke it by.
    pub(crate) revocation: Option<(Box<str>, RevocationTags)>,
    /// Time until the credential that the answer depends on expires, counted from when it was
    /// requested.
    pub(crate) credential_lifetime: Option<Duration>,
}

/// Parses the response to a query.
pub(crate) fn read(
    response: AuthorizerResponse,
    config: &Config,
    identity: &IdentityHeaders,
    question: &AuthorizerQuestion,
) -> Result<ParsedAnswer, AnswerError> {
    let fresh = freshness(&response, config, question.has_request_id());
    match response.status {
        200..=299 => {
            let (statement, lifetime) = (revocation_tags_of(&response)?, credential_lifetime(&response)?);
            let answer = AuthorizerAnswer::Allowed(allowed(&response, config, identity)?);
            Ok(ParsedAnswer { answer, fresh, revocation: statement, credential_lifetime: lifetime })
        }
        300..=599 => Ok(ParsedAnswer {
            answer: AuthorizerAnswer::Refused(refused(response)?),
            fresh,
            revocation: None,
            credential_lifetime: None,
        }),
        status => Err(AnswerError::Status(status)),
    }
}

fn allowed(
    response: &AuthorizerResponse,
    config: &Config,
    identity: &IdentityHeaders,
) -> Result<AuthorizerAllowed, AnswerError> {
    let mut allowed = AuthorizerAllowed::default();
    let mut block = Vec::new();
    for name in &config.upstream_fields {
        // A proxy that cannot remove a field sends it empty to say "none".
        let Some(value) = single_field(response, name)?.filter(|value| !value.is_empty()) else { continue };
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            block.extend_from_slice(part);
        }
        allowed.has_identity |= identity.names().any(|own| is_same_alias_class(own, name));
        allowed.fields.push((name.clone(), value.into()));
    }
    allowed.http1_block = block.into();
    let cookies = response.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    // Session cookies of this gateway are not the authorizer's to set.
    let cookies = cookies.filter(|(name, value)| !sets_login_cookie(&Field { name, value }));
    allowed.cookies = cookies.map(|(_, value)| value.clone()).collect();
    Ok(allowed)
}

fn refused(response: AuthorizerResponse) -> Result<AuthorizerRefused, AnswerError> {
    let mut fields = Vec::new();
    for (name, value) in response.fields {
        let ours = sets_login_cookie(&Field { name: &name, value: &value });
        if !ours && FOR_CLIENTS.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            let text = std::str::from_utf8(&value).map_err(|_| AnswerError::NotText(name.clone()))?;
            fields.push((name.to_ascii_lowercase().into(), text.into()));
        }
    }
    Ok(AuthorizerRefused { status: response.status, fields, body: response.body.into() })
}

/// The value of a field that may occur once.
fn single_field<'h>(response: &'h AuthorizerResponse, name: &str) -> Result<Option<&'h [u8]>, AnswerError> {
    let mut of_name = response.fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    match (of_name.next(), of_name.next()) {
        (Some(_), Some(_)) => Err(AnswerError::Repeated(name.into())),
        (first, _) => Ok(first.map(|(_, value)| &**value)),
    }
}

/// The revocation tags, which only a Postern sends. Fields that cannot be parsed are an error, not
/// an absence.
fn revocation_tags_of(
    response: &AuthorizerResponse,
) -> Result<Option<(Box<str>, RevocationTags)>, AnswerError> {
    let text = |name: &str| match single_field(response, name)?.map(std::str::from_utf8) {
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => Err(AnswerError::NotText(name.into())),
        None => Ok(None),
    };
    match (text(revocation_tags::REVOCATION_FIELD)?, text(revocation_tags::ISSUER_FIELD)?) {
        (Some(tags), Some(issuer)) => match RevocationTags::parse(tags) {
            Some(tags) => Ok(Some((issuer.into(), tags))),
            None => Err(AnswerError::NotText(revocation_tags::REVOCATION_FIELD.into())),
        },
        _ => Ok(None),
    }
}

/// The remaining lifetime of the credential ([`ENDS_IN`]), which only a Postern sends.
fn credential_lifetime(response: &AuthorizerResponse) -> Result<Option<Duration>, AnswerError> {
    let Some(value) = single_field(response, ENDS_IN)? else { return Ok(None) };
    let millis = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    let lifetime = Duration::from_millis(millis.ok_or(AnswerError::NotMillis(ENDS_IN))?);
    // A cache on the way that does not state the answer's age may have held it for any time.
    Ok(Some(lifetime.saturating_sub(age(response).unwrap_or(lifetime))))
}

/// How old an answer is (RFC 9111 section 5.1); `None`: the field cannot be parsed.
fn age(response: &AuthorizerResponse) -> Option<Duration> {
    let mut ages = values(response, "age");
    match (ages.next(), ages.next()) {
        (None, _) => Some(Duration::ZERO),
        (Some(age), None) => seconds(std::str::from_utf8(age).ok()?),
        (Some(_), Some(_)) => None,
    }
}

/// How long an answer is fresh (RFC 9111 section 4.2), if it may be cached at all (section 3). Only
/// explicit directives count: there is no heuristic freshness, and a repeated or unparsable
/// directive means `None`.
fn freshness(response: &AuthorizerResponse, config: &Config, names_request: bool) -> Option<Duration> {
    if !matches!(response.status, 200..=299 | 401 | 403) || values(response, "set-cookie").next().is_some() {
        return None;
    }
    let (mut max_age, mut shared_max_age) = (None, None);
    for directive in list(response, "cache-control") {
        let directive = directive?;
        let (name, value) = directive.split_once('=').map_or((directive, None), |(n, v)| (n, Some(v)));
        let age = match name.trim().to_ascii_lowercase().as_str() {
            // `no-cache` and `private` may name single fields; here they always count for the whole
            // answer. A bare `private` allows only caches of one client.
            "no-store" | "no-cache" | "private" => return None,
            "max-age" => &mut max_age,
            "s-maxage" => &mut shared_max_age,
            _ => continue,
        };
        if age.replace(seconds(value?)?).is_some() {
            return None;
        }
    }
    // This cache serves many connections: `s-maxage`, for shared caches, takes precedence.
    let fresh = shared_max_age.or(max_age)?;
    let mut named = 0;
    for name in list(response, "vary") {
        let name = name?;
        let shown = config.shown_fields.iter().find(|shown| shown.name.eq_ignore_ascii_case(name));
        let is_described = config.question.fields().iter().any(|field| field.eq_ignore_ascii_case(name));
        match shown {
            Some(shown) if shown.is_request_id && names_request => return None,
            None if !is_described => return None,
            _ => named += 1,
        }
    }
    // The answer may depend on fields that the key leaves out, and does not exclude that with
    // `Vary`.
    if names_request && named == 0 {
        return None;
    }
    fresh.checked_sub(age(response)?).filter(|left| !left.is_zero())
}

/// Parses `delta-seconds` (RFC 9111 section 1.2.2).
fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A value that overflows exceeds any configured maximum.
    digits.then(|| Duration::from_secs(text.parse::<u32>().unwrap_or(u32::MAX).into()))
}

fn values<'h>(response: &'h AuthorizerResponse, name: &'static str) -> impl Iterator<Item = &'h [u8]> {
    let of_name = response.fields.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name));
    of_name.map(|(_, value)| &**value)
}

/// The members of a list in all fields of a name (RFC 9110 section 5.6.1); `None` for a value that
/// is not UTF-8.
fn list<'h>(response: &'h AuthorizerResponse, name: &'static str) -> impl Iterator<Item = Option<&'h str>> {
    values(response, name).flat_map(|value| {
        let text = std::str::from_utf8(value).ok();
        let parts = text.into_iter().flat_map(|text| text.split(',').map(str::trim));
        let parts = parts.filter(|part| !part.is_empty()).map(Some);
        parts.chain(text.is_none().then_some(None))
    })
}

impl AuthorizerAnswer {
    /// Attaches what can revoke the answer. A refusal needs none.
    pub(crate) fn until_revoked(self, revocable: RevocableToken) -> Self {
        match self {
            Self::Allowed(allowed) => {
                Self::Allowed(AuthorizerAllowed { revocable: Some(revocable), ..allowed })
            }
            refused @ Self::Refused(_) => refused,
        }
    }

    /// Attaches when the credential that the answer depends on expires. A refusal needs none.
    pub(crate) fn expiring_at(self, ends: Option<Timestamp>) -> Self {
        match self {
            Self::Allowed(allowed) => Self::Allowed(AuthorizerAllowed { ends, ..allowed }),
            refused @ Self::Refused(_) => refused,
        }
    }

    /// When the credential that the answer depends on expires, if the authorizer stated it.
    pub(crate) fn ends(&self) -> Option<Timestamp> {
        match self {
            Self::Allowed(allowed) => allowed.ends,
            Self::Refused(_) => None,
        }
    }

    /// What can revoke the answer at any time.
    pub(crate) fn revocable(&self) -> Option<&RevocableToken> {
        match self {
            Self::Allowed(allowed) => allowed.revocable.as_ref(),
            Self::Refused(_) => None,
        }
    }

    pub(crate) fn metric_label(&self) -> Consulted {
        match self {
            Self::Allowed(_) => Consulted::Allowed,
            Self::Refused(AuthorizerRefused { status: 500.., .. }) => Consulted::Failed,
            Self::Refused(_) => Consulted::Refused,
        }
    }
}

impl AuthorizerRefused {
    /// The response for the client, with the authorizer's status, fields and body.
    pub(crate) fn answer(&self) -> LocalReply {
        let (code, outcome) = match self.status {
            300..=399 => ("authorizer_redirected", Outcome::Unauthenticated),
            401 => ("authorizer_refused", Outcome::Unauthenticated),
            500.. => ("authorizer_failed", Outcome::AuthUnavailable),
            _ => ("authorizer_refused", Outcome::Forbidden),
        };
        let mut fields: Vec<(Cow<'static, str>, Cow<'static, str>)> = Vec::new();
        for (name, value) in &self.fields {
            fields.push((name.to_string().into(), value.to_string().into()));
        }
        // The answer is about this client only, even if a cache on the way would store it by
        // default.
        if !self.fields.iter().any(|(name, _)| &**name == "cache-control") {
            fields.push(("cache-control".into(), "no-store".into()));
        }
        LocalReply {
            status: self.status,
            code,
            outcome,
            fields,
            body: self.body.to_vec().into(),
            close: false,
        }
    }
}

impl Weigh for AuthorizerAnswer {
    fn weight(&self) -> usize {
        const PAIR: usize = size_of::<(Box<str>, Box<[u8]>)>();
        // The `Arc` adds its two counters.
        let own = size_of::<Self>() + 2 * size_of::<usize>();
        own + match self {
            Self::Allowed(AuthorizerAllowed {
                fields,
                http1_block,
                cookies,
                revocable,
                has_identity: _,
                ends: _,
            }) => {
                let fields =
                    fields.iter().map(|(name, value)| PAIR + name.len() + value.len()).sum::<usize>();
                let cookies =
                    cookies.iter().map(|cookie| size_of::<Box<[u8]>>() + cookie.len()).sum::<usize>();
                let held = revocable
                    .as_ref()
                    .map_or(0, |revocable| revocable.weight() + size_of::<CacheEntryBasis>());
                fields + http1_block.len() + cookies + held
            }
            Self::Refused(AuthorizerRefused { fields, body, status: _ }) => {
                fields.iter().map(|(name, value)| PAIR + name.len() + value.len()).sum::<usize>() + body.len()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DEFAULT_SHOWN_FIELDS, QuestionForm, ShownField};

    fn config() -> Config {
        Config {
            name: "a".into(),
            upstream: 0,
            question: QuestionForm::SameRequest { prefix: "".into() },
            timeout: Duration::from_secs(1),
            shown_fields: DEFAULT_SHOWN_FIELDS.iter().map(|name| ShownField::new(name)).collect(),
            upstream_fields: ["x-auth-request-user", "x-auth-request-groups"].map(Into::into).into(),
            max_age: Duration::from_secs(10),
            max_age_with_revocation: Duration::from_mins(1),
            cache_bytes: 1 << 20,
        }
    }

    fn response(status: u16, fields: &[(&str, &str)]) -> AuthorizerResponse {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), value.as_bytes().into())).collect();
        AuthorizerResponse { status, fields, body: Vec::new() }
    }

    fn fresh(status: u16, fields: &[(&str, &str)], names_request: bool) -> Option<u64> {
        freshness(&response(status, fields), &config(), names_request).map(|fresh| fresh.as_secs())
    }

    #[test]
    fn what_says_how_long_is_kept_so_long() {
        for (cache_control, expected) in [
            ("max-age=5", 5),
            ("Max-Age = 5", 5),
            ("public, max-age=5, must-revalidate", 5),
            ("max-age=60, s-maxage=7", 7),
            ("s-maxage=7", 7),
            ("max-age=99999999999999999999", u64::from(u32::MAX)),
        ] {
            let fields = [("Cache-Control", cache_control)];
            for status in [200, 202, 204, 401, 403] {
                assert_eq!(fresh(status, &fields, false), Some(expected), "{status} {cache_control}");
            }
            for status in [302, 404, 429, 500, 503] {
                assert_eq!(fresh(status, &fields, false), None, "{status}");
            }
        }
        let aged = [("cache-control", "max-age=5"), ("age", "3")];
        assert_eq!(fresh(200, &aged, false), Some(2));
    }

    #[test]
    fn what_does_not_say_so_or_cannot_be_read_is_not_kept() {
        for fields in [
            &[][..],
            &[("cache-control", "")],
            &[("cache-control", "public")],
            &[("cache-control", "max-age=0")],
            &[("cache-control", "max-age")],
            &[("cache-control", "max-age=")],
            &[("cache-control", "max-age=-1")],
            &[("cache-control", "max-age=5x")],
            &[("cache-control", "max-age=\"5\"")],
            &[("cache-control", "max-age=5, max-age=6")],
            &[("cache-control", "max-age=5"), ("cache-control", "no-store")],
            &[("cache-control", "max-age=5, no-cache")],
            &[("cache-control", "max-age=5, private")],
            &[("cache-control", "max-age=5, private=\"x-user, y\"")],
            &[("cache-control", "max-age=60, s-maxage=0")],
            &[("cache-control", "max-age=60, s-maxage=x")],
            &[("cache-control", "max-age=5"), ("set-cookie", "a=b")],
            &[("cache-control", "max-age=5"), ("age", "5")],
            &[("cache-control", "max-age=5"), ("age", "soon")],
            &[("cache-control", "max-age=5"), ("age", "1"), ("age", "1")],
            &[("expires", "Fri, 01 Jan 2100 00:00:00 GMT")],
            &[("cache-control", "max-age=5"), ("vary", "*")],
            &[("cache-control", "max-age=5"), ("vary", "cookie, *")],
            &[("cache-control", "max-age=5"), ("vary", "x-tenant")],
            &[("cache-control", "max-age=5"), ("vary", "cookie"), ("vary", "accept-language")],
        ] {
            assert_eq!(fresh(200, fields, false), None, "{fields:?}");
        }
        let mut odd = response(200, &[("cache-control", "max-age=5")]);
        odd.fields.push(("vary".into(), vec![0xff].into()));
        assert_eq!(freshness(&odd, &config(), false), None);
    }

    #[test]
    fn what_names_a_request_counts_unless_the_answer_says_what_counts() {
        let age = ("cache-control", "max-age=5");
        assert_eq!(fresh(200, &[age], false), Some(5));
        assert_eq!(fresh(200, &[age], true), None);
        assert_eq!(fresh(200, &[age, ("vary", "")], true), None);
        assert_eq!(fresh(200, &[age, ("vary", "Authorization, Cookie")], true), Some(5));
        assert_eq!(fresh(200, &[age, ("vary", "authorization, traceparent")], true), None);
        assert_eq!(fresh(200, &[age, ("vary", "authorization, traceparent")], false), Some(5));
        assert_eq!(fresh(200, &[age, ("vary", "host, x-forwarded-for")], true), Some(5));
    }

    #[test]
    fn the_service_is_given_what_is_configured_once_and_nothing_empty() {
        let given = |fields: &[(&str, &str)]| {
            allowed(&response(200, fields), &config(), &IdentityHeaders::x_auth_request())
        };
        let all = given(&[
            ("X-Auth-Request-User", "ada"),
            ("X-Auth-Request-Groups", ""),
            ("X-Auth-Request-Email", "ada@example"),
            ("X-Admin", "yes"),
        ]);
        let all = all.unwrap();
        assert_eq!(&*all.http1_block, b"x-auth-request-user: ada\r\n");
        assert!(all.has_identity && all.fields.len() == 1);
        let twice = given(&[("x-auth-request-user", "ada"), ("X-Auth-Request-User", "root")]);
        assert!(matches!(twice, Err(AnswerError::Repeated(_))));
    }

    #[test]
    fn a_client_is_given_the_refusal_and_nothing_that_speaks_to_us() {
        let response = response(
            302,
            &[
                ("Location", "/oauth2/start?rd=%2F"),
                ("Set-Cookie", "a=1"),
                ("Set-Cookie", "b=2"),
                ("X-Auth-Request-User", "ada"),
                ("Postern-Revocable", "x"),
            ],
        );
        let answer = refused(response).unwrap().answer();
        let fields: Vec<_> = answer.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected = [
            "location: /oauth2/start?rd=%2F",
            "set-cookie: a=1",
            "set-cookie: b=2",
            "cache-control: no-store",
        ];
        assert_eq!((answer.status, fields), (302, expected.map(str::to_owned).to_vec()));
    }

    #[test]
    fn how_long_the_credential_lasts_is_said_once_and_in_milliseconds() {
        let of = |fields: &[(&str, &str)]| credential_lifetime(&response(200, fields));
        assert_eq!(of(&[]).unwrap(), None);
        let millis = |n| Some(Duration::from_millis(n));
        assert_eq!(of(&[("postern-ends-in-ms", "20350")]).unwrap(), millis(20350));
        assert_eq!(of(&[("postern-ends-in-ms", "20350"), ("age", "7")]).unwrap(), millis(13350));
        assert_eq!(of(&[("postern-ends-in-ms", "20350"), ("age", "soon")]).unwrap(), millis(0));
        for odd in ["", "-1", "20.5", "soon", "18446744073709551616"] {
            let odd = of(&[("postern-ends-in-ms", odd)]);
            assert!(matches!(odd, Err(AnswerError::NotMillis(_))), "{odd:?}");
        }
        let twice = of(&[("postern-ends-in-ms", "1"), ("Postern-Ends-In-Ms", "1")]);
        assert!(matches!(twice, Err(AnswerError::Repeated(_))));
    }

    #[test]
    fn half_a_statement_is_none_and_a_broken_one_is_no_answer() {
        let of = |fields: &[(&str, &str)]| revocation_tags_of(&response(200, fields));
        assert!(of(&[]).unwrap().is_none());
        assert!(of(&[("postern-revocable", "x 1 2 y")]).unwrap().is_none());
        let broken = of(&[("postern-revocable", "x 1 2 y"), ("postern-revocable-by", "https://id.example")]);
        assert!(matches!(broken, Err(AnswerError::NotText(_))));
    }
}

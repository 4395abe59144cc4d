//! Authorizer answer: parses what an authorizer answered, and decides whether the answer may be
//! cached.
//!
//! Owns: which of its fields go to the service and which to the client, what makes an answer
//! unusable, freshness (RFC 9111). Does not own: the query, what else may revoke an answer
//! ([`credentials::revocation`]).

use std::borrow::Cow;
use std::time::Duration;

use auth::headers::{IdentityHeaders, StripSet, is_per_hop, is_same_alias_class};
use auth::request::Field;
use auth::time::Timestamp;
use coherence::revocation_tags;
use coherence::revocation_tags::RevocationTags;
use credentials::cache::{CacheEntryBasis, Weigh};
use credentials::cookies::sets_login_cookie;
use credentials::revocation::RevocableToken;
use http_engine::labels::{Consulted, Outcome};
use http_engine::local_reply::LocalReply;

use super::check_response;
use super::freshness::{age, freshness};
use super::question::AuthorizerQuestion;
use super::response::{AnswerError, AuthorizerResponse};
use crate::authorizer::ENDS_IN;
use crate::config::{AuthorizerConfig as Config, QuestionForm, UpstreamFields};

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

/// Beginnings of the names of fields that describe an answer, or tell the client something. Where
/// all fields of an answer go to the upstream, these do not.
const ABOUT_ANSWERS: [&str; 20] = [
    "accept-ranges",
    "age",
    "allow",
    "alt-svc",
    "cache-control",
    "content-",
    "date",
    "etag",
    "expires",
    "last-modified",
    "location",
    "postern-",
    "retry-after",
    "server",
    "set-cookie",
    "strict-transport-security",
    "trailer",
    "vary",
    "via",
    "www-authenticate",
];

/// Fields that have a meaning for this gateway.
#[derive(Clone, Copy)]
pub(crate) struct OwnFields<'c> {
    /// Those that name the caller.
    pub(crate) identity: &'c IdentityHeaders,
    /// Those that no client may set.
    pub(crate) strip: &'c StripSet,
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
    /// Names of fields that the client's request loses.
    pub(crate) replaced: Vec<Box<str>>,
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
    own: OwnFields<'_>,
    question: &AuthorizerQuestion,
) -> Result<ParsedAnswer, AnswerError> {
    let (response, removed) = match config.question {
        QuestionForm::Grpc => check_response::read(response)?,
        _ => (response, Vec::new()),
    };
    let fresh = freshness(&response, config, question.has_request_id());
    match response.status {
        200..=299 => {
            let (statement, lifetime) = (revocation_tags_of(&response)?, credential_lifetime(&response)?);
            let allowed = allowed(&response, (config, own), removed)?;
            let answer = AuthorizerAnswer::Allowed(allowed);
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
    (config, own): (&Config, OwnFields<'_>),
    removed: Vec<Box<str>>,
) -> Result<AuthorizerAllowed, AnswerError> {
    let mut allowed = AuthorizerAllowed { replaced: removed, ..AuthorizerAllowed::default() };
    let mut block = Vec::new();
    let all: Vec<Box<str>>;
    let names = match &config.upstream_fields {
        UpstreamFields::All => {
            all = copied_names(response, own.strip);
            &*all
        }
        fields => fields.names(),
    };
    let is_trusted = matches!(config.upstream_fields, UpstreamFields::Trusted(_));
    for name in names {
        if !is_trusted {
            if is_per_hop(name) || own.strip.strips(name) || name.eq_ignore_ascii_case("host") {
                continue;
            }
            allowed.replaced.push(name.clone());
        }
        // A proxy that cannot remove a field sends it empty to say "none".
        let Some(value) = response.single_field(name)?.filter(|value| !value.is_empty()) else { continue };
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            block.extend_from_slice(part);
        }
        allowed.has_identity |= own.identity.names().any(|own| is_same_alias_class(own, name));
        allowed.fields.push((name.clone(), value.into()));
    }
    allowed.http1_block = block.into();
    let cookies = response.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    // Session cookies of this gateway are not the authorizer's to set.
    let cookies = cookies.filter(|(name, value)| !sets_login_cookie(&Field { name, value }));
    allowed.cookies = cookies.map(|(_, value)| value.clone()).collect();
    Ok(allowed)
}

/// Names of the fields that go to the upstream where all do, in lower case.
fn copied_names(response: &AuthorizerResponse, strip: &StripSet) -> Vec<Box<str>> {
    let mut names: Vec<Box<str>> = Vec::new();
    for (name, _) in &response.fields {
        let name = name.to_ascii_lowercase();
        let is_about_answer = ABOUT_ANSWERS.iter().any(|own| match own.strip_suffix('-') {
            Some(_) => name.starts_with(own),
            None => name == *own,
        });
        if !is_about_answer && !strip.strips(&name) && !names.iter().any(|known| **known == *name) {
            names.push(name.into());
        }
    }
    names
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

/// The revocation tags, which only a Postern sends. Fields that cannot be parsed are an error, not
/// an absence.
fn revocation_tags_of(
    response: &AuthorizerResponse,
) -> Result<Option<(Box<str>, RevocationTags)>, AnswerError> {
    let text = |name: &str| match response.single_field(name)?.map(std::str::from_utf8) {
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
    let Some(value) = response.single_field(ENDS_IN)? else { return Ok(None) };
    let millis = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    let lifetime = Duration::from_millis(millis.ok_or(AnswerError::NotMillis(ENDS_IN))?);
    // A cache on the way that does not state the answer's age may have held it for any time.
    Ok(Some(lifetime.saturating_sub(age(response).unwrap_or(lifetime))))
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
                replaced,
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
                let replaced = replaced.iter().map(|name| size_of::<Box<str>>() + name.len()).sum::<usize>();
                fields + http1_block.len() + replaced + cookies + held
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
    use crate::config::{DEFAULT_SHOWN_FIELDS, ShownField, ShownFields};

    fn config() -> Config {
        Config {
            name: "a".into(),
            upstream: 0,
            question: QuestionForm::SameRequest { prefix: "".into() },
            timeout: Duration::from_secs(1),
            shown_fields: ShownFields::Named(
                DEFAULT_SHOWN_FIELDS.iter().map(|name| ShownField::new(name)).collect(),
            ),
            upstream_fields: UpstreamFields::Trusted(
                ["x-auth-request-user", "x-auth-request-groups"].map(Into::into).into(),
            ),
            max_age: Duration::from_secs(10),
            max_age_with_revocation: Duration::from_mins(1),
            cache_bytes: 1 << 20,
        }
    }

    fn response(status: u16, fields: &[(&str, &str)]) -> AuthorizerResponse {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), value.as_bytes().into())).collect();
        AuthorizerResponse { status, fields, ..AuthorizerResponse::default() }
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
            let (identity, strip) = (IdentityHeaders::x_auth_request(), StripSet::new([""; 0]));
            let own = OwnFields { identity: &identity, strip: &strip };
            allowed(&response(200, fields), (&config(), own), Vec::new())
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

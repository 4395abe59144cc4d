//! Tables of `[[route]]` and `[policies]`: protected resources, and who may reach them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{
    Bound, ByteSize, ClockTime, FieldName, Method, Name, Network, Timespan, ZoneOffset,
};
use super::default::{bound_mib, bound_secs, yes};
use super::{
    AccessReview, AccessReviews, CorsChoice, Mirror, RequestHeaders, ResponseHeaders, SecurityHeadersChoice,
    WeightedUpstream,
};

/// Protected resource: which requests it matches, who may pass, and where they go. A route has a
/// `policy` or access reviews, or both, or it has `public = true`. A route without any of these is
/// refused.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a key of the file, and means nothing to the others"
)]
pub struct Route {
    /// Name of the route in logs, metrics and `check`.
    pub name: Name,
    /// Hosts, without a port: `app.example`, `*.app.example` for any name below it, or `*` for
    /// every host. Default: every host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub hosts: Vec<String>,
    /// Paths that the route matches. Default: every path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Path>,
    /// Which paths the route serves that servers read in different ways, such as `/a%2Fb`, `/a//b`
    /// or `/a/../b`.
    #[serde(default)]
    pub paths: Paths,
    /// Methods that the route matches. Default: every method. GET covers HEAD.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub methods: Vec<Method>,
    /// Headers that a request must have. They select a route and protect nothing, because clients
    /// write them. A request is refused with 400 if it has one of them more than once, in another
    /// spelling, or named by `Connection`: the service could read another value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, HeaderValue>,
    /// Query parameters that a request must have, in decoded form. Like headers they select a route
    /// and protect nothing. A request is refused with 400 if it has one of them more than once or in
    /// another spelling, or if its query is malformed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, HeaderValue>,
    /// Name of the upstream that the route forwards to. May be absent only with `upstreams`, or if
    /// every listener has an `authorization`, because other proxies then forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Name>,
    /// Several upstreams instead of `upstream`. Each request goes to one of them, by weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub upstreams: Vec<WeightedUpstream>,
    /// Upstreams that get copies of requests, bodies included. They neither delay nor fail the
    /// request. Requests that switch the protocol are not copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub mirror: Vec<Mirror>,
    /// Answers with a redirect instead of forwarding. Excludes `upstream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<Redirect>,
    /// Answers with a fixed response instead of forwarding. Excludes `upstream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub respond: Option<Respond>,
    /// Opens the route to every client, without a credential. Excludes `policy`, access reviews and
    /// `login`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub public: bool,
    /// Who may pass: the name of a policy, or a policy written here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyChoice>,
    /// Text for clients that the policy forbids the route (403): the `detail` of the problem
    /// document, and a part of the page that browsers get. Plain text. Default: a general text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_detail: Option<String>,
    /// Name of an authorizer that is queried in addition, once the policy permits, or for every
    /// request if the route is public. It is queried about the original request, before its path is
    /// changed. Not allowed in a file with a listener that has an `authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorizer: Option<Name>,
    /// Access review that Kubernetes answers when no rule of the policy decides. Without a policy,
    /// it is sent for every caller with a valid credential. Needs `[kubernetes]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_review: Option<AccessReview>,
    /// Several access reviews in place of `access_review`: `{ all = [...] }` or `{ any = [...] }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_reviews: Option<AccessReviews>,
    /// Path prefix to remove before forwarding, on a segment boundary. The upstream receives it as
    /// `X-Forwarded-Prefix`. All routes to the same
    /// upstream that match the new path, for any host, must permit the request too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strip_prefix: Option<String>,
    /// Path prefix to replace before forwarding. Otherwise like `strip_prefix`, and excludes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_prefix: Option<ReplacePrefix>,
    /// Path that replaces the whole path before forwarding. The query stays. Otherwise like
    /// `strip_prefix`, and excludes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_path: Option<String>,
    /// Whether paths in the response change back: `Location`, `Content-Location`, and the `Path` of
    /// cookies. Bodies stay as they are. Needs `strip_prefix` or `replace_prefix`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rewrite_responses: bool,
    /// Whether a browser session is a credential here, and a browser without one is sent to log in.
    /// A browser sends its session with every request that any page triggers, so do not set this on
    /// a route for programs only. Needs `[login]`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub login: bool,
    /// Which clients without a credential are sent to log in. Needs `login`.
    #[serde(default)]
    pub login_redirect: LoginRedirect,
    /// Whether a user name and a password of `[basic_auth]` are a credential here (HTTP Basic).
    /// Browsers send a password again with every request that any page triggers. Default: they are
    /// not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuthUse>,
    /// Whether the upstream receives the access token of a session, as `X-Forwarded-Access-Token`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forward_access_token: bool,
    /// Whether the client's `Authorization` header is forwarded to the upstream.
    #[serde(default)]
    pub forward_authorization: bool,
    /// Whether an `Authorization` header that is not for the gateway is forwarded beside a valid
    /// session: Basic, or a token that no issuer and no token authority is configured for. For
    /// applications with tokens of their own. Needs `login`. Not allowed beside a token authority
    /// that validates all other tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub application_authorization: bool,
    /// Changes of request headers, in addition to those for all routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_headers: Option<RequestHeaders>,
    /// Changes of response headers, in addition to those for all routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_headers: Option<ResponseHeaders>,
    /// Security headers of responses, instead of those for all routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_headers: Option<SecurityHeadersChoice>,
    /// Which pages of other origins may read responses: the name of a CORS policy, or a policy
    /// written here. Default: CORS headers of the upstream pass unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cors: Option<CorsChoice>,
    /// Whether the upstream receives the client's `Host` instead of the endpoint's own name.
    #[serde(default = "yes")]
    pub preserve_host: bool,
    /// `Host` that the upstream receives instead of the client's, which it still gets as
    /// `X-Forwarded-Host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrite_host: Option<String>,
    /// Sends the requests of one client to the same endpoint. Default: each request goes to the
    /// endpoint with the fewest requests in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Largest request body, or `"unlimited"`.
    #[serde(default = "bound_mib::<64>")]
    pub body_size: Bound<ByteSize>,
    /// Time from the decision to forward a request to the last byte of its response, or
    /// `"unlimited"` for streams. Earlier steps have their own limits: the listener's for request
    /// heads, and 5s for each wait for keys.
    #[serde(default = "bound_secs::<60>")]
    pub request_timeout: Bound<Timespan>,
    /// Time limit of one attempt at the upstream, from the request sent to the last byte of its
    /// response. Default: only `request_timeout`, which covers all attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_timeout: Option<Timespan>,
    /// Time limit from the request sent to the head of the response, or `"unlimited"`. Default: the
    /// upstream's `timeouts.response_header`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_header_timeout: Option<Bound<Timespan>>,
    /// How long no byte of a response, or of a tunnel (WebSocket) in either direction, may move, or
    /// `"unlimited"` for streams that may be silent, such as Kubernetes watches. Default: the
    /// upstream's `timeouts.stall` for responses, the listener's `timeouts.idle` for tunnels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Bound<Timespan>>,
    /// What happens to a WebSocket, an event stream or a long response when its token or client
    /// certificate expires. A revocation closes it in any case, also after the expiry, and so does
    /// the end of a session.
    #[serde(default)]
    pub on_expiry: OnExpiry,
    /// Protocols that a connection may be switched to (`Upgrade`).
    #[serde(default = "upgrades")]
    pub upgrades: Vec<String>,
    /// Whether the handshake of a WebSocket may carry its bearer token as a protocol
    /// (`Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.TOKEN`, in base64url),
    /// because pages cannot set `Authorization`. It is removed before forwarding. Proxies in front
    /// may log it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub websocket_bearer: bool,
    /// Origins, such as `https://app.example:8443`, whose pages may open a WebSocket here with a
    /// session or a client certificate. A browser sends both for any page. Pages with the scheme,
    /// host and port of the request are always allowed. Other pages are refused with 403. A request
    /// without `Origin` does not come from a browser, and passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub websocket_origins: Vec<String>,
}

/// Which paths a route serves that servers read in different ways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Paths {
    /// Those that lead to the same decision in every reading. They are forwarded unchanged.
    #[default]
    Consistent,
    /// None with an escaped `/ \ ; ? #`, an empty segment or a dot segment.
    Strict,
}

/// Which clients without a credential are redirected to log in. Others get 401.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoginRedirect {
    /// Browsers that navigate to a page.
    #[default]
    Browsers,
    /// All but those that say that they are programs. For checks of a proxy that passes on neither
    /// `Accept` nor `Sec-Fetch-Mode`.
    All,
    /// None. For routes of an API, and for a route in place of the login's `auth`.
    None,
}

impl From<LoginRedirect> for login::config::LoginRedirect {
    fn from(raw: LoginRedirect) -> Self {
        match raw {
            LoginRedirect::Browsers => Self::Browsers,
            LoginRedirect::All => Self::All,
            LoginRedirect::None => Self::None,
        }
    }
}

/// How a route uses user names and passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BasicAuthUse {
    /// They are accepted from clients that send them unasked. A browser never asks its user for a
    /// password.
    Accept,
    /// They are accepted, and 401 asks for them: a browser shows its password dialog.
    Challenge,
}

/// What happens to an exchange when its credential expires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnExpiry {
    /// The exchange is closed within a second.
    #[default]
    Close,
    /// The exchange continues.
    Keep,
}

fn upgrades() -> Vec<String> {
    vec!["websocket".into()]
}

/// What identifies a client whose requests go to the same endpoint: exactly one of `cookie`,
/// `header` and `user`. If the endpoint is gone or unhealthy, its clients are spread over the
/// others; no other client moves.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Affinity {
    /// Name of a cookie that the gateway sets. Its value is random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// How long browsers keep the cookie. Default: until they are closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Timespan>,
    /// Header whose value identifies the client. Requests without it have no affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<FieldName>,
    /// Whether the authenticated caller is the client.
    pub user: bool,
}

/// Value that a header or a query parameter must have.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HeaderValue {
    /// Exactly this value.
    Exact(String),
    /// Any value.
    Present(Present),
}

/// Any value.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Present {
    /// Always `true`.
    pub present: bool,
}

/// Paths that a route matches. Exactly one of the keys must be set.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Path {
    /// The path and everything below it, on a segment boundary: `/api` matches `/api` and
    /// `/api/v1`, not `/apis`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// This path only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// Path with `{name}` for one segment, or `{name...}` for the rest: `/users/{id}/photo`,
    /// `/files/{path...}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// Path prefix and its replacement.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplacePrefix {
    /// Prefix to remove.
    pub from: String,
    /// Prefix to insert in its place; empty: none.
    pub to: String,
}

/// Redirect to another URL. At least one of the keys for its parts must be set; those that are
/// absent are those of the request. The query stays.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// Scheme: `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<UrlScheme>,
    /// Host, without a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Port. Default: the scheme's if `scheme` or `host` is set, otherwise the request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Path that replaces the request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Path that replaces the prefix of the route. Excludes `path`, and needs a route with
    /// `path.prefix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Status: 301, 302, 303, 307 or 308. 301 and 308 are permanent: browsers keep them for an
    /// hour. With 307 and 308 the method stays.
    #[serde(default = "found")]
    #[schemars(range(min = 301, max = 308))]
    pub status: u16,
    /// Whether a redirect to the request's own address is sent. Browsers then stop after some twenty
    /// repetitions. Default: the request gets 508.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_loop: bool,
}

fn found() -> u16 {
    302
}

/// Scheme of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UrlScheme {
    /// Plain text.
    Http,
    /// TLS.
    Https,
}

/// Fixed response.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Respond {
    /// Status, from 200 to 599.
    #[schemars(range(min = 200, max = 599))]
    pub status: u16,
    /// Body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// File with the body, instead of `body`. It is read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// `Content-Type` of the body.
    #[serde(default = "plain_text")]
    pub content_type: String,
}

fn plain_text() -> String {
    "text/plain; charset=utf-8".into()
}

/// Name of a policy, or a policy itself.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PolicyChoice {
    /// Name of a policy in `[policies]`.
    Named(String),
    /// A policy for this route only.
    Inline(Policy),
}

/// Who may pass. At least one `allow` rule must match, and no `deny` rule may match.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Rules, at least one of which must match.
    #[schemars(length(min = 1))]
    pub allow: Vec<Rule>,
    /// Rules, none of which may match. They win over `allow`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Rule>,
}

/// Conditions that must all be true. At least one.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// True for every caller with a valid credential. No other condition has this effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub authenticated: bool,
    /// Groups of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Choice>,
    /// OAuth scopes of the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Choice>,
    /// User names, one of which the caller must have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub users: Vec<String>,
    /// Subjects, one of which the caller must have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub subjects: Vec<String>,
    /// E-mail addresses, one of which the caller must have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub emails: Vec<String>,
    /// Domains such as `example.com`, one of which the caller's e-mail address must have.
    /// Subdomains do not match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub email_domains: Vec<String>,
    /// OAuth clients, one of which the token must be issued to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub clients: Vec<String>,
    /// Names of issuers, authorities, login providers, of `[client_certificates]` or of
    /// `[basic_auth]`, one of which must have authenticated the caller.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub issuers: Vec<Name>,
    /// Kinds of credential, one of which the caller must have used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub credentials: Vec<Credential>,
    /// Request methods, one of which the request must have. GET covers HEAD.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub methods: Vec<Method>,
    /// Networks, one of which must contain the client's address, as the access log has it. An
    /// unknown address never matches an `allow` rule, and is in every network for a `deny` rule.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub addresses: Vec<Network>,
    /// Part of the week in which the request must arrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeWindow>,
    /// Further claims by path. Such a claim is kept from the token, also when `keep` does not list
    /// it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, Choice>,
    /// Query parameters by name. A parameter that is repeated, or whose spelling servers may read
    /// differently, refuses the request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, Choice>,
}

/// Part of the week. At least one of `days`, `from` and `to`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimeWindow {
    /// Days on which the window begins. Default: every day.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub days: Vec<Day>,
    /// Beginning, which belongs to the window. Default: midnight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<ClockTime>,
    /// End, which no longer belongs to the window. If it is earlier than `from`, it is on the next
    /// day. Default: the end of the day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<ClockTime>,
    /// Time zone of the times and days: `"UTC"`, or an offset from it such as `"+01:00"`. There is
    /// no daylight saving time.
    pub zone: ZoneOffset,
}

/// Day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Day {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

/// Values, one of which must occur, or a more specific choice.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Choice {
    /// One of these values must occur. Short for `{ any = [...] }`.
    Any(#[schemars(length(min = 1))] Vec<String>),
    /// A more specific choice.
    Sets(Sets),
}

/// Values that must occur. Set at least one of the three keys; all that are set must be true.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sets {
    /// Values, one of which must occur.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub any: Vec<String>,
    /// Values that must all occur.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub all: Vec<String>,
    /// Whether any value must occur.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub present: bool,
}

/// Kind of credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Credential {
    /// Signed JSON Web Token.
    Jwt,
    /// Token that a token authority validated.
    Opaque,
    /// Browser session.
    Session,
    /// TLS client certificate.
    Certificate,
    /// User name and password.
    Basic,
}

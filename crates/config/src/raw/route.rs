//! Tables of `[[route]]` and `[policies]`: protected resources, and who may reach them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Bound, ByteSize, Method, Name, Timespan};
use super::AccessReview;
use super::default::{bound_mib, bound_secs, yes};

/// Protected resource: which requests it matches, who may pass, and where they go. A route has a
/// `policy` or an `access_review`, or both, or it has `public = true`. A route without any of these
/// is refused.
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
    /// Methods that the route matches. Default: every method. GET covers HEAD.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub methods: Vec<Method>,
    /// Headers that a request must have. They select a route and protect nothing, because clients
    /// write them. A request is refused with 400 if it has one of them more than once, in another
    /// spelling, or named by `Connection`: the service could read another value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, HeaderValue>,
    /// Name of the upstream that the route forwards to. May be absent only if every listener has an
    /// `authorization`, because other proxies then forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Name>,
    /// Opens the route to every client, without a credential. Excludes `policy`, `access_review`
    /// and `login`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub public: bool,
    /// Who may pass: the name of a policy, or a policy written here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyChoice>,
    /// Name of an authorizer that is queried in addition, once the policy permits, or for every
    /// request if the route is public. It is queried about the original request, before its path is
    /// changed. Not allowed in a file with a listener that has an `authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorizer: Option<Name>,
    /// Access review that Kubernetes answers when no rule of the policy decides. Without a policy,
    /// it is sent for every caller with a valid credential. Needs `[kubernetes]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_review: Option<AccessReview>,
    /// Path prefix to remove before forwarding, on a segment boundary. All routes to the same
    /// upstream that match the new path, for any host, must permit the request too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strip_prefix: Option<String>,
    /// Path prefix to replace before forwarding. Otherwise like `strip_prefix`, and excludes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_prefix: Option<ReplacePrefix>,
    /// Whether a browser session is a credential here, and a browser without one is sent to log in.
    /// A browser sends its session with every request that any page triggers, so do not set this on
    /// a route for programs only. Needs `[login]`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub login: bool,
    /// Whether the upstream receives the access token of a session, as `X-Forwarded-Access-Token`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forward_access_token: bool,
    /// Whether the client's `Authorization` header is forwarded to the upstream.
    #[serde(default)]
    pub forward_authorization: bool,
    /// Whether the upstream receives the client's `Host` instead of the endpoint's own name.
    #[serde(default = "yes")]
    pub preserve_host: bool,
    /// Largest request body, or `"unlimited"`.
    #[serde(default = "bound_mib::<64>")]
    pub body_size: Bound<ByteSize>,
    /// Time from the decision to forward a request to the last byte of its response, or
    /// `"unlimited"` for streams. Earlier steps have their own limits: the listener's for request
    /// heads, and 5s for each wait for keys.
    #[serde(default = "bound_secs::<60>")]
    pub request_timeout: Bound<Timespan>,
    /// What happens to a WebSocket, an event stream or a long response when its token or client
    /// certificate expires. A revocation closes it in any case, also after the expiry, and so does
    /// the end of a session.
    #[serde(default)]
    pub on_expiry: OnExpiry,
    /// Protocols that a connection may be switched to (`Upgrade`).
    #[serde(default = "upgrades")]
    pub upgrades: Vec<String>,
    /// Origins, such as `https://app.example:8443`, whose pages may open a WebSocket here with a
    /// session or a client certificate. A browser sends both for any page. Pages with the scheme,
    /// host and port of the request are always allowed. Other pages are refused with 403. A request
    /// without `Origin` does not come from a browser, and passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub websocket_origins: Vec<String>,
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

/// Value that a header must have.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HeaderValue {
    /// Exactly this value.
    Exact(String),
    /// Any value of this header.
    Present(Present),
}

/// Any value of the header.
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
    /// Prefix to insert in its place.
    pub to: String,
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
    /// OAuth clients, one of which the token must be issued to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub clients: Vec<String>,
    /// Names of issuers, authorities, login providers or of `[client_certificates]`, one of which
    /// must have authenticated the caller.
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
    /// Further claims by path. Such a claim is kept from the token, also when `keep` does not list
    /// it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, Choice>,
    /// Query parameters by name. A parameter that is repeated, or whose spelling servers may read
    /// differently, refuses the request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, Choice>,
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
}

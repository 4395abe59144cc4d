//! What is protected, and by whom it may be reached.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{Bound, ByteSize, Method, Name, Timespan};
use super::Review;
use super::default::{bound_mib, bound_secs, yes};

/// One protected resource: which requests, who may, and where they go. It has a `policy` or a `review`, or both, or it
/// says `public = true`; there is nothing else.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a key of the file, and means nothing to the others"
)]
pub struct Route {
    /// Names it in logs, metrics and `check`.
    pub name: Name,
    /// Hosts, without a port: `app.example`, `*.app.example` for any name below it, or `*` for every host. Absent: every host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub hosts: Vec<String>,
    /// Paths. Absent: every path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Path>,
    /// Methods. Absent: every method. GET covers HEAD.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub methods: Vec<Method>,
    /// Headers that must be there. They choose between routes and protect nothing: clients write them. A request in which
    /// one of them is there more than once, in another spelling, or named by `Connection`, is answered 400: the service
    /// could read another value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, HeaderValue>,
    /// Name of the upstream that answers. Only where every listener has an `authorization` may it be absent: other proxies
    /// forward then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Name>,
    /// The only way to be open: no credential is asked for. Excludes `policy`, `review` and `login`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub public: bool,
    /// Who may: the name of a policy, or a policy written here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyChoice>,
    /// Name of an authorizer that is asked as well, once the policy permits, or of every request where the route is public. What it
    /// is asked about is the request as it came, before its path is changed. Not
    /// beside a listener with an `authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorizer: Option<Name>,
    /// What Kubernetes is asked when no rule of the policy decides. Without a policy, it is asked about every caller with a valid
    /// credential. Needs `[kubernetes]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<Review>,
    /// Leading path taken off before forwarding, on a segment boundary. Routes that guard the new path on the
    /// same upstream, for any host, have to agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strip_prefix: Option<String>,
    /// Leading path replaced before forwarding, on a segment boundary, else like `strip_prefix`. Excludes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_prefix: Option<ReplacePrefix>,
    /// Whether a browser's session is a credential here, and whoever comes with a browser and without one is sent to log in. A
    /// session comes along with whatever a page makes a browser ask for, so leave it out where only programs come. Needs `[login]`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub login: bool,
    /// Whether the upstream is given the access token of a session, as `X-Forwarded-Access-Token`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forward_access_token: bool,
    /// Whether the client's `Authorization` reaches the upstream.
    #[serde(default)]
    pub forward_authorization: bool,
    /// Whether the upstream sees the client's `Host` instead of the endpoint's own name.
    #[serde(default = "yes")]
    pub preserve_host: bool,
    /// Largest request body, or `"unlimited"`.
    #[serde(default = "bound_mib::<64>")]
    pub body_size: Bound<ByteSize>,
    /// From the decision to forward a request to the last byte of its response, or `"unlimited"` for streams. What
    /// comes before has its own limits: the listener's for heads, 5s for each wait for keys.
    #[serde(default = "bound_secs::<60>")]
    pub request_timeout: Bound<Timespan>,
    /// What becomes of a WebSocket, an event stream or a long answer that outlasts the token or client certificate that let it in. Revoking
    /// the token closes it either way, also after its end, and so does the end of a session.
    #[serde(default)]
    pub on_expiry: OnExpiry,
    /// Protocols a connection may be switched to (`Upgrade`).
    #[serde(default = "upgrades")]
    pub upgrades: Vec<String>,
    /// Origins, such as `https://app.example:8443`, whose pages may open a WebSocket here with a session or a client
    /// certificate: a browser sends both along for any page. Pages of the request's own scheme, host and port always
    /// may. Other pages are refused with 403. A request without `Origin` comes from no browser, and passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub websocket_origins: Vec<String>,
}

/// What becomes of an exchange that outlasts its credential.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnExpiry {
    /// It is closed within a second.
    #[default]
    Close,
    /// It goes on.
    Keep,
}

fn upgrades() -> Vec<String> {
    vec!["websocket".into()]
}

/// What a header must look like.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HeaderValue {
    /// Exactly this value.
    Exact(String),
    /// Any value.
    Present(Present),
}

/// Any value at all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Present {
    /// Always `true`.
    pub present: bool,
}

/// Which paths; exactly one of these.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Path {
    /// The path and everything below it, on a segment boundary: `/api` matches `/api` and `/api/v1`, not `/apis`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// This path alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// A path with `{name}` for one segment, or `{name...}` for the rest: `/users/{id}/photo`,
    /// `/files/{path...}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// A leading path replaced by another.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplacePrefix {
    /// What is taken off.
    pub from: String,
    /// What is put in its place.
    pub to: String,
}

/// The name of a policy, or a policy.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PolicyChoice {
    /// A name from `[policies]`.
    Named(String),
    /// A policy for this route alone.
    Inline(Policy),
}

/// Who may. Some `allow` rule must hold and no `deny` rule may.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// One of these must hold.
    #[schemars(length(min = 1))]
    pub allow: Vec<Rule>,
    /// None of these may hold; they win over `allow`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Rule>,
}

/// Conditions that must all hold. At least one.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// Holds for every caller with a valid credential. The only way to say so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub authenticated: bool,
    /// The caller's groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Choice>,
    /// The token's OAuth scopes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Choice>,
    /// User names, one of which is the caller's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub users: Vec<String>,
    /// Subjects, one of which is the caller's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub subjects: Vec<String>,
    /// E-mail addresses, one of which is the caller's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub emails: Vec<String>,
    /// OAuth clients, one of which the token was issued to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub clients: Vec<String>,
    /// Names of issuers, authorities, login providers or of `[client_certificates]`, one of which vouches for the caller.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub issuers: Vec<Name>,
    /// Kinds of credential, one of which was shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub credentials: Vec<Credential>,
    /// Request methods, one of which is used. GET covers HEAD.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub methods: Vec<Method>,
    /// Further claims by path; such a claim is kept from the token without being asked for in `keep`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, Choice>,
    /// Query parameters by name. A parameter that is repeated, or spelt so that servers may disagree about it,
    /// refuses the request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, Choice>,
}

/// Values of which one must be there, or a finer choice.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Choice {
    /// One of these must be there; short for `{ any = [...] }`.
    Any(#[schemars(length(min = 1))] Vec<String>),
    /// A finer choice.
    Sets(Sets),
}

/// What must be there. At least one of the three; all that are given must hold.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sets {
    /// One of these must be there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub any: Vec<String>,
    /// All of these must be there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub all: Vec<String>,
    /// Something must be there, whatever it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub present: bool,
}

/// A kind of credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Credential {
    /// A signed JSON Web Token.
    Jwt,
    /// A token that an authority was asked about.
    Opaque,
    /// A session of a browser.
    Session,
    /// A TLS client certificate.
    Certificate,
}

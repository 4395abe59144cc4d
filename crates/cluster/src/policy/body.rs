//! Fields of the body of an AccessPolicy.
//!
//! Owns: the fields with their descriptions, which become the definition of the kind, and whether
//! they fit together. Does not own: what a field means (`config`), and whether what it names exists.

use config::{Bound, ByteSize, Name, Timespan, raw};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BodyFault;

/// Who may pass, and how they prove who they are. One of `allow`, `policy`, `access_review`,
/// `access_reviews` and `public` must be set.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyBody {
    /// Rules, at least one of which must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub allow: Option<Vec<raw::Rule>>,
    /// Rules, none of which may match. They win over `allow`, which they need.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub deny: Option<Vec<raw::Rule>>,
    /// Name of a policy of the operator (`[policies]`), instead of `allow` and `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Opens the route to every client, without a credential. Excludes rules, access reviews and
    /// `login`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<bool>,
    /// Access review that Kubernetes answers when no rule decides. Without rules, it is sent for
    /// every caller with a valid credential. Needs `[kubernetes]` of the operator. Values may also
    /// contain `{route.namespace}`, `{route.name}` and `{route.labels.KEY}` of the HTTPRoute or
    /// GRPCRoute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_review: Option<raw::AccessReview>,
    /// Several access reviews in place of `access_review`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_reviews: Option<raw::AccessReviews>,
    /// Name of an authorizer of the operator that is queried in addition, once the rules permit, or
    /// for every request if the policy is public.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorizer: Option<Name>,
    /// Text for clients that are forbidden the route (403): the `detail` of the problem document,
    /// and a part of the page that browsers get. Plain text. Default: a general text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied_detail: Option<String>,
    /// Whether a browser session is a credential here, and a browser without one is sent to log in.
    /// A browser sends its session with every request that any page triggers, so do not set this on
    /// a route for programs only. Needs `[login]` of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<bool>,
    /// Which clients without a credential are sent to log in. Needs `login`. Default: `browsers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login_redirect: Option<raw::LoginRedirect>,
    /// Whether a user name and a password of the operator's `[basic_auth]` are a credential here
    /// (HTTP Basic). Default: they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<raw::BasicAuthUse>,
    /// Whether the service receives the access token of a session, as `X-Forwarded-Access-Token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_access_token: Option<bool>,
    /// Whether the client's `Authorization` header is forwarded to the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_authorization: Option<bool>,
    /// Whether an `Authorization` header that is not for the gateway is forwarded beside a valid
    /// session: Basic, or a token that no issuer and no token authority is configured for. For
    /// applications with tokens of their own. Needs `login`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application_authorization: Option<bool>,
    /// Security headers of responses, instead of those of the operator for all routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_headers: Option<raw::SecurityHeadersChoice>,
    /// What happens to a WebSocket, an event stream or a long response when its token or client
    /// certificate expires. Default: `close`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<raw::OnExpiry>,
    /// Whether the handshake of a WebSocket may carry its bearer token as a protocol
    /// (`Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.TOKEN`, in base64url),
    /// because pages cannot set `Authorization`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub websocket_bearer: Option<bool>,
    /// Origins, such as `https://app.example:8443`, whose pages may open a WebSocket here with a
    /// session or a client certificate. Pages with the scheme, host and port of the request are
    /// always allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub websocket_origins: Option<Vec<String>>,
    /// Which paths are served that servers read in different ways, such as `/a%2Fb`, `/a//b` or
    /// `/a/../b`. Default: `consistent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths: Option<raw::Paths>,
    /// Largest request body, or `unlimited`. Default: `64MiB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_size: Option<Bound<ByteSize>>,
    /// How long no byte of a response, or of a tunnel (WebSocket) in either direction, may move, or
    /// `unlimited` for streams that may be silent. Default: the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Bound<Timespan>>,
}

impl PolicyBody {
    /// Whether the fields fit together.
    ///
    /// # Errors
    /// The first combination that means nothing, or more than one thing.
    pub(super) fn check(&self) -> Result<(), BodyFault> {
        let is_public = self.public == Some(true);
        let has_login = self.login == Some(true);
        let sources = [
            ("allow", self.allow.is_some()),
            ("deny", self.deny.is_some()),
            ("policy", self.policy.is_some()),
            ("access_review", self.access_review.is_some()),
            ("access_reviews", self.access_reviews.is_some()),
        ];
        let source = sources.into_iter().find_map(|(name, is_set)| is_set.then_some(name));
        if let (true, Some(other)) = (is_public, source.or(has_login.then_some("login"))) {
            return Err(BodyFault::Public(other));
        }
        if self.policy.is_some() && (self.allow.is_some() || self.deny.is_some()) {
            return Err(BodyFault::Twice);
        }
        if self.deny.is_some() && self.allow.is_none() {
            return Err(BodyFault::OnlyDeny);
        }
        if self.access_review.is_some() && self.access_reviews.is_some() {
            return Err(BodyFault::BothReviews);
        }
        if !is_public && source.is_none() {
            return Err(BodyFault::Nobody);
        }
        let redirects = self.login_redirect.is_some_and(|to| to != raw::LoginRedirect::Browsers);
        let needs_login = [
            ("login_redirect", redirects),
            ("application_authorization", self.application_authorization == Some(true)),
        ];
        match needs_login.into_iter().find(|(_, is_set)| *is_set && !has_login) {
            Some((name, _)) => Err(BodyFault::NeedsLogin(name)),
            None => Ok(()),
        }
    }
}

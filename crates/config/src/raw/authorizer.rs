//! Tables of `[[authorizer]]`: external services that authorize requests before they are forwarded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{ByteSize, FieldName, Name, Timespan};
use super::Asking;
use super::default::{mib, secs};

/// External authorization service that is queried before a request is forwarded: oauth2-proxy,
/// another Postern, or any service that answers Envoy's `ext_authz` over HTTP or nginx's
/// `auth_request`. A route names it with `authorizer`. A 2xx response permits the request. Any
/// other response is sent to the client unchanged. If there is no response, the client gets 503.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Authorizer {
    /// Name of the authorizer in routes, metrics and logs.
    pub name: Name,
    /// Name of its upstream. Queries are requests to that upstream, so its endpoints, TLS, health
    /// checks and request limits apply.
    pub upstream: Name,
    /// How a query describes the original request. The query always has the host of that request.
    #[serde(default = "envoy")]
    pub http: Asking,
    /// Prefix before the path of the original request. Only with `http = "envoy"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_prefix: Option<String>,
    /// Path of the query, which is sent with `GET`, such as `/oauth2/auth`. Required with
    /// `http = "x-original"` or `"x-forwarded"`, and only allowed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Timeout of a query, including connecting.
    #[serde(default = "secs::<3>")]
    pub timeout: Timespan,
    /// Headers of the client that the query contains. It never contains a body. Headers in which a
    /// client claims an identity or an origin (`X-Forwarded-*` and similar) cannot be listed:
    /// `X-Forwarded-For`, `-Proto` and `-Host` are set by the gateway.
    #[serde(default = "shown")]
    pub request_headers: Vec<FieldName>,
    /// Headers of the response that the service receives in place of the client's. A client's
    /// header with one of these names is removed on every route, except `Authorization` on a route
    /// with `forward_authorization`. `Authorization` may be listed: then the service receives the
    /// authorizer's token in place of the client's. Default: the names of both styles of
    /// `[identity_headers]`, its `fields`, and `X-Postern-Assertion` if this gateway sets no
    /// assertion itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_headers: Option<Vec<FieldName>>,
    /// Longest time that a response is cached. Only a response that permits it
    /// (`Cache-Control: max-age`) is cached, keyed by everything that the query contained. `"0s"`:
    /// none is cached.
    #[serde(default = "secs::<10>")]
    pub max_age: Timespan,
    /// Longest time that a response is cached that states which revocations end it (from another
    /// Postern with `max_age`). This applies while the issuer of these revocations is followed
    /// here. `"0s"`: none is cached.
    #[serde(default = "secs::<60>")]
    pub max_age_with_revocation: Timespan,
    /// Memory for cached responses, over all workers.
    #[serde(default = "mib::<16>")]
    pub cache_size: ByteSize,
}

fn envoy() -> Asking {
    Asking::Envoy
}

fn shown() -> Vec<FieldName> {
    gateway::config::DEFAULT_SHOWN_FIELDS.iter().map(|name| FieldName((*name).into())).collect()
}

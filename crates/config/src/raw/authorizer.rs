//! Who is asked, before a request is forwarded, whether it may be.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{ByteSize, FieldName, Name, Timespan};
use super::Asking;
use super::default::{mib, secs};

/// Somebody who is asked, before a request is forwarded, whether it may be (external authorization): oauth2-proxy, another Postern,
/// whatever answers Envoy's `ext_authz` over HTTP or nginx's `auth_request`. A route names it with `authorizer`. Success (2xx) is
/// leave to forward; every other answer is given to the client as it is; where there is none, that is 503.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Authorizer {
    /// Names it in routes, metrics and logs.
    pub name: Name,
    /// Name of the upstream where it is. Questions are requests to that: its endpoints, TLS, health, and how many may be under
    /// way at once are theirs.
    pub upstream: Name,
    /// How a question says which request it is about, always for the host of that request.
    #[serde(default = "envoy")]
    pub http: Asking,
    /// What is put before the path of the request in question. With `http = "envoy"` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_prefix: Option<String>,
    /// What is asked for with `GET`, such as `/oauth2/auth`. With `http = "x-original"` or `"x-forwarded"`, and only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// From asking to the whole answer, connecting included.
    #[serde(default = "secs::<3>")]
    pub timeout: Timespan,
    /// Headers of the client that it is shown. Never a body. What a client says who it is or where it comes from (`X-Forwarded-*` and
    /// its like) cannot be shown: `X-Forwarded-For`, `-Proto` and `-Host` are the gateway's own.
    #[serde(default = "shown")]
    pub request_headers: Vec<FieldName>,
    /// Headers of its answer that the service is given, in place of whatever the client sent; no client's pass under these
    /// names on any route, but for `Authorization` where a route has `forward_authorization`. Absent: those of both styles of `[identity_headers]`, those configured there, and
    /// `X-Postern-Assertion` where this gateway makes none itself. `Authorization` may be among them: a token that the authorizer
    /// has for the service, in place of the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_headers: Option<Vec<FieldName>>,
    /// How long an answer is kept at most. Kept is only what says so itself (`Cache-Control: max-age`), under all that the
    /// authorizer was told of the request. `"0s"`: nothing is.
    #[serde(default = "secs::<10>")]
    pub max_age: Timespan,
    /// How long an answer is kept at most that says by which revocations it ends (another Postern's with `max_age`), while the
    /// issuer that tells of those is followed here. `"0s"`: nothing is.
    #[serde(default = "secs::<60>")]
    pub max_age_followed: Timespan,
    /// Memory for answers, over all workers.
    #[serde(default = "mib::<16>")]
    pub cache_size: ByteSize,
}

fn envoy() -> Asking {
    Asking::Envoy
}

fn shown() -> Vec<FieldName> {
    gateway::config::SHOWN.iter().map(|name| FieldName((*name).into())).collect()
}

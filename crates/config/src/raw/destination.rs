//! Tables of `route.upstreams` and `route.mirror`: several upstreams of one route.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{ByteSize, Name};
use super::default::{count32, kib};
use super::{RequestHeaders, ResponseHeaders};

/// One of several upstreams. Exactly one of `upstream` and `status` must be set.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedUpstream {
    /// Name of the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Name>,
    /// Status that the gateway answers instead of forwarding, to requests that are permitted: 500 or
    /// 503.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 500, max = 503))]
    pub status: Option<u16>,
    /// Share of the requests, divided by the sum over all entries. 0: none.
    #[serde(default = "count32::<1>")]
    #[schemars(range(max = 1_000_000))]
    pub weight: u32,
    /// Changes of the headers of requests to this upstream, in addition to those of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_headers: Option<RequestHeaders>,
    /// Changes of the headers of its responses, in addition to those of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_headers: Option<ResponseHeaders>,
}

/// Upstream that gets copies of requests. Its responses are discarded.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// Name of the upstream. Its `max_requests` limits the copies in flight; further ones are
    /// dropped.
    pub upstream: Name,
    /// Share of the requests that are copied, in percent. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub percent: Option<u32>,
    /// Share of the requests that are copied, as a fraction. Excludes `percent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<Fraction>,
    /// How many bytes of a request body the mirror may lag behind. If it lags behind further, the
    /// copy is dropped.
    #[serde(default = "kib::<256>")]
    pub buffer_size: ByteSize,
}

/// Fraction of requests.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fraction {
    /// Numerator. At most the denominator.
    pub numerator: u32,
    /// Denominator.
    #[serde(default = "count32::<100>")]
    #[schemars(range(min = 1))]
    pub denominator: u32,
}

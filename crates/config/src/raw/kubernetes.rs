//! Tables of `[kubernetes]` and `access_review`: access reviews by a Kubernetes API server.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{ByteSize, Name, Timespan};
use super::default::{count, secs, yes};

/// Kubernetes API server that answers `SubjectAccessReview`s for routes with an `access_review`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kubernetes {
    /// URL of the API server.
    #[serde(default = "Kubernetes::in_cluster")]
    pub url: String,
    /// File with the bearer token of an account that may `create` `subjectaccessreviews`. Read
    /// again while it is in use. Default without `certificate` and with the default `url`: the
    /// token of the pod's service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// PEM file with the gateway's own client certificate, in place of a token. Needs `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// PEM file with the certificate authorities that verify the server's certificate. Default:
    /// those of the system; with the default `url`, those that pods get for their cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Confirms that queries over plain `http` to another machine are intended. An attacker on the
    /// network can then authorize any request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
    /// Name of the caller that the review contains.
    #[serde(default)]
    pub user: ReviewedName,
    /// Prefix of the name, like `--oidc-username-prefix` of the API server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user_prefix: String,
    /// Prefix of each group, like `--oidc-groups-prefix` of the API server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group_prefix: String,
    /// Token authorities of kind `token-review` that belong to this cluster. Names from them are
    /// used without a prefix, including `system:` names, and with their extra attributes. From
    /// other issuers, a reserved user name is refused and reserved groups are dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub token_authorities: Vec<Name>,
    /// How long a positive answer is cached.
    #[serde(default = "secs::<10>")]
    pub ttl: Timespan,
    /// How long a negative answer is cached.
    #[serde(default = "secs::<5>")]
    pub deny_ttl: Timespan,
    /// Timeout of a review. After it the request gets 503.
    #[serde(default = "secs::<3>")]
    pub timeout: Timespan,
    /// Largest number of reviews in flight. Further requests get 503.
    #[serde(default = "count::<128>")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_requests: usize,
    /// Largest number of reviews per second. Further requests get 503 at once. Default: only
    /// `max_requests` limits them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_per_second: Option<u32>,
    /// Whether the gateway watches roles and bindings, and service accounts if `token_authorities`
    /// are named. A change drops the cached answers that it concerns at once. Needs `list` and
    /// `watch` on these resources. Without that right only `ttl` and `deny_ttl` apply, and a metric
    /// shows it.
    #[serde(default = "yes")]
    pub watch: bool,
    /// Memory for cached answers, over all workers.
    #[serde(default = "cache_size")]
    pub cache_size: ByteSize,
}

impl Kubernetes {
    /// URL of the API server of the cluster that the pod runs in.
    pub fn in_cluster() -> String {
        "https://kubernetes.default.svc".into()
    }
}

fn cache_size() -> ByteSize {
    ByteSize(16 << 20)
}

/// Name of a caller that a review contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReviewedName {
    /// The user name, or the subject if there is none.
    #[default]
    User,
    /// The subject of the caller.
    Subject,
    /// The e-mail address. A caller without one is refused.
    Email,
}

/// Access review that Kubernetes answers when no rule decides: `resource` and its related keys, or
/// a `path` that belongs to no object. Values may contain `{path.NAME}` (captured by the route's
/// template), `{query.NAME}`, `{header.NAME}`, `{method}` (the verb for the request's method) and
/// `{path}`. A request that lacks such a value is refused. A repeated parameter or header causes
/// one review per value, and all answers must be positive.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessReview {
    /// Verb: `get`, `list`, `create` … Default: the verb for the request's method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// Resource, in the plural: `services`, `notebooks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Subresource of the resource, such as `proxy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// API group: `kubeflow.org`. Default: the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Version of the API, such as `v1`. Default: none is stated, which RBAC does not need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Namespace. Default: the whole cluster, which only a `ClusterRole` with a cluster-wide
    /// binding permits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object. Default: all objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path that belongs to no object, such as `/metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Several access reviews. Exactly one of the keys must be set, with at most 8 reviews.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessReviews {
    /// Reviews that must all be answered positively.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8))]
    pub all: Vec<AccessReview>,
    /// Reviews of which one must be answered positively. They are sent one after the other. A review
    /// for which the request lacks a value counts as negative.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8))]
    pub any: Vec<AccessReview>,
}

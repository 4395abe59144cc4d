//! The Kubernetes API server that says who may.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{ByteSize, Name, Timespan};
use super::default::{count, secs, yes};

/// The Kubernetes API server that answers `SubjectAccessReview`s for routes with a `review`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kubernetes {
    /// Of the API server.
    #[serde(default = "Kubernetes::in_cluster")]
    pub url: String,
    /// File with a bearer token of an account that may `create` `subjectaccessreviews`. Read again while it is in use. Absent,
    /// without `certificate`, and with the default `url`: where pods find the token of their service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// PEM file with a client certificate of the gateway's own, in place of a token. Needs `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// PEM file with the authorities that the server's certificate must come from. Absent: the system's; with the
    /// default `url`, where pods find their cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Says that asking over plain `http` at another machine is meant: whoever sits in between says who may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
    /// Which name of the caller Kubernetes is asked about.
    #[serde(default)]
    pub user: ReviewedName,
    /// Put before the name, as `--oidc-username-prefix` of the API server is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user_prefix: String,
    /// Put before each group, as `--oidc-groups-prefix` of the API server is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group_prefix: String,
    /// Authorities (`token-review`) that are this cluster: names they tell are taken without a prefix, `system:` ones too, with what they tell beside. From others, names that Kubernetes keeps for itself are not believed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub authorities: Vec<Name>,
    /// How long a yes is believed.
    #[serde(default = "secs::<10>")]
    pub ttl: Timespan,
    /// How long a no is believed.
    #[serde(default = "secs::<5>")]
    pub deny_ttl: Timespan,
    /// From asking to the whole answer; then the request is answered 503.
    #[serde(default = "secs::<3>")]
    pub timeout: Timespan,
    /// Reviews under way at once; further requests are answered 503.
    #[serde(default = "count::<128>")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_requests: usize,
    /// Reviews begun within a second; further requests are answered 503, and none of them waits. Absent: no bound but
    /// `max_requests`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_per_second: Option<u32>,
    /// Watch roles and bindings, and where `authorities` are named service accounts: a change drops the answers it concerns at
    /// once. Needs `list` and `watch` on them; without that right `ttl` and `deny_ttl` alone rule, and a metric says so.
    #[serde(default = "yes")]
    pub watch: bool,
    /// Memory for answers, over all workers.
    #[serde(default = "cache_size")]
    pub cache_size: ByteSize,
}

impl Kubernetes {
    /// The cluster that a pod runs in.
    pub fn in_cluster() -> String {
        "https://kubernetes.default.svc".into()
    }
}

fn cache_size() -> ByteSize {
    ByteSize(16 << 20)
}

/// Which name of a caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReviewedName {
    /// The user name, or the subject where there is none.
    #[default]
    User,
    /// The subject.
    Subject,
    /// The e-mail address; whoever has none may not.
    Email,
}

/// What Kubernetes is asked about a request that no rule decides: `resource` and what belongs to it, or a `path` that is no
/// object's. Texts may hold `{path.NAME}` (captured by the route's template), `{query.NAME}`, `{header.NAME}`, `{method}` (the verb
/// for the request's method) and `{path}`. What a text needs and the request does not say refuses it; a parameter or header that is
/// repeated is asked about as often, and all answers must be yes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Review {
    /// What is done: `get`, `list`, `create` … Absent: what the method means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// Resource, in the plural: `services`, `notebooks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Subresource: `proxy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// API group: `kubeflow.org`. Absent: the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Namespace. Absent: the whole cluster, which only a `ClusterRole` bound for all of it allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object. Absent: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path that is no object's, such as `/metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

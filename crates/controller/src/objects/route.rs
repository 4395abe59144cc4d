//! Specs of HTTPRoute and GRPCRoute (Gateway API 1.6.3, experimental channel).
//!
//! Owns: the fields, as the API has them. Both kinds share the types of filters and backends, since
//! the filters of a GRPCRoute are a part of those of an HTTPRoute.
//! Does not own: what they mean ([`crate::rules`], [`crate::attach`]).
//! Flow: JSON → [`RouteSpec`].

#![allow(missing_docs, reason = "names and meaning of fields are those of the API")]

use serde::Deserialize;

use super::gateway::DefaultScope;
use super::reference::{BackendObjectReference, LocalReference, ParentReference};
use crate::names::{Name, NamespacedName};

/// The spec of a route of either kind.
#[derive(Clone, Debug, PartialEq)]
pub enum RouteSpec {
    Http(RouteOf<HttpRule>),
    Grpc(RouteOf<GrpcRule>),
}

impl RouteSpec {
    pub fn parents(&self) -> &[ParentReference] {
        match self {
            Self::Http(spec) => &spec.parent_refs,
            Self::Grpc(spec) => &spec.parent_refs,
        }
    }

    pub fn hostnames(&self) -> &[Name] {
        match self {
            Self::Http(spec) => &spec.hostnames,
            Self::Grpc(spec) => &spec.hostnames,
        }
    }

    /// Every Service that the route refers to: as backend, as mirror, for authorization. `namespace`
    /// is the one of the route.
    pub fn services(&self, namespace: &Name) -> Vec<NamespacedName> {
        let mut services = Vec::new();
        let mut add = |filters: &[FilterSpec], backends: &[BackendRef]| {
            for backend in backends {
                services.extend(backend.reference().service(namespace));
            }
            let nested = backends.iter().flat_map(|backend| &backend.filters);
            for reference in filters.iter().chain(nested).filter_map(FilterSpec::backend) {
                services.extend(reference.service(namespace));
            }
        };
        match self {
            Self::Http(spec) => {
                spec.rules.iter().for_each(|rule| add(&rule.filters, &rule.backend_refs));
            }
            Self::Grpc(spec) => {
                spec.rules.iter().for_each(|rule| add(&rule.filters, &rule.backend_refs));
            }
        }
        services.sort();
        services.dedup();
        services
    }

    /// Whether a rule has this name.
    pub fn has_rule(&self, name: &str) -> bool {
        match self {
            Self::Http(spec) => spec.rules.iter().any(|rule| rule.name.as_deref() == Some(name)),
            Self::Grpc(spec) => spec.rules.iter().any(|rule| rule.name.as_deref() == Some(name)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteOf<R> {
    #[serde(default)]
    pub parent_refs: Box<[ParentReference]>,
    pub use_default_gateways: Option<DefaultScope>,
    #[serde(default)]
    pub hostnames: Box<[Name]>,
    #[serde(default)]
    pub rules: Box<[R]>,
}

impl<R> Default for RouteOf<R> {
    fn default() -> Self {
        let (parent_refs, hostnames, rules) = (Box::default(), Box::default(), Box::default());
        Self { parent_refs, use_default_gateways: None, hostnames, rules }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRule {
    pub name: Option<Name>,
    #[serde(default)]
    pub matches: Box<[HttpMatch]>,
    #[serde(default)]
    pub filters: Box<[FilterSpec]>,
    #[serde(default)]
    pub backend_refs: Box<[BackendRef]>,
    pub timeouts: Option<Timeouts>,
    pub retry: Option<RetrySpec>,
    pub session_persistence: Option<SessionPersistence>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRule {
    pub name: Option<Name>,
    #[serde(default)]
    pub matches: Box<[GrpcMatch]>,
    #[serde(default)]
    pub filters: Box<[FilterSpec]>,
    #[serde(default)]
    pub backend_refs: Box<[BackendRef]>,
    pub session_persistence: Option<SessionPersistence>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpMatch {
    pub path: Option<PathSpec>,
    #[serde(default)]
    pub headers: Box<[ValueSpec]>,
    #[serde(default)]
    pub query_params: Box<[ValueSpec]>,
    pub method: Option<Name>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct PathSpec {
    #[serde(rename = "type")]
    pub of_type: Option<Name>,
    pub value: Option<Name>,
}

/// A match of a header or query parameter.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ValueSpec {
    #[serde(rename = "type")]
    pub of_type: Option<Name>,
    pub name: Name,
    pub value: Name,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct GrpcMatch {
    pub method: Option<GrpcMethodSpec>,
    #[serde(default)]
    pub headers: Box<[ValueSpec]>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct GrpcMethodSpec {
    #[serde(rename = "type")]
    pub of_type: Option<Name>,
    pub service: Option<Name>,
    pub method: Option<Name>,
}

/// A backend with its share of the requests. The reference is a part of the same JSON object; it is
/// repeated here, because flattened fields hide unknown ones.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct BackendRef {
    pub group: Option<Name>,
    pub kind: Option<Name>,
    pub name: Name,
    pub namespace: Option<Name>,
    pub port: Option<u16>,
    pub weight: Option<u32>,
    #[serde(default)]
    pub filters: Box<[FilterSpec]>,
}

impl BackendRef {
    /// The reference alone.
    pub fn reference(&self) -> BackendObjectReference {
        BackendObjectReference {
            group: self.group.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            port: self.port,
        }
    }
}

/// A filter: its type, and the settings of that type.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilterSpec {
    #[serde(rename = "type")]
    pub of_type: Name,
    pub request_header_modifier: Option<Box<HeaderModifierSpec>>,
    pub response_header_modifier: Option<Box<HeaderModifierSpec>>,
    pub request_mirror: Option<Box<MirrorSpec>>,
    pub request_redirect: Option<Box<RedirectSpec>>,
    pub url_rewrite: Option<Box<RewriteSpec>>,
    pub cors: Option<Box<CorsSpec>>,
    pub external_auth: Option<Box<ExternalAuthSpec>>,
    pub extension_ref: Option<Box<LocalReference>>,
}

impl FilterSpec {
    /// The Service that the filter itself sends requests to.
    pub fn backend(&self) -> Option<&BackendObjectReference> {
        let mirror = self.request_mirror.as_ref().map(|mirror| &mirror.backend_ref);
        mirror.or(self.external_auth.as_ref().map(|auth| &auth.backend_ref))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct HeaderModifierSpec {
    #[serde(default)]
    pub set: Box<[HeaderSpec]>,
    #[serde(default)]
    pub add: Box<[HeaderSpec]>,
    #[serde(default)]
    pub remove: Box<[Name]>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct HeaderSpec {
    pub name: Name,
    pub value: Name,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MirrorSpec {
    pub backend_ref: BackendObjectReference,
    pub percent: Option<u32>,
    pub fraction: Option<FractionSpec>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct FractionSpec {
    pub numerator: u32,
    pub denominator: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedirectSpec {
    pub scheme: Option<Name>,
    pub hostname: Option<Name>,
    pub path: Option<PathModifierSpec>,
    pub port: Option<u16>,
    pub status_code: Option<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct RewriteSpec {
    pub hostname: Option<Name>,
    pub path: Option<PathModifierSpec>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathModifierSpec {
    #[serde(rename = "type")]
    pub of_type: Name,
    pub replace_full_path: Option<Name>,
    pub replace_prefix_match: Option<Name>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CorsSpec {
    #[serde(default)]
    pub allow_origins: Box<[Name]>,
    pub allow_credentials: Option<bool>,
    #[serde(default)]
    pub allow_methods: Box<[Name]>,
    #[serde(default)]
    pub allow_headers: Box<[Name]>,
    #[serde(default)]
    pub expose_headers: Box<[Name]>,
    pub max_age: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalAuthSpec {
    pub protocol: Name,
    pub backend_ref: BackendObjectReference,
    pub grpc: Option<GrpcAuthSpec>,
    pub http: Option<HttpAuthSpec>,
    pub forward_body: Option<ForwardBodySpec>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcAuthSpec {
    #[serde(default)]
    pub allowed_headers: Box<[Name]>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAuthSpec {
    pub path: Option<Name>,
    #[serde(default)]
    pub allowed_headers: Box<[Name]>,
    #[serde(default)]
    pub allowed_response_headers: Box<[Name]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardBodySpec {
    pub max_size: Option<u16>,
}

/// Durations of GEP-2257, as text.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    pub request: Option<Name>,
    pub backend_request: Option<Name>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct RetrySpec {
    #[serde(default)]
    pub codes: Box<[u16]>,
    pub attempts: Option<u32>,
    pub backoff: Option<Name>,
}

/// Session persistence (GEP-1619, experimental). It is read, so that a rule that asks for it can be
/// refused by name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPersistence {
    pub session_name: Option<Name>,
    pub absolute_timeout: Option<Name>,
    #[serde(rename = "type")]
    pub of_type: Option<Name>,
    pub cookie_config: Option<CookieConfig>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CookieConfig {
    pub lifetime_type: Option<Name>,
}

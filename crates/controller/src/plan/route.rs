//! Rules of routes: one plan for each match of each rule, or for each path of an Ingress or Route.
//!
//! Owns: the types of matches, filters, backends with weights, and attachments with policies.
//! Does not own: how they are derived ([`crate::rules`], [`crate::attach`], [`crate::policies`]).
//! Flow: [`RoutePlan`] → a checked route of the data plane.

#![allow(missing_docs, reason = "fields without a comment are what the standard calls so")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::listener::{ListenerId, SocketId};
use super::upstream::{BackendTarget, ClientCertificate};
use crate::names::{Name, NamespacedName, ObjectKey};
use crate::objects::Seconds;
use crate::objects::core::Labels;

/// Which match of which rule of which route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanId {
    pub route: ObjectKey,
    /// Index of the rule in the route.
    pub rule: u16,
    /// Index of the match in the rule.
    pub matched: u16,
}

/// A match with what happens to its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutePlan {
    pub id: PlanId,
    /// The name of the rule.
    pub rule_name: Option<Name>,
    /// When the route was created, for the order between equally specific matches. [`Seconds::MAX`]
    /// for one that all others come before.
    pub created: Seconds,
    /// Labels of the route, which rules of policies may use.
    pub labels: Option<Arc<Labels>>,
    /// Where the match is served. Never empty.
    pub attachments: Arc<[Attachment]>,
    pub matches: MatchPlan,
    pub action: RuleAction,
    /// In the order of the route.
    pub filters: Arc<[FilterPlan]>,
    /// From the arrival of a request to the end of the response. Zero means no limit.
    pub request_timeout: Option<Duration>,
    /// The limit of one attempt at a backend. Zero means no limit.
    pub backend_timeout: Option<Duration>,
    pub retry: Option<RetryPlan>,
}

impl RoutePlan {
    /// Whether the response is for everybody wherever the match is served.
    pub fn is_exempt(&self) -> bool {
        self.attachments.iter().all(|one| one.policy == PolicyOutcome::Exempt)
    }

    /// Sorts matches that are equally specific: the oldest route, then by namespace and name, then
    /// the first rule, then the first match (Gateway API, `HTTPRouteRule.matches`).
    pub fn order(&self) -> PlanOrder<'_> {
        let PlanId { route, rule, matched } = &self.id;
        (self.created, &route.at, *rule, *matched)
    }
}

/// See [`RoutePlan::order`].
pub type PlanOrder<'a> = (Seconds, &'a NamespacedName, u16, u16);

/// A listener on which a match is served.
#[derive(Clone, Debug, PartialEq)]
pub struct Attachment {
    pub listener: ListenerId,
    pub socket: SocketId,
    /// Whether the listener is served. Otherwise it is not in the plan of its Gateway.
    pub is_served: bool,
    /// Exact names and wildcards that are in the hostnames of both the listener and the route. `None`
    /// matches every host that the listener does.
    pub hosts: Option<Arc<[Name]>>,
    pub policy: PolicyOutcome,
    /// What the Gateway of the listener shows upstreams.
    pub client_certificate: ClientCertificate,
}

/// The policy of a match on one listener.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyOutcome {
    /// No policy reaches the match. Requests are to be refused.
    None,
    /// A policy that reaches the match cannot be applied. Requests are to be refused, even if another
    /// policy is broader.
    Invalid(NamespacedName),
    Applied(PolicyPlan),
    /// The response is for everybody, whatever policies say: it leads to HTTPS, where they apply, or
    /// says that there is nothing.
    Exempt,
}

impl PolicyOutcome {
    /// Whether this policy applies.
    pub fn is_of(&self, policy: &NamespacedName) -> bool {
        matches!(self, Self::Applied(plan) if plan.policy == *policy)
    }
}

/// A policy that applies.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyPlan {
    pub policy: NamespacedName,
    /// The generation of the policy. With its name it says which version of the body this is.
    pub generation: i64,
    /// The body, `defaults` or `overrides`.
    pub body: Arc<Value>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchPlan {
    pub path: PathMatch,
    pub method: Option<Name>,
    /// Names are lower case. All must match.
    pub headers: Box<[ValueMatch]>,
    pub query: Box<[ValueMatch]>,
    /// Parameters that other matches of the route read, and whose names differ from those in `query`
    /// in their letter case only. The route distinguishes them.
    pub other_parameters: Box<[Name]>,
    /// Present for rules of a GRPCRoute, whose `path` is then unused.
    pub grpc: Option<GrpcMethodMatch>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    Exact(Name),
    /// By whole segments: `/api` matches `/api` and `/api/x`, and not `/apis`.
    Prefix(Name),
}

impl Default for PathMatch {
    fn default() -> Self {
        Self::Prefix(Name::from("/"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueMatch {
    pub name: Name,
    pub value: Name,
}

/// Absent parts match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrpcMethodMatch {
    pub service: Option<Name>,
    pub method: Option<Name>,
}

/// What happens to requests that pass the filters.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleAction {
    /// Forward to one of the backends by weight. Without backends, or with weights of zero only, the
    /// response is 500.
    Forward(Arc<[WeightedBackend]>),
    /// The filter [`FilterPlan::Redirect`] responds.
    Redirect,
    /// The rule cannot be applied as it is written. The response is 500.
    Fail,
    /// Nothing is at the paths of a host that none of its rules match. The response is 404.
    NotFound,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WeightedBackend {
    pub weight: u32,
    pub target: BackendTarget,
    pub filters: Arc<[FilterPlan]>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FilterPlan {
    RequestHeaders(HeaderModifier),
    ResponseHeaders(HeaderModifier),
    Redirect(RedirectFilter),
    Rewrite(RewriteFilter),
    Mirror(MirrorFilter),
    Cors(CorsFilter),
    ExternalAuth(ExternalAuthFilter),
}

/// Names are as the route has them; they match without regard to case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeaderModifier {
    pub set: Box<[(Name, Name)]>,
    pub add: Box<[(Name, Name)]>,
    pub remove: Box<[Name]>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PathModifier {
    Full(Name),
    /// Replaces what a [`PathMatch::Prefix`] matched.
    Prefix(Name),
}

/// Absent parts are those of the request.
#[derive(Clone, Debug, PartialEq)]
pub struct RedirectFilter {
    pub scheme: Option<Name>,
    pub hostname: Option<Name>,
    pub path: Option<PathModifier>,
    pub port: Option<u16>,
    pub status: u16,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RewriteFilter {
    pub hostname: Option<Name>,
    pub path: Option<PathModifier>,
}

/// Requests are copied to a backend whose responses are dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorFilter {
    pub target: BackendTarget,
    /// The share of requests: numerator and denominator, which is not zero.
    pub fraction: (u32, u32),
}

#[derive(Clone, Debug, PartialEq)]
pub struct CorsFilter {
    /// Exact origins, `*`, or one with a wildcard in the host.
    pub allow_origins: Box<[Name]>,
    pub allow_credentials: bool,
    pub allow_methods: Box<[Name]>,
    pub allow_headers: Box<[Name]>,
    pub expose_headers: Box<[Name]>,
    pub max_age: Duration,
}

/// GEP-1494.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalAuthFilter {
    pub target: BackendTarget,
    pub protocol: ExternalAuthProtocol,
    pub allowed_headers: Box<[Name]>,
    /// Longest body that is sent along, in bytes. `None`: no body.
    pub body: Option<u16>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExternalAuthProtocol {
    Grpc,
    Http { path: Option<Name>, allowed_response_headers: Box<[Name]> },
}

/// GEP-1731. Absent parts are for the data plane to choose.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPlan {
    pub codes: Box<[u16]>,
    pub attempts: Option<u32>,
    pub backoff: Option<Duration>,
}

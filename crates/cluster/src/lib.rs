//! The desired state of a Kubernetes cluster, in force at a gateway.
//!
//! Owns: the body of an AccessPolicy ([`policy`]) and the definition of that kind ([`crd`]), the
//! translation of a rule into a raw route (`raw_route`) and of its filter `ExternalAuth` into an
//! authorizer (`external_auth`), sockets with their certificates
//! (`sockets`), upstreams with their endpoints (`upstreams`), which routes have metrics of their own
//! (`route_metrics`), and the routing that all of this becomes ([`Compiler`]).
//! With the feature `connection` also: watching the objects, and writing status ([`connection`]).
//! Does not own: what the objects of the cluster mean (`controller`), the checks of a route
//! (`config`), how a version of the routing is put in force (`gateway::server`).
//!
//! Flow: `controller::World::derive → Changes → Compiler::apply → RoutesUpdate →
//! Gateway::update_routes`; what cannot be carried out goes back ([`Compiled::report`]), and comes into
//! the status of objects.

mod compiler;
#[cfg(feature = "connection")]
pub mod connection;
pub mod crd;
mod external_auth;
mod features;
mod numbers;
pub mod policy;
mod raw_route;
mod route_metrics;
mod sockets;
mod upstreams;

pub use compiler::{
    Compiled, Compiler, CompilerSettings, DefaultPolicy, FileBase, RuleFault, RuleProblem, UpstreamFault,
    check_match, rule_match, rule_name,
};
pub use features::SUPPORTED_FEATURES;
pub use route_metrics::{ROUTE_METRICS_LABEL, RouteMetricsMode};
pub use sockets::SocketFault;

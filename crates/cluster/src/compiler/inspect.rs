//! What has become of rules and listeners, for explanations.
//!
//! Owns: finding the route of a rule, and the listener of a host. Does not own: how they are compiled
//! (the parent).

use auth::policy::route::{RouteMatch, Scope};
use controller::plan::{Attachment, ListenerId, PlanId, RoutePlan, SocketId};

use super::{CompiledRule, Compiler, groups, rule_name};
use crate::raw_route;

impl Compiler {
    /// The listener of a socket that takes a host, and the scope in which its routes are looked up.
    /// `None`: no listener of the socket takes it.
    pub fn find_listener(&self, socket: &SocketId, host: &str) -> Option<(&ListenerId, Scope)> {
        self.sockets.find(socket, host, &self.routing)
    }

    /// The number of the route that a rule has at one of its attachments. `None`: it has none, since
    /// its match is not valid.
    pub fn route_at(&self, rule: &PlanId, attachment: &Attachment) -> Option<usize> {
        let CompiledRule { plan, routes: numbers, .. } = self.rules.get(rule)?;
        let served = groups(plan).into_iter().filter(|group| !self.places(group).is_empty());
        let is_same =
            |one: &Attachment| one.listener == attachment.listener && one.socket == attachment.socket;
        let found = served.zip(numbers).find(|(group, _)| group.attachments.iter().any(|one| is_same(one)));
        found.map(|(_, number)| *number)
    }
}

/// The conditions of a rule, without hosts.
pub fn rule_match(plan: &RoutePlan) -> RouteMatch {
    raw_route::matcher(&rule_name(&plan.id), &plan.matches)
}

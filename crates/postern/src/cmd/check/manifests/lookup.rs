//! Which route of a Gateway takes a request, for `--request`.

use auth::headers::Repeats;
use auth::policy::route::{AmbiguousRoute, RouteMatch, Scope};
use auth::request::{Canonical, Field, Scheme};
use controller::names::{Kind, NamespacedName};
use controller::plan::{Attachment, PolicyOutcome, RoutePlan, SocketId, SocketPlan, SocketProtocol};

use super::Manifests;
use super::routes::{self, Access};
use crate::cmd::check::matches;
use crate::cmd::check::outline::Outline;
use crate::exit::Failure;

/// Where the routes of a request are looked up.
pub(in crate::cmd::check) enum Place {
    /// Among those of the file.
    File,
    /// Among those of a listener.
    Listener(Scope),
    /// Nowhere: no listener of the Gateway takes the host.
    Nowhere,
}

/// The manifests, and the Gateway that receives the request, if the command line names one.
pub(in crate::cmd::check) struct GatewayLookup<'m> {
    pub(in crate::cmd::check) manifests: &'m Manifests,
    pub(in crate::cmd::check) gateway: Option<NamespacedName>,
}

impl GatewayLookup<'_> {
    /// Explains which listener receives the request.
    ///
    /// # Errors
    /// Returns a failure if several Gateways could receive it, or the named one is not there.
    pub(in crate::cmd::check) fn explain_listener(
        &self,
        story: &mut Outline,
        request: &Canonical<'_>,
    ) -> Result<Place, Failure> {
        story.part("listener");
        let (usual, protocol) = match request.scheme() {
            Scheme::Https => (443, SocketProtocol::Https),
            Scheme::Http => (80, SocketProtocol::Http),
        };
        let port = request.port().unwrap_or(usual);
        let Some(socket) = self.socket(port, protocol, request.host())? else {
            let message = format!(
                "no Gateway serves {} on port {port}; the routes of the file apply",
                scheme(protocol)
            );
            story.step(0, None, message);
            return Ok(Place::File);
        };
        let gateway = &socket.gateway;
        match self.manifests.state.compiler.find_listener(socket, request.host()) {
            Some((listener, scope)) => {
                let name = format!("listener {} of {}", listener.section, listener.parent);
                story.step(0, Some(true), format_args!("{name} takes {}, on port {port}", request.host()));
                Ok(Place::Listener(scope))
            }
            None => {
                let message =
                    format!("no listener of Gateway {gateway} on port {port} takes {}", request.host());
                story.step(0, Some(false), &message);
                story.refuse(404, "no_route", message);
                Ok(Place::Nowhere)
            }
        }
    }

    /// The socket that receives a request.
    fn socket(&self, port: u16, protocol: SocketProtocol, host: &str) -> Result<Option<&SocketId>, Failure> {
        let state = &self.manifests.state;
        if let Some(gateway) = &self.gateway
            && !state.desired.gateways.contains_key(gateway)
        {
            return Err(Failure::usage(format!("--gateway {gateway}: no such Gateway is served")));
        }
        let plans = state.desired.gateways.values();
        let meant = plans.filter(|plan| self.gateway.as_ref().is_none_or(|name| plan.gateway == *name));
        let sockets: Vec<&SocketPlan> = meant
            .flat_map(|plan| &plan.sockets)
            .filter(|socket| socket.id.port == port && socket.protocol == protocol)
            .collect();
        let has_host = |socket: &&&SocketPlan| state.compiler.find_listener(&socket.id, host).is_some();
        let mut takers: Vec<&&SocketPlan> = sockets.iter().filter(has_host).collect();
        // A Gateway that is only assumed takes every host.
        let is_written = |socket: &SocketPlan| {
            !state.assumptions.keys.contains(&socket.id.gateway.clone().of(Kind::Gateway))
        };
        if takers.iter().any(|socket| is_written(socket)) {
            takers.retain(|socket| is_written(socket));
        }
        match (&sockets[..], &takers[..]) {
            ([], _) => Ok(None),
            (_, [only]) => Ok(Some(&only.id)),
            ([first, ..], []) => Ok(Some(&first.id)),
            _ => {
                let names: Vec<String> = takers.iter().map(|socket| socket.id.gateway.to_string()).collect();
                let message = format!(
                    "several Gateways serve {host} on port {port}: {}; name one with --gateway",
                    names.join(", ")
                );
                Err(Failure::usage(message))
            }
        }
    }

    /// Explains for every route of a listener whether it takes the request. Answers the number of the
    /// one that does.
    ///
    /// # Errors
    /// [`AmbiguousRoute`], as when serving.
    pub(in crate::cmd::check) fn explain_routes(
        &self,
        story: &mut Outline,
        scope: Scope,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
    ) -> Result<Option<usize>, AmbiguousRoute> {
        story.part("route");
        let state = &self.manifests.state;
        let found = state.compiled.routing.table().lookup(scope, request, fields, Repeats::Separate);
        let mut chosen = None;
        for (plan, attachment) in self.at_listener(request.host(), scope) {
            let name = cluster::rule_name(&plan.id);
            let number = state.compiler.route_at(&plan.id, attachment);
            let matcher = RouteMatch { hosts: hosts(attachment), ..cluster::rule_match(plan) };
            if number.is_some() && matches!(found, Ok(route) if route == number) {
                story.step(0, Some(true), format_args!("{name} matches"));
                chosen = Some((plan, attachment));
            } else if matches::route_matches(matcher.clone(), request, fields) {
                story.step(0, None, format_args!("{name} matches too, but is less specific"));
            } else {
                let why = matches::first_mismatch(&matcher, request, fields);
                story.step(0, Some(false), format_args!("{name}: {why}"));
            }
        }
        if let (Some((plan, attachment)), Ok(Some(number))) = (chosen, &found) {
            let route = state.compiled.routing.route(*number);
            let access = if route.is_closed { Access::Closed } else { Access::Protected };
            story.part("policy");
            let holds = if route.is_closed { Some(false) } else { None };
            let source = routes::policy_source(state, plan, attachment, access);
            story.step(0, holds, format_args!("policy of the rule: {source}"));
            if route.is_closed {
                if let PolicyOutcome::Invalid(policy) = &attachment.policy
                    && let Some(fault) = state.world.known().access_faults.get(policy)
                {
                    story.step(1, None, &fault.message);
                }
                for fault in state.compiled.rules.iter().filter(|fault| fault.id.as_ref() == Some(&plan.id)) {
                    story.step(1, None, &fault.problem);
                }
                let why = "no access policy applies to this route, or the one that does is not valid";
                story.refuse(403, "no_policy", why);
            }
        }
        found
    }

    /// The rules at the listener that takes a host.
    fn at_listener(&self, host: &str, scope: Scope) -> impl Iterator<Item = (&RoutePlan, &Attachment)> {
        let state = &self.manifests.state;
        let plans = state.desired.plans.values();
        let each = plans.flat_map(|plan| plan.attachments.iter().map(move |one| (&**plan, one)));
        let is_there = move |one: &Attachment| {
            let listener = state.compiler.find_listener(&one.socket, host);
            listener.is_some_and(|(listener, own)| own == scope && *listener == one.listener)
        };
        each.filter(move |(_, attachment)| is_there(attachment)).collect::<Vec<_>>().into_iter()
    }
}

fn scheme(protocol: SocketProtocol) -> &'static str {
    match protocol {
        SocketProtocol::Https => "https",
        SocketProtocol::Http => "http",
    }
}

fn hosts(attachment: &Attachment) -> Vec<String> {
    attachment.hosts.iter().flat_map(|hosts| hosts.iter()).map(ToString::to_string).collect()
}

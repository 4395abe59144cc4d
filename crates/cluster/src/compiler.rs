//! Compiler: turns changes of the desired state into the next version of the routing.
//!
//! Owns: which number a rule, an upstream, a socket and a listener have, the order in which changes
//! are carried out, and what becomes of a rule that cannot be carried out. Does not own: the parts
//! themselves (the siblings), when a version is put in force.
//!
//! A rule becomes one route per policy that applies to it, and per client certificate that its
//! upstreams are shown, since it may be attached to listeners of different Gateways. A rule without a
//! policy, or with one that is not valid for it, keeps its matches and refuses its requests: no less
//! specific route takes them. A rule that is faulty otherwise answers 500.

mod inspect;
mod report;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use auth::policy::route::{CheckedRoute, HostSet, Order, RouteMatch, Scope};
use auth::time::Timestamp;
use config::{Fault, RouteChecker, raw};
use controller::names::NamespacedName;
use controller::plan::{
    Attachment, BackendTarget, Changes, ClientCertificate, FilterPlan, MatchPlan, PlanId, PolicyOutcome,
    PolicyPlan, RedirectFilter, RetryPlan, RoutePlan, RuleAction, SocketId, UpstreamKey,
};
use gateway::config::{Listener, Route, RouteRetries, Routing};
use http_engine::config::ListenAddress;
use http_engine::tls::policy::TlsPolicy;
use serde_json::{Map, Value, json};

pub use inspect::rule_match;

use crate::external_auth;
use crate::numbers::Numbers;
use crate::policy::{self, RouteFacts};
use crate::raw_route;
use crate::route_metrics::{RouteMetricsByObject, RouteMetricsMode};
use crate::sockets::{SocketFault, Sockets, Template};
use crate::upstreams::{DEFAULT_RETRIES, Upstreams};

/// What happens to requests for a rule that no policy applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultPolicy {
    /// They are refused with 403.
    Deny,
    /// Everybody may pass.
    Public,
}

/// What the operator decides about routes of the cluster.
pub struct CompilerSettings {
    /// What happens to requests for a rule that no policy applies to.
    pub default_policy: DefaultPolicy,
    /// Settings of the listeners of Gateways, whose name, address and TLS are replaced.
    pub listener: Listener,
    /// Versions, cipher suites and groups of TLS.
    pub tls: TlsPolicy,
    /// Zone of this process, for endpoints that are meant for zones.
    pub zone: Option<Box<str>>,
    /// Which routes have metrics of their own.
    pub route_metrics: RouteMetricsMode,
}

/// A rule that is not carried out as it is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {problem}")]
pub struct RuleFault {
    /// The rule.
    pub rule: Box<str>,
    /// What is wrong with it.
    pub problem: RuleProblem,
    /// The same rule; `None`: one of the gateway itself.
    pub id: Option<PlanId>,
}

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleProblem {
    /// The policy that does not fit the rule; `None`: it lies in the rule itself.
    pub policy: Option<NamespacedName>,
    /// A phrase.
    pub text: String,
}

impl RuleProblem {
    fn of(policy: &NamespacedName, text: String) -> Self {
        Self { policy: Some(policy.clone()), text }
    }
}

impl<T: Into<String>> From<T> for RuleProblem {
    fn from(text: T) -> Self {
        Self { policy: None, text: text.into() }
    }
}

impl fmt::Display for RuleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.policy {
            Some(policy) => write!(f, "AccessPolicy {policy}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// An upstream that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct UpstreamFault {
    /// Which one.
    pub key: UpstreamKey,
    /// A phrase that names it and says why.
    pub problem: String,
}

/// The next version.
pub struct Compiled {
    /// All routes.
    pub routing: Routing,
    /// The listeners of Gateways; `None`: they are the same as before.
    pub listeners: Option<Vec<Arc<Listener>>>,
    /// Rules that are not carried out as they are written, among those that have changed.
    pub rules: Vec<RuleFault>,
    /// Listeners that are not served, among those that have changed.
    pub sockets: Vec<SocketFault>,
    /// Upstreams that cannot be used, among those that have changed.
    pub upstreams: Vec<UpstreamFault>,
    /// Gateways that have not changed, and that lost an address to another one or got it back: they
    /// have no other faults than `sockets`.
    pub gateways: BTreeSet<NamespacedName>,
}

/// A configuration file, which everything else is compiled for.
#[derive(Clone)]
pub struct FileBase {
    /// Checks routes against the file.
    pub checker: RouteChecker,
    /// The routes of the file.
    pub routing: Routing,
}

/// The desired state as it is compiled.
pub struct Compiler {
    settings: CompilerSettings,
    base: FileBase,
    /// A route that refuses every request.
    closed: Route,
    routing: Routing,
    route_numbers: Numbers,
    upstream_numbers: Numbers,
    authorizer_numbers: Numbers,
    upstreams: Upstreams,
    sockets: Sockets,
    route_metrics: RouteMetricsByObject,
    rules: HashMap<PlanId, CompiledRule>,
}

/// A rule with what it has become.
struct CompiledRule {
    plan: Arc<RoutePlan>,
    /// Numbers of its routes.
    routes: Vec<usize>,
    /// Numbers of the authorizers that its filter `ExternalAuth` asks.
    authorizers: Vec<usize>,
}

/// Faults that are found on the way.
#[derive(Default)]
struct Found {
    rules: Vec<RuleFault>,
    sockets: Vec<SocketFault>,
    upstreams: Vec<UpstreamFault>,
    gateways: BTreeSet<NamespacedName>,
}

impl Compiler {
    /// A compiler for a configuration file, whose routes are `routing`.
    ///
    /// # Errors
    /// [`RuleFault`] when the file refuses even a route that answers 500.
    pub fn new(settings: CompilerSettings, base: FileBase, now: Timestamp) -> Result<Self, RuleFault> {
        let first = base.routing.first_free();
        Ok(Self {
            settings,
            closed: closed(&base.checker, now)?,
            routing: base.routing.clone(),
            base,
            route_numbers: Numbers::from(first.route),
            upstream_numbers: Numbers::from(first.upstream),
            authorizer_numbers: Numbers::from(first.authorizer),
            upstreams: Upstreams::default(),
            sockets: Sockets::default(),
            route_metrics: RouteMetricsByObject::default(),
            rules: HashMap::new(),
        })
    }

    /// Checks routes against the configuration file.
    pub fn checker(&self) -> &RouteChecker {
        &self.base.checker
    }

    /// Carries out changes. `address` finds the address on which a port of a Gateway is served.
    pub fn apply(
        &mut self,
        changes: &Changes,
        address: &dyn Fn(&SocketId) -> Option<ListenAddress>,
        now: Timestamp,
    ) -> Compiled {
        let mut found = Found::default();
        for plan in changes.upstreams.values() {
            let set = self.upstreams.set(plan, &mut self.upstream_numbers, &mut self.routing, now);
            found.upstreams.extend(set.err().map(|problem| UpstreamFault { key: plan.key.clone(), problem }));
        }
        for (key, endpoints) in &changes.endpoints {
            self.upstreams.set_endpoints(key, endpoints, self.settings.zone.as_deref());
        }
        let listener = &self.settings.listener;
        let template = Template { listener, tls: &self.settings.tls, address, now };
        for gateway in changes.gateways.values() {
            found.sockets.extend(self.sockets.set(gateway, &template, &mut self.routing));
        }
        for id in &changes.plans_removed {
            self.remove_rule(id);
        }
        for plan in changes.plans.values() {
            self.set_rule(plan, now, &mut found);
        }
        for key in &changes.upstreams_removed {
            self.upstreams.remove(key, &mut self.upstream_numbers, &mut self.routing);
        }
        for gateway in &changes.gateways_removed {
            self.sockets.remove(gateway, &mut self.routing);
        }
        let is_set = |gateway: &NamespacedName| changes.gateways.contains_key(gateway);
        let listener = &self.settings.listener;
        let template = Template { listener, tls: &self.settings.tls, address, now };
        found.gateways =
            self.sockets.settle_addresses(is_set, &template, &mut self.routing, &mut found.sockets);
        let has_listeners = !changes.gateways.is_empty() || !changes.gateways_removed.is_empty();
        self.compiled(has_listeners, found)
    }

    /// Compiles everything again for another configuration file. Answers also the former one.
    ///
    /// # Errors
    /// As [`Compiler::new`]; nothing changes then.
    pub fn rebase(
        &mut self,
        base: FileBase,
        address: &dyn Fn(&SocketId) -> Option<ListenAddress>,
        now: Timestamp,
    ) -> Result<(Compiled, FileBase), RuleFault> {
        let first = base.routing.first_free();
        self.closed = closed(&base.checker, now)?;
        self.routing = base.routing.clone();
        let former = std::mem::replace(&mut self.base, base);
        self.route_numbers = Numbers::from(first.route);
        self.upstream_numbers = Numbers::from(first.upstream);
        self.authorizer_numbers = Numbers::from(first.authorizer);
        let mut found = Found::default();
        self.upstreams.move_to(&mut self.upstream_numbers, &mut self.routing);
        let listener = &self.settings.listener;
        let template = Template { listener, tls: &self.settings.tls, address, now };
        found.sockets = self.sockets.move_to(&template, &mut self.routing);
        self.sockets.settle_addresses(|_| true, &template, &mut self.routing, &mut found.sockets);
        let rules = std::mem::take(&mut self.rules);
        for rule in rules.into_values() {
            self.set_rule(&rule.plan, now, &mut found);
        }
        Ok((self.compiled(true, found), former))
    }

    fn compiled(&self, has_listeners: bool, found: Found) -> Compiled {
        let Found { rules, sockets, upstreams, gateways } = found;
        let listeners = has_listeners.then(|| self.sockets.listeners());
        Compiled { routing: self.routing.clone(), listeners, rules, sockets, upstreams, gateways }
    }

    fn remove_rule(&mut self, id: &PlanId) {
        let Some(rule) = self.rules.remove(id) else { return };
        for number in rule.routes {
            self.routing.remove_route(number);
            self.route_numbers.give_back(number);
        }
        for number in rule.authorizers {
            self.routing.remove_authorizer(number);
            self.authorizer_numbers.give_back(number);
        }
    }

    fn set_rule(&mut self, plan: &Arc<RoutePlan>, now: Timestamp, found: &mut Found) {
        self.remove_rule(&plan.id);
        let (mut routes, mut authorizers) = (Vec::new(), Vec::new());
        let mut note = |problem: RuleProblem| {
            let (rule, id) = (rule_name(&plan.id).into(), Some(plan.id.clone()));
            found.rules.push(RuleFault { rule, problem, id });
        };
        for group in groups(plan) {
            let matcher = raw_route::matcher(&rule_name(&plan.id), &plan.matches);
            let places = self.places(&group);
            if places.is_empty() {
                continue;
            }
            let matcher = match checked(matcher, plan) {
                Ok(matcher) => matcher,
                // Of an Ingress or Route, or for a method that is never served: see `check_match`.
                Err(problem) => {
                    note(problem.into());
                    break;
                }
            };
            let metrics = self.route_metrics.of(plan, self.settings.route_metrics);
            let authorizer = self.add_authorizer(plan, &group);
            authorizers.extend(authorizer.iter().flatten());
            let route = Route { metrics, ..self.route((plan, &authorizer), &group, now, &mut note) };
            let number = self.route_numbers.take();
            self.routing.insert_route(number, matcher, places, Arc::new(route));
            routes.push(number);
        }
        self.rules.insert(plan.id.clone(), CompiledRule { plan: plan.clone(), routes, authorizers });
    }

    /// The number of the authorizer of a group, if its rule has a filter `ExternalAuth`.
    ///
    /// # Errors
    /// Why the rule cannot be served.
    fn add_authorizer(&mut self, plan: &RoutePlan, group: &Group<'_>) -> Result<Option<usize>, String> {
        let filter = plan.filters.iter().find_map(|filter| match filter {
            FilterPlan::ExternalAuth(filter) => Some(filter),
            _ => None,
        });
        let Some(filter) = filter else { return Ok(None) };
        let find = |target: &BackendTarget| self.find_upstream(group, target);
        let config = external_auth::authorizer(&rule_name(&plan.id), filter, &find)?;
        let number = self.authorizer_numbers.take();
        self.routing.insert_authorizer(number, Arc::new(config));
        Ok(Some(number))
    }

    /// The number of an upstream, as the Gateways of a group reach it.
    fn find_upstream(&self, group: &Group<'_>, target: &BackendTarget) -> Option<usize> {
        match target {
            BackendTarget::Upstream(key) => self.upstreams.number(&*key.shown(group.client_certificate)?),
            BackendTarget::Invalid(_) => None,
        }
    }

    /// Where the routes of a group are looked up.
    fn places(&self, group: &Group<'_>) -> Vec<(Scope, HostSet)> {
        let place = |attachment: &&Attachment| {
            let scope = self.sockets.scope(&attachment.socket, &attachment.listener)?;
            let hosts = attachment.hosts.iter().flat_map(|hosts| hosts.iter());
            let hosts: Vec<&str> = hosts.map(|host| &**host).collect();
            Some((scope, HostSet::new(&hosts).ok()?))
        };
        group.attachments.iter().filter_map(place).collect()
    }

    /// The route of a group.
    fn route(
        &self,
        (plan, authorizer): (&RoutePlan, &Result<Option<usize>, String>),
        group: &Group<'_>,
        now: Timestamp,
        note: &mut impl FnMut(RuleProblem),
    ) -> Route {
        let upstream = |target: &BackendTarget| self.find_upstream(group, target);
        let name = rule_name(&plan.id);
        if let Err(problem) = authorizer {
            note(format!("{problem}; requests get 500").into());
        }
        let policy = match group.policy {
            PolicyOutcome::None if self.settings.default_policy == DefaultPolicy::Public => None,
            PolicyOutcome::Exempt => None,
            PolicyOutcome::None | PolicyOutcome::Invalid(_) => return self.closed(name),
            PolicyOutcome::Applied(policy) => Some(policy),
        };
        let mut raw = match authorizer {
            Ok(_) => raw_route::route(&group.of_port(plan), &upstream),
            Err(_) => failing(),
        };
        match policy {
            None => _ = raw.insert("public".into(), json!(true)),
            Some(PolicyPlan { body, policy, .. }) => {
                if let Err(fault) = policy::place(body, plan, &mut raw) {
                    note(RuleProblem::of(policy, fault.to_string()));
                    return self.closed(name);
                }
            }
        }
        match check(&self.base.checker, &name, raw, now) {
            Ok(route) => {
                let external_auth = authorizer.as_ref().ok().copied().flatten();
                Route { external_auth, retries: plan.retry.as_ref().map(retries), ..route }
            }
            Err(problem) => {
                // Whoever may not pass is told so, even if nothing works behind it.
                note(match group.policy {
                    PolicyOutcome::Applied(plan) if policy::field_of_body(&problem).is_some() => {
                        RuleProblem::of(&plan.policy, problem)
                    }
                    _ => problem.into(),
                });
                self.closed(name)
            }
        }
    }

    /// The rule with this name, closed.
    fn closed(&self, name: String) -> Route {
        Route { name: name.into(), ..self.closed.clone() }
    }
}

/// A route that refuses every request.
fn closed(checker: &RouteChecker, now: Timestamp) -> Result<Route, RuleFault> {
    let mut raw = failing();
    raw.insert("public".into(), json!(true));
    match check(checker, "closed", raw, now) {
        Ok(route) => Ok(Route { is_closed: true, ..route }),
        Err(problem) => {
            Err(RuleFault { rule: "a rule without a policy".into(), problem: problem.into(), id: None })
        }
    }
}

fn check(
    checker: &RouteChecker,
    name: &str,
    raw: Map<String, Value>,
    now: Timestamp,
) -> Result<Route, String> {
    let raw: Result<raw::Route, _> = serde_json::from_value(Value::Object(raw));
    let raw = raw.map_err(|error| error.to_string())?;
    let route = checker.check(&raw, &raw_route::upstream_number, now);
    let lines = |faults: Vec<Fault>| faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("; ");
    Ok(Route { name: name.into(), ..route.map_err(lines)? })
}

/// The attachments of a rule to which the same policy applies, and whose Gateways show upstreams the
/// same certificate.
struct Group<'p> {
    policy: &'p PolicyOutcome,
    client_certificate: &'p ClientCertificate,
    /// The port of the listeners, which a redirect without a port keeps.
    port: Option<u16>,
    attachments: Vec<&'p Attachment>,
}

impl Group<'_> {
    /// The plan with the port of the listeners in a redirect that names neither scheme nor port. A
    /// redirect keeps the port of the listener, which the client may not have sent.
    fn of_port<'r>(&self, plan: &'r RoutePlan) -> Cow<'r, RoutePlan> {
        let Some(port) = self.port else { return Cow::Borrowed(plan) };
        let filters = plan.filters.iter().map(|filter| match filter {
            FilterPlan::Redirect(redirect) => {
                FilterPlan::Redirect(RedirectFilter { port: Some(port), ..redirect.clone() })
            }
            other => other.clone(),
        });
        Cow::Owned(RoutePlan { filters: filters.collect(), ..plan.clone() })
    }
}

/// Whether the plan redirects to the port of its listener.
fn redirects_to_own_port(plan: &RoutePlan) -> bool {
    plan.filters
        .iter()
        .any(|filter| matches!(filter, FilterPlan::Redirect(RedirectFilter { scheme: None, port: None, .. })))
}

fn groups(plan: &RoutePlan) -> Vec<Group<'_>> {
    let by_port = plan.action == RuleAction::Redirect && redirects_to_own_port(plan);
    let mut groups: Vec<Group<'_>> = Vec::new();
    for attachment in &*plan.attachments {
        let port = by_port.then_some(attachment.socket.port);
        let Attachment { policy, client_certificate, .. } = attachment;
        let is_same = |group: &&mut Group<'_>| {
            group.policy == policy && group.client_certificate == client_certificate && group.port == port
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.attachments.push(attachment),
            None => groups.push(Group { policy, client_certificate, port, attachments: vec![attachment] }),
        }
    }
    groups
}

/// The retries of a rule (GEP-1731). It says how often, else as often as without `retry`.
fn retries(plan: &RetryPlan) -> Arc<RouteRetries> {
    let attempts = plan.attempts.unwrap_or(DEFAULT_RETRIES);
    Arc::new(RouteRetries { retries: attempts, on_statuses: plan.codes.clone(), backoff: plan.backoff })
}

/// A route that answers 500.
fn failing() -> Map<String, Value> {
    let route = json!({ "name": "route", "upstreams": [{ "status": 500 }] });
    route.as_object().cloned().unwrap_or_default()
}

/// The name of a rule in logs: kind, namespace, name, and the positions of the rule and its match.
pub fn rule_name(id: &PlanId) -> String {
    format!("{} {} rule {} match {}", id.route.kind.name(), id.route.at, id.rule, id.matched)
}

/// Whether requests that a match stands for could reach another rule, since it cannot be carried out:
/// the check of [`controller::settings::Settings::match_check`].
///
/// # Errors
/// A phrase with everything in it that no request can have, or that is not read.
pub fn check_match(matches: &MatchPlan) -> Result<(), String> {
    // CONNECT and TRACE are never served, so no other rule takes them.
    let conditions = RouteMatch { methods: Vec::new(), ..raw_route::matcher("match", matches) };
    in_order(conditions, Order::default()).map(drop)
}

fn checked(conditions: RouteMatch, plan: &RoutePlan) -> Result<CheckedRoute, String> {
    let (created, at, rule, position) = plan.order();
    let order = Order {
        created: u64::try_from(created).unwrap_or(0).saturating_mul(1000),
        object: at.to_string().into(),
        position: u32::from(rule) << 16 | u32::from(position),
    };
    in_order(conditions, order)
}

fn in_order(conditions: RouteMatch, order: Order) -> Result<CheckedRoute, String> {
    CheckedRoute::new(conditions, order)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

impl RouteFacts for RoutePlan {
    fn namespace(&self) -> &str {
        &self.id.route.at.namespace
    }

    fn name(&self) -> &str {
        &self.id.route.at.name
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(|value| &**value)
    }
}

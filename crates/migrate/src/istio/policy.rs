//! `AuthorizationPolicy`: rules, and where they apply.

use serde_json::Value as Json;
use toml::Value;

use super::{KnownIssuer, named, no_equal, text, texts};
use crate::draft::inline;
use crate::input_fault::InputFault;
use crate::report::{MigrationReport, Translation};

/// Paths of a rule or a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathMatch {
    Any,
    Exact(String),
    /// Everything that begins with it.
    Prefix(String),
}

impl PathMatch {
    fn read(text: &str) -> Option<Self> {
        match text.strip_suffix('*') {
            Some("" | "/") => Some(Self::Any),
            // A prefix here ends with a segment.
            Some(prefix) if !prefix.contains('*') => {
                prefix.strip_suffix('/').map(|prefix| Self::Prefix(prefix.to_owned()))
            }
            None if text.starts_with('/') && !text.contains(['*', '{']) => Some(Self::Exact(text.to_owned())),
            _ => None,
        }
    }

    pub(super) fn value(&self) -> Value {
        match self {
            Self::Any => inline([("prefix", "/".into())]),
            Self::Exact(path) => inline([("exact", (&**path).into())]),
            Self::Prefix(path) => inline([("prefix", (&**path).into())]),
        }
    }

    /// Whether every path of `other` is one of these.
    fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            // `/a/*` does not have `/a`, which a prefix here has.
            (Self::Prefix(own), Self::Exact(path)) => {
                path.strip_prefix(&**own).is_some_and(|rest| rest.starts_with('/'))
            }
            (Self::Prefix(own), Self::Prefix(path)) => {
                path.strip_prefix(&**own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            (own, other) => own == other,
        }
    }
}

/// A rule: where it applies, and its conditions.
#[derive(Debug)]
struct PolicyRule {
    hosts: Vec<String>,
    paths: Vec<PathMatch>,
    methods: Vec<String>,
    /// Alternatives, one of which must hold; an empty one always holds.
    conditions: Vec<Vec<Condition>>,
    effect: Effect,
}

/// A condition of a rule: its key and its value.
type Condition = (&'static str, Value);

/// What a rule does where its conditions hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Allow,
    Deny,
    /// It denies where they do not hold, so whoever passes must meet them.
    Demand,
}

/// The rules of all policies.
#[derive(Debug, Default)]
pub(super) struct Authorization {
    rules: Vec<PolicyRule>,
    /// Whether there is a policy with the action `ALLOW`. Then a request that none allows is denied.
    allows: bool,
}

/// What a route needs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RouteRules {
    pub(super) allow: Vec<Value>,
    pub(super) deny: Vec<Value>,
    /// Whether everybody passes.
    pub(super) is_open: bool,
    /// Methods with which everybody passes.
    pub(super) open_methods: Vec<Vec<String>>,
}

impl Authorization {
    pub(super) fn read(
        objects: &[&Json],
        issuers: &[KnownIssuer],
        report: &mut MigrationReport,
    ) -> Result<Self, InputFault> {
        let mut all = Self::default();
        for object in objects {
            let spec = &object["spec"];
            let denies = match text(&spec["action"]) {
                "" | "ALLOW" => false,
                "DENY" => true,
                "AUDIT" => {
                    no_equal(report, named(object, "action AUDIT"), "every request is in the access log");
                    continue;
                }
                "CUSTOM" => {
                    let remedy = "the requests that it asks about are refused until a route asks an external authorizer \
                                  (`[[authorizer]]`, `route.authorizer`) in place of the rule that denies";
                    no_equal(report, named(object, "action CUSTOM"), remedy);
                    let mut unreported = MigrationReport::default();
                    for rule in spec["rules"].as_array().into_iter().flatten() {
                        all.add(rule, true, ("", issuers), &mut unreported);
                    }
                    continue;
                }
                other => {
                    let why = format!("{other:?} is no action");
                    return Err(InputFault::File { name: named(object, ""), why });
                }
            };
            all.allows |= !denies;
            for (at, rule) in spec["rules"].as_array().into_iter().flatten().enumerate() {
                let setting = named(object, &format!("rule {}", at + 1));
                all.add(rule, denies, (&setting, issuers), report);
            }
            if spec["rules"].is_null() {
                report.add(named(object, "no rules"), Translation::Translated);
            }
        }
        Ok(all)
    }

    fn add(
        &mut self,
        rule: &Json,
        denies: bool,
        (setting, issuers): (&str, &[KnownIssuer]),
        report: &mut MigrationReport,
    ) {
        if denies && let Some(demand) = demand(rule, issuers) {
            let mut faults = Vec::new();
            let found = places_of(rule, &[demand], Effect::Demand, &mut faults);
            if faults.is_empty() {
                let difference = "a denial of all others: whoever passes must meet the condition, and a rule with another \
                                  condition of this kind lets nobody in";
                report.add(setting, Translation::Different(difference.into()));
                self.rules.extend(found);
                return;
            }
        }
        let mut faults = Vec::new();
        let sources = rule["from"].as_array().map_or_else(
            || vec![Vec::new()],
            |from| {
                from.iter().map(|source| source_conditions(&source["source"], issuers, &mut faults)).collect()
            },
        );
        let when: Vec<_> = rule["when"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|condition| when_condition(condition, issuers, &mut faults))
            .collect();
        let conditions: Vec<Vec<_>> = sources
            .into_iter()
            .map(|source| combined(source.into_iter().chain(when.clone()), &mut faults))
            .collect();
        let effect = if denies { Effect::Deny } else { Effect::Allow };
        let found = places_of(rule, &conditions, effect, &mut faults);
        match (&faults[..], denies) {
            ([], _) => {
                report.add(setting, Translation::Translated);
                self.rules.extend(found);
            }
            (faults, false) => {
                let remedy = format!(
                    "{} cannot be said; the rule is left out, so its requests are refused: write it by hand",
                    faults.join(", ")
                );
                report.add(setting, Translation::NoEqual(remedy));
            }
            // Without a condition a denial is wider, which is safe.
            (faults, true) => {
                let remedy = format!(
                    "{} cannot be said; the rule denies more than it did: write it by hand",
                    faults.join(", ")
                );
                report.add(setting, Translation::NoEqual(remedy));
                self.rules.extend(found);
            }
        }
    }

    /// The places that need a route of their own: hosts and paths.
    pub(super) fn places(&self) -> Vec<(Option<String>, PathMatch)> {
        let mut hosts: Vec<Option<String>> = vec![None];
        let mut paths = vec![PathMatch::Any];
        for rule in &self.rules {
            hosts.extend(rule.hosts.iter().cloned().map(Some));
            paths.extend(rule.paths.iter().cloned());
        }
        for path in paths.clone() {
            if let PathMatch::Prefix(prefix) = path {
                paths.push(PathMatch::Exact(prefix));
            }
        }
        let mut places = Vec::new();
        for host in hosts {
            for path in &paths {
                let place = (host.clone(), path.clone());
                // The prefix has the same for its own path.
                let is_implied = matches!(path, PathMatch::Exact(exact) if {
                    let prefix = PathMatch::Prefix(exact.clone());
                    paths.contains(&prefix) && self.at(host.as_deref(), path) == self.at(host.as_deref(), &prefix)
                });
                if !is_implied && !places.contains(&place) {
                    places.push(place);
                }
            }
        }
        places
    }

    /// What a route at this place needs.
    pub(super) fn at(&self, host: Option<&str>, path: &PathMatch) -> RouteRules {
        let mut here = RouteRules { is_open: !self.allows, ..RouteRules::default() };
        let mut demands = Vec::new();
        for rule in &self.rules {
            let host_fits = rule.hosts.is_empty()
                || host.is_some_and(|host| rule.hosts.iter().any(|own| host_contains(own, host)));
            if !host_fits || !rule.paths.iter().any(|own| own.contains(path)) {
                continue;
            }
            if rule.effect == Effect::Demand {
                demands.extend(rule.conditions.iter().flatten().cloned());
                continue;
            }
            let denies = rule.effect == Effect::Deny;
            for condition in &rule.conditions {
                let methods =
                    (!rule.methods.is_empty()).then(|| ("methods", Value::from(rule.methods.clone())));
                if !condition.is_empty() {
                    let whole = inline(condition.iter().cloned().chain(methods));
                    if denies { here.deny.push(whole) } else { here.allow.push(whole) }
                } else if denies {
                    let always = methods.unwrap_or(("authenticated", true.into()));
                    here.deny.push(inline([always]));
                } else if rule.methods.is_empty() {
                    here.is_open = true;
                } else {
                    here.open_methods.push(rule.methods.clone());
                }
            }
        }
        if !demands.is_empty() {
            here.demand(&demands);
        }
        // A public route has no rules.
        if here.is_open && !here.deny.is_empty() {
            here.is_open = false;
            here.allow.push(inline([("authenticated", true.into())]));
        }
        here
    }
}

impl RouteRules {
    /// Lets only those pass who meet these conditions too.
    fn demand(&mut self, demands: &[Condition]) {
        let mut allowed: Vec<Value> = std::mem::take(&mut self.allow);
        if std::mem::take(&mut self.is_open) {
            allowed = vec![inline([])];
        }
        let open_methods = std::mem::take(&mut self.open_methods);
        allowed.extend(open_methods.into_iter().map(|methods| inline([("methods", methods.into())])));
        for rule in allowed {
            let own = rule.as_table().into_iter().flatten();
            let own = own.filter_map(|(key, value)| {
                CONDITION_KEYS.iter().find(|known| ***known == **key).map(|known| (*known, value.clone()))
            });
            let mut faults = Vec::new();
            let mut whole = combined(own.chain(demands.iter().cloned()), &mut faults);
            // Every other condition on the caller says that there is one.
            let is_of_caller = |key: &str| !["methods", "addresses", "authenticated"].contains(&key);
            whole.retain(|(key, _)| *key != "authenticated");
            if !whole.iter().any(|(key, _)| is_of_caller(key)) {
                whole.push(("authenticated", true.into()));
            }
            // What cannot be said lets nobody in.
            if faults.is_empty() {
                self.allow.push(inline(whole));
            }
        }
    }
}

/// Keys of the conditions that rules here have.
const CONDITION_KEYS: [&str; 7] =
    ["addresses", "authenticated", "claims", "clients", "issuers", "methods", "subjects"];

/// The condition that a denial of all who do not meet it demands; `None`: the rule is another one.
fn demand(rule: &Json, issuers: &[KnownIssuer]) -> Option<Vec<Condition>> {
    let mut faults = Vec::new();
    let conditions = match (rule["from"].as_array(), rule["when"].as_array()) {
        (Some(from), None) => {
            let [source] = &from[..] else { return None };
            let members = source["source"].as_object()?;
            let (key, value) = members.iter().next().filter(|_| members.len() == 1)?;
            match &**key {
                "notRequestPrincipals" => principals(&texts(value), issuers, &mut faults),
                "notIpBlocks" | "notRemoteIpBlocks" => vec![("addresses", texts(value).into())],
                _ => return None,
            }
        }
        (None, Some(when)) => {
            let [condition] = &when[..] else { return None };
            if condition["notValues"].is_null() || !condition["values"].is_null() {
                return None;
            }
            let turned = serde_json::json!({"key": condition["key"], "values": condition["notValues"]});
            when_condition(&turned, issuers, &mut faults).into_iter().collect()
        }
        _ => return None,
    };
    let methods = rule["to"].as_array().into_iter().flatten().map(|to| &to["operation"]["methods"]);
    // With methods it demands something of some requests to a path only.
    let is_whole = methods.into_iter().all(Json::is_null);
    (faults.is_empty() && is_whole && !conditions.is_empty()).then_some(conditions)
}

/// The rules for the operations of a rule.
fn places_of(
    rule: &Json,
    conditions: &[Vec<Condition>],
    effect: Effect,
    faults: &mut Vec<String>,
) -> Vec<PolicyRule> {
    let anywhere = serde_json::json!([{ "operation": {} }]);
    let operations = if rule["to"].is_array() { &rule["to"] } else { &anywhere };
    let mut found = Vec::new();
    for operation in operations.as_array().into_iter().flatten() {
        let operation = &operation["operation"];
        for key in ["notHosts", "notMethods", "notPaths", "ports", "notPorts"] {
            if !operation[key].is_null() {
                faults.push(format!("`{key}`"));
            }
        }
        // One that cannot be said is every path, or every host: for a denial that is safe.
        let mut paths = Vec::new();
        for path in texts(&operation["paths"]) {
            paths.push(PathMatch::read(&path).unwrap_or_else(|| {
                faults.push(format!("the path `{path}`"));
                PathMatch::Any
            }));
        }
        if paths.is_empty() || paths.contains(&PathMatch::Any) {
            paths = vec![PathMatch::Any];
        }
        let mut hosts = texts(&operation["hosts"]);
        let has_wildcard = |host: &str| host.strip_prefix("*.").unwrap_or(host).contains('*');
        faults.extend(
            hosts.iter().filter(|h| *h != "*" && has_wildcard(h)).map(|host| format!("the host `{host}`")),
        );
        if hosts.iter().any(|host| has_wildcard(host)) {
            hosts.clear();
        }
        let methods = texts(&operation["methods"]);
        found.push(PolicyRule { hosts, paths, methods, conditions: conditions.to_vec(), effect });
    }
    found
}

/// Whether a host of a rule, which may be `*.NAME`, has this one.
fn host_contains(own: &str, host: &str) -> bool {
    own == host
        || own.strip_prefix('*').is_some_and(|end| host.strip_prefix('*').unwrap_or(host).ends_with(end))
}

/// Conditions that must all hold. A rule has each key once, so others with the same key are left out.
fn combined(
    conditions: impl Iterator<Item = (&'static str, Value)>,
    faults: &mut Vec<String>,
) -> Vec<(&'static str, Value)> {
    let mut whole: Vec<(&'static str, Value)> = Vec::new();
    for (key, value) in conditions {
        let Some((_, known)) = whole.iter_mut().find(|(own, _)| *own == key) else {
            whole.push((key, value));
            continue;
        };
        if *known == value {
            continue;
        }
        match (known, value) {
            (Value::Table(known), Value::Table(more))
                if more.keys().all(|path| !known.contains_key(path)) =>
            {
                known.extend(more);
            }
            _ => faults.push(format!("two conditions on `{key}`")),
        }
    }
    whole
}

/// The conditions of a source.
fn source_conditions(
    source: &Json,
    issuers: &[KnownIssuer],
    faults: &mut Vec<String>,
) -> Vec<(&'static str, Value)> {
    let mut conditions = Vec::new();
    for (key, value) in source.as_object().into_iter().flatten() {
        let values = texts(value);
        match &**key {
            "requestPrincipals" => conditions.extend(principals(&values, issuers, faults)),
            "ipBlocks" | "remoteIpBlocks" => conditions.push(("addresses", values.into())),
            other => faults.push(format!("`{other}`")),
        }
    }
    conditions
}

/// `ISSUER/SUBJECT`, with `*` for all of either.
fn principals(
    values: &[String],
    issuers: &[KnownIssuer],
    faults: &mut Vec<String>,
) -> Vec<(&'static str, Value)> {
    if values.iter().any(|value| value == "*") {
        return vec![("authenticated", true.into())];
    }
    let (mut names, mut subjects) = (Vec::new(), Vec::new());
    for value in values {
        let Some((issuer, subject)) = value.rsplit_once('/') else {
            faults.push(format!("the principal `{value}`"));
            continue;
        };
        match issuers.iter().find(|known| known.issuer.trim_end_matches('/') == issuer.trim_end_matches('/'))
        {
            Some(known) if !subject.contains('*') || subject == "*" => {
                names.push(known.name.clone());
                subjects.push(subject.to_owned());
            }
            _ => faults.push(format!("the principal `{value}`")),
        }
    }
    if names.len() < values.len() {
        return Vec::new();
    }
    names.dedup();
    let mut conditions = vec![("issuers", Value::from(names))];
    let all = subjects.iter().filter(|subject| *subject == "*").count();
    if all == 0 {
        conditions.push(("subjects", subjects.into()));
    } else if all < subjects.len() {
        faults.push("principals of which only some have a subject".to_owned());
        return Vec::new();
    }
    conditions
}

fn when_condition(
    condition: &Json,
    issuers: &[KnownIssuer],
    faults: &mut Vec<String>,
) -> Option<(&'static str, Value)> {
    let (key, values) = (text(&condition["key"]), texts(&condition["values"]));
    if !condition["notValues"].is_null() || values.iter().any(|value| value.contains('*')) {
        faults.push(format!("the values of `{key}`"));
        return None;
    }
    if let Some(claims) = key.strip_prefix("request.auth.claims[").and_then(|rest| rest.strip_suffix(']')) {
        let parts: Vec<&str> = claims.split("][").collect();
        // A name with dots is written as a JSON pointer (RFC 6901).
        let path = if parts.iter().any(|part| part.contains(['.', '/'])) {
            let escaped = parts.iter().map(|part| part.replace('~', "~0").replace('/', "~1"));
            format!("/{}", escaped.collect::<Vec<_>>().join("/"))
        } else {
            parts.join(".")
        };
        let table: toml::Table = [(path, Value::from(values))].into_iter().collect();
        return Some(("claims", Value::Table(table)));
    }
    match key {
        "request.auth.presenter" => Some(("clients", values.into())),
        "source.ip" | "remote.ip" => Some(("addresses", values.into())),
        "request.auth.principal" => {
            let mut conditions = principals(&values, issuers, faults);
            if conditions.len() > 1 {
                faults.push(format!("`{key}`"));
                return None;
            }
            conditions.pop()
        }
        _ => {
            faults.push(format!("`{key}`"));
            None
        }
    }
}

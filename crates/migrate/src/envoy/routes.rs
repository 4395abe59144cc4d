//! Virtual hosts and their routes.

use serde_json::Value as Json;
use toml::Value;

use super::filters::{Filters, Need, rule_of};
use super::listeners::{Manager, plain_name};
use super::paths::{CONDITIONS, MatchedPath, Point};
use super::{Output, duration, is_type, list, text};
use crate::draft::{DraftTable, inline};

/// Translates the routes of a connection manager.
pub(super) fn translate(source: &Manager<'_>, filters: &Filters, output: &mut Output) {
    let manager = source.config;
    let mut own_hosts = Vec::new();
    if manager["rds"].is_object() {
        output.no_equal("rds", "only routes in the file are translated");
    }
    for host in list(&manager["route_config"]["virtual_hosts"]) {
        let name = free_name(&plain_name(text(&host["name"])), output);
        let domains: Vec<&str> = list(&host["domains"]).map(text).collect();
        let is_for_all = domains.iter().any(|domain| matches!(*domain, "*" | "*:*"));
        // Envoy's domains may have a port.
        let without_port =
            |domain: &&str| domain.rsplit_once(':').map_or(*domain, |(name, _)| name).to_owned();
        let mut hosts: Vec<String> = domains.iter().filter(|_| !is_for_all).map(without_port).collect();
        if is_for_all {
            hosts.clone_from(&source.server_names);
        }
        hosts.sort();
        hosts.dedup();
        if let Some(host) = hosts.iter().find(|host| output.hosts.contains(host)) {
            let remedy =
                "another filter chain has this host, too: write its routes, with `certificates` that fit";
            output.no_equal(format!("virtual host {name}, {host}"), remedy);
            continue;
        }
        own_hosts.extend(hosts.iter().cloned());
        if let Some(host) = hosts.iter().find(|host| host.ends_with('*')) {
            let remedy = "a host ends with no `*` here: write the hosts of its routes";
            output.no_equal(format!("virtual host {name}, {host}"), remedy);
            continue;
        }
        let is_configured = [host, &manager["route_config"]]
            .iter()
            .any(|place| place["typed_per_filter_config"].as_object().is_some_and(|own| !own.is_empty()));
        if is_configured {
            let remedy = "it says something to the filters that is not read: its routes are closed until that is written";
            output.no_equal(format!("typed_per_filter_config of virtual host {name}"), remedy);
        }
        let mut read = VirtualHost {
            hosts,
            routes: Vec::new(),
            filters,
            is_one_left_out: false,
            is_closed: is_configured || filters.is_closed,
        };
        read.read(host, &name, output);
        read.write(output);
    }
    output.hosts.append(&mut own_hosts);
}

/// A name of a virtual host that none has yet, also in another filter chain.
fn free_name(name: &str, output: &mut Output) -> String {
    let (mut free, mut number) = (name.to_owned(), 1);
    while output.host_names.contains(&free) {
        number += 1;
        free = format!("{name}-chain-{number}");
    }
    output.host_names.push(free.clone());
    free
}

/// The routes of a virtual host that are translated.
struct VirtualHost<'j> {
    /// None: every host.
    hosts: Vec<String>,
    routes: Vec<SourceRoute<'j>>,
    filters: &'j Filters,
    /// Whether there are more routes, whose requests another one takes.
    is_one_left_out: bool,
    /// Whether nobody gets at them.
    is_closed: bool,
}

struct SourceRoute<'j> {
    name: String,
    path: MatchedPath,
    route: &'j Json,
}

/// Who gets at the requests of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Access {
    need: Need,
    /// Whether the authorizer is asked.
    asks: bool,
}

impl Access {
    /// Whether it lets nobody pass whom the other one refuses.
    fn is_as_strict_as(&self, other: &Self) -> bool {
        let needs_as_much = match (&self.need, &other.need) {
            (Need::Unknown, _) | (_, Need::Nothing) => true,
            (own, other) => own == other,
        };
        needs_as_much && (self.need == Need::Unknown || self.asks || !other.asks)
    }
}

impl<'j> VirtualHost<'j> {
    fn read(&mut self, host: &'j Json, prefix: &str, output: &mut Output) {
        for (number, route) in list(&host["routes"]).enumerate() {
            let name = format!("{prefix}-{}", number + 1);
            let found = &route["match"];
            let condition = CONDITIONS.iter().find(|condition| !found[**condition].is_null());
            let targets = targets(route);
            let leads = !targets.is_empty()
                && targets.iter().all(|target| output.upstreams.contains(&target.cluster))
                || route["redirect"].is_object()
                || route["direct_response"].is_object();
            let why = match (condition, MatchedPath::read(found)) {
                (None, Some(path)) if leads => {
                    self.routes.push(SourceRoute { name, path, route });
                    continue;
                }
                (Some(condition), _) => format!("it has the condition `{condition}`"),
                (None, None) => "its match is no path and no prefix".to_owned(),
                (None, Some(_)) => "it leads to no cluster of this file, or to others too".to_owned(),
            };
            let remedy = format!("{why}: write it by hand; until then another route takes its requests");
            output.no_equal(format!("route {name}"), &remedy);
            self.is_one_left_out = true;
            // It answered itself, perhaps with a refusal: no other route may take its requests.
            self.is_closed |= route["route"].is_null();
        }
    }

    /// The route that takes a path, and who gets at it.
    fn at(&self, path: &str) -> Option<(&SourceRoute<'j>, Access)> {
        let found = self.routes.iter().find(|route| route.path.fits(path))?;
        let is_open = per_filter(found.route, "ExtAuthzPerRoute").is_some_and(|own| own["disabled"] == true);
        let own = per_filter(found.route, "PerRouteConfig");
        let has_no_tokens = own.is_some_and(|own| own["disabled"] == true);
        let need = match own {
            // Requests of a route that is left out must not find one that asks for less than it.
            _ if self.is_one_left_out && (is_open || has_no_tokens) => Need::Unknown,
            Some(_) if has_no_tokens => Need::Nothing,
            Some(_) => Need::Unknown,
            None => self.filters.need(path),
        };
        let need = if self.is_closed { Need::Unknown } else { need };
        Some((found, Access { need, asks: self.filters.authorizer.is_some() && !is_open }))
    }

    /// The points of all matches, each once, the least specific first.
    fn points(&self) -> Vec<Point> {
        let paths = self.routes.iter().map(|route| &route.path).chain(self.filters.paths());
        let mut points: Vec<Point> = paths.flat_map(MatchedPath::points).collect();
        points.sort_by(|a, b| (&a.path, a.is_exact).cmp(&(&b.path, b.is_exact)));
        points.dedup();
        points
    }

    fn write(&self, output: &mut Output) {
        let points = self.points();
        let mut written: Vec<(&Point, &str, Access)> = Vec::new();
        for point in &points {
            let Some((source, mut access)) = self.at(&point.sample()) else { continue };
            let setting = format!("route {}", source.name);
            let beyond = self.loosened_by(point, &points, &access);
            if beyond.is_some() {
                access.need = Need::Unknown;
            }
            // The same as what is around it: no route of its own.
            let around = written.iter().rev().find(|(around, ..)| {
                around.has(&point.path) || (point.is_exact && !around.is_exact && around.path == point.path)
            });
            if around.is_some_and(|(_, name, around)| (*name, around) == (&*source.name, &access)) {
                continue;
            }
            if let Some(beyond) = beyond {
                let remedy = format!(
                    "`{beyond}` begins other names too in Envoy, so it is closed: write what they need"
                );
                output.no_equal(&*setting, &remedy);
            } else if access.need == Need::Unknown && !self.is_closed {
                let remedy = "what its requests need cannot be said: it is closed until that is written";
                output.no_equal(&*setting, remedy);
            }
            let parts = written.iter().filter(|(_, name, _)| *name == source.name).count();
            let name = match parts {
                0 => source.name.clone(),
                parts => format!("{}-part-{}", source.name, parts + 1),
            };
            self.one((source, point), &name, &access, output);
            written.push((point, &source.name, access));
        }
        for source in &self.routes {
            let setting = format!("route {}", source.name);
            let mut parts = written.iter().filter(|(_, name, _)| *name == source.name).peekable();
            if parts.peek().is_none() {
                output.no_equal(setting, "earlier routes take its requests: it is left out");
                continue;
            }
            fields_without_equal(source.route, &setting, output);
            if parts.all(|(.., access)| access.need != Need::Unknown) {
                output.translated(setting);
            } else if self.is_closed {
                output.no_equal(setting, "it is closed, because of a filter or a route in front of it");
            }
        }
    }

    /// A prefix that is text in Envoy, below this point, if what follows it would find less needed here.
    fn loosened_by(&self, point: &Point, points: &[Point], access: &Access) -> Option<&str> {
        let paths = self.routes.iter().map(|route| &route.path).chain(self.filters.paths());
        paths.into_iter().find_map(|path| {
            let beyond = path.beyond()?;
            let is_around = |around: &&Point| around.has(&beyond);
            let around = points.iter().filter(is_around).max_by_key(|around| around.path.len())?;
            let (_, there) = self.at(&beyond)?;
            (around == point && !access.is_as_strict_as(&there)).then(|| path.plain())
        })
    }

    fn one(
        &self,
        (source, point): (&SourceRoute<'_>, &Point),
        name: &str,
        access: &Access,
        output: &mut Output,
    ) {
        let targets = targets(source.route);
        let mirrors = mirrors(source.route, &output.upstreams);
        let table = output.draft.table("[[route]]");
        table.set("name", name, "");
        if !self.hosts.is_empty() {
            table.set("hosts", self.hosts.clone(), "domains");
        }
        table.set("path", point.value(), "match");
        match &access.need {
            Need::Nothing => table.set("public", true, "no token is needed"),
            Need::Token(issuers) => table.set("policy", allow(rule_of(issuers)), "jwt_authn"),
            // A rule needs somebody who calls.
            Need::Unknown if output.issuers.is_empty() => {
                let refusal = inline([("status", 403.into()), ("body", "not translated".into())]);
                let clusters: Vec<_> = targets.iter().map(|target| &*target.cluster).collect();
                let from = format!("closed, see the report; cluster {}", clusters.join(", "));
                table.set("public", true, "").set("respond", refusal, &from);
                return;
            }
            Need::Unknown => {
                let nobody = inline([("groups", vec!["nobody"].into())]);
                table.set("policy", allow(nobody), "closed: see the report")
            }
        };
        if targets.is_empty() {
            answer(table, source, point);
            return;
        }
        if let Some(authorizer) = self.filters.authorizer.as_deref().filter(|_| access.asks) {
            table.set("authorizer", authorizer, "ext_authz");
        }
        forward(table, source, &targets);
        if !mirrors.is_empty() {
            let mirrors = mirrors.iter().map(|(_, mirror)| mirror.clone()).collect();
            table.set("mirror", Value::Array(mirrors), "request_mirror_policies");
        }
        if self.filters.forwards && access.need != Need::Nothing {
            table.set("forward_authorization", true, "forward");
        }
        output.used.extend(targets.into_iter().map(|target| target.cluster));
        output.used.extend(mirrors.into_iter().map(|(cluster, _)| cluster));
    }
}

fn allow(rule: Value) -> Value {
    inline([("allow", Value::Array(vec![rule]))])
}

/// A cluster that a route leads to.
struct Target {
    cluster: String,
    /// Its share, if there are several.
    weight: Option<i64>,
}

/// The clusters that a route leads to; empty: none, or what cannot be read.
fn targets(route: &Json) -> Vec<Target> {
    let action = &route["route"];
    if !text(&action["cluster"]).is_empty() {
        return vec![Target { cluster: plain_name(text(&action["cluster"])), weight: None }];
    }
    let several = list(&action["weighted_clusters"]["clusters"]);
    several
        .map(|entry| Target {
            cluster: plain_name(text(&entry["name"])),
            weight: Some(entry["weight"].as_i64().unwrap_or(0)),
        })
        .collect()
}

/// The mirrors of a route with their clusters, as far as those are known.
fn mirrors(route: &Json, known: &[String]) -> Vec<(String, Value)> {
    let mut mirrors = Vec::new();
    for policy in list(&route["route"]["request_mirror_policies"]) {
        let cluster = plain_name(text(&policy["cluster"]));
        if !known.contains(&cluster) {
            continue;
        }
        let share = &policy["runtime_fraction"]["default_value"];
        let numerator = share["numerator"].as_i64().unwrap_or(0);
        let denominator = match text(&share["denominator"]) {
            "TEN_THOUSAND" => 10_000,
            "MILLION" => 1_000_000,
            _ => 100,
        };
        let mut members = vec![("upstream", Value::from(&*cluster))];
        if share.is_object() && numerator < denominator {
            let fraction = [("numerator", numerator.into()), ("denominator", Value::from(denominator))];
            members.push(("fraction", inline(fraction)));
        }
        mirrors.push((cluster, inline(members)));
    }
    mirrors
}

/// What a route says to a filter.
fn per_filter<'j>(route: &'j Json, name: &str) -> Option<&'j Json> {
    let configs = route["typed_per_filter_config"].as_object().into_iter().flatten();
    let inner = |config: &'j Json| if is_type(config, "FilterConfig") { &config["config"] } else { config };
    configs.map(|(_, config)| inner(config)).find(|config| is_type(config, name))
}

fn forward(table: &mut DraftTable, source: &SourceRoute<'_>, targets: &[Target]) {
    let action = &source.route["route"];
    if let [Target { cluster, weight: None }] = targets {
        table.set("upstream", &**cluster, "cluster");
    } else {
        let entry = |target: &Target| {
            let weight = target.weight.unwrap_or(1);
            inline([("upstream", Value::from(&*target.cluster)), ("weight", weight.into())])
        };
        table.set("upstreams", Value::Array(targets.iter().map(entry).collect()), "weighted_clusters");
    }
    if let Some(to) = action["prefix_rewrite"].as_str() {
        let (from, to) = (source.path.plain(), to.trim_end_matches('/'));
        if !from.is_empty() && to.is_empty() {
            table.set("strip_prefix", from, "prefix_rewrite");
        } else if from != to {
            let root = |path: &str| if path.is_empty() { "/".to_owned() } else { path.to_owned() };
            let change = inline([("from", root(from).into()), ("to", root(to).into())]);
            table.set("replace_prefix", change, "prefix_rewrite");
        }
    }
    match (text(&action["timeout"]), duration(&action["timeout"])) {
        ("", _) => table.set("request_timeout", "15s", "the default of Envoy"),
        (_, None) => table.set("request_timeout", "unlimited", "timeout"),
        (_, Some(timeout)) => table.set("request_timeout", timeout, "timeout"),
    };
    let host = text(&action["host_rewrite_literal"]);
    if !host.is_empty() {
        table.set("rewrite_host", host.to_ascii_lowercase(), "host_rewrite_literal");
    }
}

/// A route that answers itself.
fn answer(table: &mut DraftTable, source: &SourceRoute<'_>, point: &Point) {
    let (redirect, direct) = (&source.route["redirect"], &source.route["direct_response"]);
    if direct.is_object() {
        let mut members = vec![("status", Value::from(direct["status"].as_i64().unwrap_or(200)))];
        match (text(&direct["body"]["inline_string"]), text(&direct["body"]["filename"])) {
            ("", "") => {}
            ("", file) => members.push(("file", file.into())),
            (body, _) => members.push(("body", body.into())),
        }
        table.set("respond", inline(members), "direct_response");
        return;
    }
    let mut members = Vec::new();
    if redirect["https_redirect"] == true {
        members.push(("scheme", Value::from("https")));
    }
    for (field, key) in [("scheme_redirect", "scheme"), ("host_redirect", "host"), ("path_redirect", "path")]
    {
        if let Some(value) = redirect[field].as_str() {
            members.push((key, value.into()));
        }
    }
    if let Some(port) = redirect["port_redirect"].as_i64() {
        members.push(("port", port.into()));
    }
    if let Some(prefix) = redirect["prefix_rewrite"].as_str() {
        let (path, own) = (&*point.path, source.path.plain());
        let rest = path.strip_prefix(own).unwrap_or_default();
        let whole = format!("{}{rest}", prefix.trim_end_matches('/'));
        let key = if point.is_exact { "path" } else { "prefix" };
        members.push((key, if whole.is_empty() { "/".to_owned() } else { whole }.into()));
    }
    let status = match text(&redirect["response_code"]) {
        "FOUND" => 302,
        "SEE_OTHER" => 303,
        "TEMPORARY_REDIRECT" => 307,
        "PERMANENT_REDIRECT" => 308,
        _ => 301,
    };
    members.push(("status", status.into()));
    table.set("redirect", inline(members), "redirect");
}

/// Reports what a route has and is not translated.
fn fields_without_equal(route: &Json, setting: &str, output: &mut Output) {
    output.none_equal(
        &route["route"],
        setting,
        &[
            ("regex_rewrite", "a path is rewritten by its prefix only"),
            ("retry_policy", "write `upstream.retries`"),
            ("rate_limits", "requests are not counted by caller"),
            ("hash_policy", "write `affinity`"),
        ],
    );
    output.none_equal(
        route,
        setting,
        &[
            ("request_headers_to_add", "write `request_headers`"),
            ("request_headers_to_remove", "write `request_headers`"),
            ("response_headers_to_add", "write `response_headers`"),
            ("response_headers_to_remove", "write `response_headers`"),
        ],
    );
    let unknown = |policy: &&Json| !output.upstreams.contains(&plain_name(text(&policy["cluster"])));
    if list(&route["route"]["request_mirror_policies"]).any(|policy| unknown(&policy)) {
        let remedy = "one names no cluster of this file: write `mirror` with its upstream";
        output.no_equal(format!("request_mirror_policies of {setting}"), remedy);
    }
    for entry in list(&route["route"]["weighted_clusters"]["clusters"]) {
        output.none_equal(
            entry,
            setting,
            &[
                ("request_headers_to_add", "write `request_headers` of the entry in `upstreams`"),
                ("request_headers_to_remove", "write `request_headers` of the entry in `upstreams`"),
                ("response_headers_to_add", "write `response_headers` of the entry in `upstreams`"),
                ("response_headers_to_remove", "write `response_headers` of the entry in `upstreams`"),
                ("host_rewrite_literal", "write a route of its own with `rewrite_host`"),
                ("cluster_header", "a header chooses a route: write a route for each value"),
            ],
        );
    }
    output.none_equal(
        &route["redirect"],
        setting,
        &[("regex_rewrite", "a path is replaced whole or by its prefix"), ("strip_query", "the query stays")],
    );
}

//! The routes of a configuration, each in one row.

use std::sync::Arc;

use auth::policy::rule::Policy;
use comfy_table::presets::UTF8_FULL;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table};
use config::{LoadedConfig, raw};
use login::config::LoginRedirect;
use serde::Serialize;

use crate::cmd::check::overview::settings;

/// Width, in columns, of output that is not a terminal.
const WIDTH: u16 = 110;

/// One route. Each list has one sentence per line of its cell.
#[derive(Debug, Serialize)]
pub(super) struct RouteRow {
    name: String,
    /// Requests that it matches.
    requests: Vec<String>,
    /// Callers that it permits.
    who_may: Vec<String>,
    /// Whether everyone is permitted, without a credential.
    public: bool,
    /// Where its requests go.
    upstream: Vec<String>,
    limits: Vec<String>,
}

/// Describes all routes.
pub(super) fn describe(loaded: &LoadedConfig) -> Vec<RouteRow> {
    let routes = loaded.raw.route.iter().zip(loaded.config.routing.file_routes());
    let row = |(raw, route): (&raw::Route, &Arc<gateway::config::Route>)| {
        let authorizer = raw.authorizer.as_ref().map(|name| &name.0);
        let is_public = matches!(route.policy, Policy::Public);
        let mut who_may = match authorizer {
            Some(name) if is_public => vec![format!("whom {name} permits")],
            _ => who_may(&route.policy, (raw.access_review.as_ref(), raw.access_reviews.as_ref())),
        };
        if route.login {
            who_may.push(match route.login_redirect {
                LoginRedirect::Browsers => "browsers log in".into(),
                LoginRedirect::All => "clients log in".into(),
                LoginRedirect::None => "also with a session".into(),
            });
        }
        if let Some(name) = authorizer.filter(|_| !is_public) {
            who_may.push(format!("if {name} permits it too"));
        }
        RouteRow {
            name: raw.name.0.clone(),
            requests: requests(raw),
            who_may,
            public: is_public && authorizer.is_none(),
            upstream: upstream(raw, loaded),
            limits: limits(raw),
        }
    };
    routes.map(row).collect()
}

/// The routes in a table, as wide as the terminal.
pub(super) fn table(rows: &[RouteRow]) -> Table {
    let mut table = new_table(["route", "requests", "who may", "upstream", "limits"]);
    for row in rows {
        let who = Cell::new(row.who_may.join("\n"));
        table.add_row([
            Cell::new(&row.name).add_attribute(Attribute::Bold),
            Cell::new(row.requests.join("\n")),
            if row.public { who.fg(Color::Yellow) } else { who },
            Cell::new(row.upstream.join("\n")),
            Cell::new(row.limits.join("\n")),
        ]);
    }
    table
}

/// A table with these headings, as wide as the terminal.
pub(in crate::cmd::check) fn new_table(headings: [&str; 5]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL).set_content_arrangement(ContentArrangement::Dynamic).enforce_styling();
    if !table.is_tty() {
        table.set_width(WIDTH);
    }
    table.set_header(headings.map(|text| Cell::new(text).add_attribute(Attribute::Bold)));
    table
}

/// Requests that a route matches.
fn requests(route: &raw::Route) -> Vec<String> {
    let mut lines = Vec::new();
    if route.hosts.is_empty() {
        lines.push("any host".to_owned());
    }
    lines.extend(route.hosts.iter().cloned());
    let path = route.path.as_ref();
    let path = path.and_then(|path| match path {
        raw::Path { prefix: Some(prefix), .. } => Some(format!("{prefix} and below")),
        raw::Path { exact: Some(exact), .. } => Some(format!("{exact} exactly")),
        raw::Path { template, .. } => template.clone(),
    });
    lines.push(path.unwrap_or_else(|| "any path".into()));
    if !route.methods.is_empty() {
        lines.push(route.methods.iter().map(|method| method.0.as_str()).collect::<Vec<_>>().join(" "));
    }
    for (kind, conditions) in [("header", &route.headers), ("parameter", &route.query)] {
        lines.extend(conditions.iter().map(|(name, value)| match value {
            raw::HeaderValue::Exact(_) => format!("{kind} {name} of a given value"),
            raw::HeaderValue::Present(_) => format!("{kind} {name}"),
        }));
    }
    lines
}

/// Callers that a policy permits, with one line for each rule and each of its access reviews.
pub(in crate::cmd::check) fn who_may(
    policy: &Policy,
    (review, reviews): (Option<&raw::AccessReview>, Option<&raw::AccessReviews>),
) -> Vec<String> {
    let rules = match policy {
        Policy::Public => return vec!["everyone, without a credential".into()],
        Policy::Rules(rules) => rules,
    };
    let allow = rules.allow().iter().enumerate();
    let mut lines: Vec<_> =
        allow.map(|(index, rule)| format!("{}{rule}", if index == 0 { "" } else { "or " })).collect();
    let or = if lines.is_empty() { "" } else { "or " };
    if let Some(review) = review {
        lines.push(format!("{or}whom Kubernetes permits {}", review_in_words(review)));
    }
    if let Some(reviews) = reviews {
        let (which, several) =
            if reviews.any.is_empty() { ("all", &reviews.all) } else { ("one", &reviews.any) };
        lines.push(format!("{or}whom Kubernetes permits {which} of"));
        lines.extend(several.iter().map(|review| format!("- {}", review_in_words(review))));
    }
    lines.extend(rules.deny().iter().map(|rule| format!("never {rule}")));
    lines
}

/// A review as `kubectl auth can-i` would word it: `to get services/proxy "app" in namespace a`.
fn review_in_words(review: &raw::AccessReview) -> String {
    let verb = match &review.verb {
        Some(verb) => format!("to {verb}"),
        None => "the verb of the method on".to_owned(),
    };
    if let Some(path) = &review.path {
        return format!("{verb} the path {path}");
    }
    let part = |before: &str, part: &Option<String>| match part {
        Some(part) => format!("{before}{part}"),
        None => String::new(),
    };
    let resource = review.resource.as_deref().unwrap_or_default();
    let (subresource, group) = (part("/", &review.subresource), part(".", &review.api_group));
    let version = part(" of version ", &review.api_version);
    let name = review.name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
    let place = match &review.namespace {
        Some(namespace) => format!("namespace {namespace}"),
        None => "the whole cluster".to_owned(),
    };
    format!("{verb} {resource}{group}{subresource}{version}{name} in {place}")
}

fn upstream(route: &raw::Route, loaded: &LoadedConfig) -> Vec<String> {
    if let Some(redirect) = &route.redirect {
        let parts = [
            redirect.scheme.map(|scheme| match scheme {
                raw::UrlScheme::Http => "http".to_owned(),
                raw::UrlScheme::Https => "https".to_owned(),
            }),
            redirect.host.clone(),
            redirect.port.map(|port| format!("port {port}")),
            redirect.path.clone(),
            redirect.prefix.as_ref().map(|prefix| format!("{prefix} for the prefix")),
        ];
        let target = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        return vec![format!("redirect {}", redirect.status), target];
    }
    if let Some(respond) = &route.respond {
        return vec![format!("fixed response {}", respond.status)];
    }
    let mut lines = Vec::new();
    for entry in &route.upstreams {
        lines.push(match (&entry.upstream, entry.status) {
            (Some(name), _) => format!("{} of weight {}", name.0, entry.weight),
            (None, status) => format!("status {} of weight {}", status.unwrap_or(500), entry.weight),
        });
    }
    if let Some(name) = &route.upstream {
        let upstream = loaded.raw.upstream.iter().find(|upstream| upstream.name == *name);
        lines.push(name.0.clone());
        lines.extend(upstream.into_iter().flat_map(settings::endpoints));
    }
    if lines.is_empty() {
        return vec!["(forwarded by the querying proxy)".into()];
    }
    for mirror in &route.mirror {
        lines.push(match (mirror.percent, mirror.fraction) {
            (Some(percent), _) => format!("{percent} % copied to {}", mirror.upstream.0),
            (None, Some(share)) => {
                format!("{}/{} copied to {}", share.numerator, share.denominator, mirror.upstream.0)
            }
            (None, None) => format!("copied to {}", mirror.upstream.0),
        });
    }
    if let Some(host) = &route.rewrite_host {
        lines.push(format!("as {host}"));
    }
    if let Some(path) = &route.replace_path {
        lines.push(format!("as {path}"));
    }
    if let Some(prefix) = &route.strip_prefix {
        lines.push(format!("without {prefix}"));
    }
    if let Some(replace) = &route.replace_prefix {
        lines.push(format!("{} for {}", replace.to, replace.from));
    }
    if route.forward_authorization {
        lines.push("sees Authorization".into());
    }
    lines
}

fn limits(route: &raw::Route) -> Vec<String> {
    let upgrades = match route.upgrades.as_slice() {
        [] => "no upgrades".to_owned(),
        upgrades => upgrades.join(", "),
    };
    let mut lines =
        vec![format!("body {}", route.body_size), format!("time {}", route.request_timeout), upgrades];
    lines.extend(route.attempt_timeout.as_ref().map(|attempt| format!("attempt {attempt}")));
    lines.extend(route.idle_timeout.as_ref().map(|idle| format!("idle {idle}")));
    if route.on_expiry == raw::OnExpiry::Keep {
        lines.push("kept on expiry".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_reads_as_kubectl_words_it() {
        let words = |text: &str| review_in_words(&review(text));
        assert_eq!(
            words(
                r#"{ "verb": "get", "resource": "services", "subresource": "proxy", "name": "app", "namespace": "a" }"#
            ),
            r#"to get services/proxy "app" in namespace a"#
        );
        assert_eq!(
            words(
                r#"{ "resource": "notebooks", "api_group": "kubeflow.org", "api_version": "v1", "name": "{path.name}" }"#
            ),
            r#"the verb of the method on notebooks.kubeflow.org of version v1 "{path.name}" in the whole cluster"#
        );
        assert_eq!(words(r#"{ "verb": "get", "path": "/metrics" }"#), "to get the path /metrics");
    }

    fn review(json: &str) -> raw::AccessReview {
        serde_json::from_str(json).unwrap()
    }
}

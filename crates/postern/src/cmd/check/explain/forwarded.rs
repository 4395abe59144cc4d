//! Explanation of what a permitted request becomes: where it goes, and its head there.

use std::fmt::Write as _;

use auth::headers::{Part, TemplateValues};
use auth::request::{Canonical, Field};
use config::LoadedConfig;
use credentials::authenticate::Verified;
use gateway::config::{Destination, MirrorConfig, MirrorShare, Route, WeightedTarget, WeightedUpstream};
use gateway::forward_filter::ForwardFilter;

/// Where a permitted request goes, and its copies.
pub(super) fn destination(loaded: &LoadedConfig, route: &Route) -> String {
    let config = &loaded.config;
    let name = |upstream: usize| &config.routing.upstream(upstream).name;
    let mut to = match &route.destination {
        Some(Destination::One(at)) => {
            let endpoints: Vec<String> =
                config.routing.upstream(*at).endpoints.iter().map(ToString::to_string).collect();
            format!("to upstream {} ({})", name(*at), endpoints.join(", "))
        }
        Some(several) => {
            let entry = |entry: &WeightedUpstream| match entry.target {
                WeightedTarget::Upstream(at) => format!("{} (weight {})", name(at), entry.weight),
                WeightedTarget::Refused(status) => format!("status {status} (weight {})", entry.weight),
            };
            let entries: Vec<_> = several.entries().iter().map(entry).collect();
            format!("to one of the upstreams {}", entries.join(", "))
        }
        // Only where other proxies forward.
        None => "nowhere: the route has no upstream".to_owned(),
    };
    for MirrorConfig { upstream, share, .. } in &route.mirrors {
        let share = match *share {
            MirrorShare::ALL => String::new(),
            MirrorShare { numerator, denominator } => format!(" of {numerator} in {denominator} requests"),
        };
        // Writing to a string cannot fail.
        let _ = write!(to, ", with a copy{share} to {}", name(*upstream));
    }
    to
}

/// Head of the request that the upstream receives. The gateway also adds `Via` and
/// `X-Forwarded-For`, `-Host` and `-Proto`.
pub(super) fn upstream_head(
    request: &Canonical<'_>,
    loaded: &LoadedConfig,
    route: &Route,
    fields: &[Field<'_>],
    caller: Option<&Verified>,
) -> Vec<String> {
    let mut target = Vec::new();
    request.write_target(&mut target);
    let mut lines = vec![format!("{} {}", request.method(), String::from_utf8_lossy(&target))];
    if let Some(host) = &route.rewrite_host {
        lines.push(format!("Host: {host}"));
    } else if route.preserve_host {
        lines.push(format!("Host: {}", request.authority()));
    }
    let mut left_out = Vec::new();
    let filter =
        ForwardFilter::new(&loaded.config, (route, route.request_headers.as_ref()), (fields, true), false);
    for field in fields {
        if !filter.passes(field.name) {
            left_out.push(field.name);
        } else if field.name.eq_ignore_ascii_case("authorization") {
            lines.push(format!("{}: (as received)", field.name));
        } else {
            lines.push(format!("{}: {}", field.name, String::from_utf8_lossy(field.value)));
        }
    }
    for (name, value) in caller.iter().flat_map(|caller| &caller.upstream_fields) {
        lines.push(format!("{name}: {}", String::from_utf8_lossy(value)));
    }
    if let (Some(assertion), Some(_)) = (&loaded.config.assertion, caller) {
        lines.push(format!("{}: (a signed assertion)", assertion.header));
    }
    let values =
        TemplateValues { identity: caller.map(|caller| &caller.facts.identity), ..TemplateValues::default() };
    for (name, template) in route.request_headers.iter().flat_map(|headers| &headers.values) {
        let of_caller = template.parts().iter().all(|part| matches!(part, Part::Text(_) | Part::Identity(_)));
        match template.render(&values) {
            Some(value) => lines.push(format!("{name}: {value}")),
            None if of_caller => {}
            None => lines.push(format!("{name}: (known only when serving)")),
        }
    }
    let entries = route.destination.as_ref().map_or(&[][..], Destination::entries);
    if entries.iter().any(|entry| entry.request_headers.is_some()) {
        lines.push("(and changes of headers for each upstream)".to_owned());
    }
    if !left_out.is_empty() {
        lines.push(format!("(not forwarded: {})", left_out.join(", ")));
    }
    lines
}

//! Authorization response: ends an explanation where other proxies query Postern and it forwards
//! nothing.
//!
//! Owns: the wording. Does not own: the response ([`gateway::auth_response`]), the decision.

use auth::request::Field;
use credentials::authenticate::Verified;
use gateway::auth_response;
use gateway::config::{Config, Route};

use crate::cmd::check::outline::Outline;

/// How other proxies query the listeners of a configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueryProtocols {
    http: bool,
    grpc: bool,
}

impl QueryProtocols {
    /// Reads it from a configuration. `None`: a listener forwards, so the explanation covers
    /// forwarding.
    pub(super) fn from_config(config: &Config) -> Option<Self> {
        let services: Option<Vec<_>> = config.listeners.iter().map(|l| l.service.authorization()).collect();
        let services = services.filter(|services| !services.is_empty())?;
        let over_http = |http: bool| services.iter().any(|service| service.http.is_some() == http);
        Some(Self { http: over_http(true), grpc: over_http(false) })
    }

    /// Ends the explanation of a permitted request.
    pub(super) fn explain_response(
        self,
        story: &mut Outline,
        config: &Config,
        route: &Route,
        fields: &[Field<'_>],
        caller: Option<&Verified>,
    ) {
        let set = identity_headers(config, caller);
        let names: Vec<&str> = set.iter().map(|(name, _)| name.as_str()).collect();
        let mut lines: Vec<String> = set.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let mut ways = Vec::new();
        let alike = self.http.then(|| auth_response::find_look_alike(config, fields)).flatten();
        if let Some(name) = alike.filter(|_| !self.grpc) {
            return story.refuse(400, "identity_look_alike", look_alike(name));
        }
        if self.grpc {
            let (removed, _) = auth_response::fields_to_remove(config, route, &names, fields);
            let mut lines = lines.clone();
            if !removed.is_empty() {
                lines.push(format!("(removed: {})", removed.join(", ")));
            }
            ways.push(("over gRPC: OK, with these fields in place of the client's".to_owned(), lines));
        }
        if let Some(name) = alike {
            ways.push((format!("over HTTP only without this: {}", look_alike(name)), Vec::new()));
        } else if self.http {
            lines.insert(0, cache_control(config));
            lines.extend(
                auth_response::unset_identity_fields(config, &names).map(|name| format!("{name}: (empty)")),
            );
            ways.push(("over HTTP: 200, with these fields".to_owned(), lines));
        }
        story.authorization_response(ways);
    }
}

/// How long a response may be cached: the shortest time of all listeners.
fn cache_control(config: &Config) -> String {
    let services = config.listeners.iter().filter_map(|l| l.service.authorization());
    let keeping: Option<Vec<_>> =
        services.filter(|service| service.http.is_some()).map(|service| service.caching.as_ref()).collect();
    match keeping.iter().flatten().map(|keeping| keeping.max_age).min() {
        Some(max_age) => format!("Cache-Control: max-age={} at most, must-revalidate", max_age.as_secs()),
        None => "Cache-Control: no-store".to_owned(),
    }
}

/// Headers that identify the caller.
fn identity_headers(config: &Config, caller: Option<&Verified>) -> Vec<(String, String)> {
    let Some(caller) = caller else { return Vec::new() };
    let fields = caller.upstream_fields.iter();
    let mut set: Vec<_> =
        fields.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value).into_owned())).collect();
    if let Some(assertion) = &config.assertion {
        set.push((assertion.header.to_string(), "(a signed assertion)".to_owned()));
    }
    set
}

fn look_alike(name: &str) -> String {
    format!("the header {name} looks like an identity header")
}

//! Topology check: finds contradictions in a topology before any program is started.
//!
//! Owns: parts that must fit each other, and that every text uses only known names. Does not own:
//! the permitted values of a single key ([`super::table`]), and the names themselves
//! ([`super::names`]).

use std::collections::BTreeSet;

use lab_load::observe::prometheus;

use super::TopologyError;
use super::description::{Kind, Ready, Revocations, Tokens, Topology};
use super::during::FileRewrite;
use super::names::program_names;
use super::provider;
use super::template::{self, Values};

/// Largest token that the lab creates, in bytes. Servers refuse larger request heads.
const MAX_TOKEN_BYTES: usize = 16_384;
/// Largest number of components in a topology.
const MAX_COMPONENTS: usize = 64;

impl Topology {
    /// Checks whether a file of a component can be rewritten with these variables.
    ///
    /// # Errors
    /// The component is not started here, has no such file, or the file does not use a variable.
    pub(crate) fn check_rewrite(&self, component: &str, anew: &FileRewrite) -> Result<(), String> {
        let Some(Kind::Program(program)) = self.component(component).map(|component| &component.kind) else {
            return Err(format!("the topology starts no component `{component}`"));
        };
        let Some(text) = program.files.get(&anew.file) else {
            let has: Vec<&str> = program.files.keys().map(String::as_str).collect();
            return Err(format!(
                "component `{component}` has no file `{}`; it has {}",
                anew.file,
                has.join(", ")
            ));
        };
        let own = program_names(program, &self.names());
        for (variable, value) in &anew.variables {
            if !self.variables.contains_key(variable) {
                let known: Vec<&str> = self.variables.keys().map(String::as_str).collect();
                return Err(format!("unknown variable `{variable}`; available: {}", known.join(", ")));
            }
            if !text.contains(&format!("@{variable}@")) {
                return Err(format!(
                    "file `{}` does not use `@{variable}@`, so the change has no effect",
                    anew.file
                ));
            }
            template::fill(value, &own)
                .map_err(|unknown| format!("{variable}: {}", unknown.describe(&own)))?;
        }
        Ok(())
    }

    /// Checks the topology as a whole. Returns the first fault.
    pub(super) fn check(&self, file: &str) -> Result<(), TopologyError> {
        let mut names = BTreeSet::new();
        if self.components.len() > MAX_COMPONENTS {
            return Err(TopologyError::invalid_value(
                file,
                "component",
                format!("more than {MAX_COMPONENTS} components"),
            ));
        }
        for component in &self.components {
            if !names.insert(component.name.as_str()) {
                return Err(TopologyError::invalid_value(
                    file,
                    "component",
                    format!("two components have the name `{}`", component.name),
                ));
            }
        }
        let known = names.iter().copied().collect::<Vec<_>>().join(", ");
        for (key, name) in self
            .path
            .iter()
            .map(|name| ("path", name))
            .chain(self.flow_path.iter().map(|name| ("flow_path", name)))
            .chain(self.entry.server_timing_of.iter().map(|name| ("load.server_timing_of", name)))
        {
            if !names.contains(name.as_str()) {
                return Err(TopologyError::invalid_value(
                    file,
                    key,
                    format!("unknown component `{name}`; available: {known}"),
                ));
            }
        }
        if let Some(tokens) = &self.tokens {
            check_tokens(file, tokens)?;
        }
        if let Some(revocations) = &self.revocations {
            self.check_revocations(file, revocations)?;
        }
        if let Some(cluster) = &self.cluster
            && !matches!(self.component(&cluster.after).map(|one| &one.kind), Some(Kind::Program(_)))
        {
            let message = format!("the topology starts no component `{}`; available: {known}", cluster.after);
            return Err(TopologyError::invalid_value(file, "cluster.after", message));
        }
        self.check_names(file)
    }

    /// Checks that every name in a text is known.
    fn check_names(&self, file: &str) -> Result<(), TopologyError> {
        let shared = self.names();
        let filled = |place: String, text: &str, values: &Values| {
            template::fill(text, values)
                .map(drop)
                .map_err(|unknown| TopologyError::invalid_value(file, place, unknown.describe(values)))
        };
        for component in &self.components {
            let place = |key: &str| format!("component `{}`: {key}", component.name);
            if let Some(metrics) = &component.metrics {
                filled(place("metrics.url"), &metrics.url, &shared)?;
                let usual = [
                    ("connections", &metrics.connections),
                    ("calls", &metrics.calls),
                    ("handshakes", &metrics.handshakes),
                ];
                let usual = usual.into_iter().filter_map(|(key, name)| Some((key, name.as_ref()?)));
                let others = metrics.counters.iter().map(|(key, name)| (key.as_str(), name));
                for (key, name) in usual.chain(others) {
                    if !prometheus::is_name(name) {
                        let message =
                            format!("`{name}` is not a counter name; write NAME or NAME{{label=\"value\"}}");
                        return Err(TopologyError::invalid_value(
                            file,
                            place(&format!("metrics.{key}")),
                            message,
                        ));
                    }
                }
            }
            let Kind::Program(program) = &component.kind else { continue };
            let own = program_names(program, &shared);
            for argument in &program.arguments {
                filled(place("arguments"), argument, &own)?;
            }
            for (name, value) in &program.environment {
                filled(place(&format!("environment.{name}")), value, &own)?;
            }
            for (name, text) in &program.files {
                filled(place(&format!("file `{name}`")), text, &own)?;
            }
            match &program.ready {
                Some(Ready::Http(text, _)) => filled(place("ready.http"), text, &own)?,
                Some(Ready::Tcp(text)) => filled(place("ready.tcp"), text, &own)?,
                None => {}
            }
        }
        for (name, value) in &self.variables {
            let mut built_in = shared.clone();
            self.variables.keys().for_each(|variable| drop(built_in.remove(variable)));
            filled(format!("variables.{name}"), value, &built_in)?;
        }
        if let Some(provider) = &self.provider {
            provider::check(provider, &shared)
                .map_err(|message| TopologyError::invalid_value(file, "provider", message))?;
        }
        for (key, text) in self.cluster.iter().flat_map(super::description::Cluster::texts) {
            filled(format!("cluster.{key}"), text, &shared)?;
        }
        let tokens = self.tokens.iter().flat_map(|tokens| tokens.url.iter().chain(&tokens.secret_file));
        let revocations = self.revocations.iter().flat_map(|revocations| {
            let places =
                revocations.place.iter().flat_map(|place| place.url.iter().chain(&place.introspection));
            revocations.revoke.iter().chain(&revocations.issue).chain(&revocations.lists).chain(places)
        });
        tokens
            .map(|text| ("tokens", text))
            .chain(self.entry.urls.iter().map(|text| ("load.url", text)))
            .chain(revocations.map(|text| ("revocations", text)))
            .try_for_each(|(place, text)| filled(place.to_owned(), text, &shared))
    }

    fn check_revocations(&self, file: &str, revocations: &Revocations) -> Result<(), TopologyError> {
        let wrong = |message: &str| Err(TopologyError::invalid_value(file, "revocations", message));
        if revocations.revoke.is_empty() || revocations.place.is_empty() {
            return wrong(
                "needs `revoke` (revocation endpoints) and at least one [[revocations.place]] to watch",
            );
        }
        let asks = self.tokens.as_ref().is_some_and(|tokens| {
            tokens.secret_file.is_some() && (tokens.url.is_some() || !revocations.issue.is_empty())
        });
        if !asks {
            return wrong("needs a client: give `url`, `secret_file` and a mode with `client` in [tokens]");
        }
        if revocations.lists.is_empty() != revocations.operator.is_none() {
            return wrong(
                "needs both `lists` (endpoints that revoke lists of tokens) and `operator` (a client), or neither",
            );
        }
        for place in &revocations.place {
            let name = &place.node;
            if place.url.is_some() == place.introspection.is_some() {
                let message =
                    format!("place `{name}` takes either `url` (a request) or `introspection` (an endpoint)");
                return wrong(&message);
            }
            if place.introspection.is_some() && revocations.introspecting_client.is_none() {
                return wrong(&format!("place `{name}` uses introspection: set `introspecting_client`"));
            }
        }
        Ok(())
    }
}

fn check_tokens(file: &str, tokens: &Tokens) -> Result<(), TopologyError> {
    let wrong = |place: String, message: &str| Err(TopologyError::invalid_value(file, place, message));
    if tokens.mode.is_empty() {
        return wrong("tokens".to_owned(), "has no mode; add [tokens.mode.oauth] or [tokens.mode.oidc]");
    }
    for (name, mode) in &tokens.mode {
        let place = format!("tokens.mode.{name}");
        let sources = [mode.client.is_some(), mode.file.is_some(), mode.claims.is_some()];
        if sources.into_iter().filter(|given| *given).count() != 1 {
            return wrong(
                place,
                "needs exactly one of `client` (requests tokens at the token endpoint), `file` (one token per line) or `claims` (of JWTs that the lab signs)",
            );
        }
        if mode.client.is_some() && (tokens.url.is_none() || tokens.secret_file.is_none()) {
            return wrong(place, "a client needs `url` and `secret_file` in [tokens]");
        }
        if mode.bytes > MAX_TOKEN_BYTES || (mode.bytes > 0 && mode.claims.is_none()) {
            return wrong(place, "`bytes` needs `claims` and is at most 16384");
        }
    }
    Ok(())
}

//! A topology as it is known when it was read.
//!
//! Owns: what a topology is made of. Does not own: how it is read ([`super::read`]), what has to fit ([`super::check`]), running anything.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::provider;
use crate::cgroup::Limits;
use crate::load::Protocol;
use crate::provider::Scenario as Flow;

/// A topology, checked.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Its name: that of the file without its ending.
    pub name: String,
    /// A line for people.
    pub title: String,
    pub(crate) components: Vec<Component>,
    pub(crate) programs: BTreeMap<String, ProgramTable>,
    pub(crate) variables: BTreeMap<String, String>,
    /// Variables that named a part to include, with what they were then.
    pub(crate) chosen: BTreeMap<String, String>,
    /// Names of secrets that are made for each run.
    pub(crate) secrets: Vec<String>,
    pub(crate) tokens: Option<Tokens>,
    /// The provider that flows go through, with names in its texts.
    pub(crate) provider: Option<toml::Table>,
    pub(crate) load: Entry,
    pub(crate) revocations: Option<Revocations>,
    /// Components in the order in which a request meets them.
    pub(crate) path: Vec<String>,
    /// The same for the requests of flows.
    pub(crate) flow_path: Vec<String>,
    /// Every text that it is made of, by name: what its digest is taken over.
    pub(crate) sources: BTreeMap<String, String>,
}

/// A component.
#[derive(Debug, Clone)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) metrics: Option<Metrics>,
}

/// What a component is.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// A program that is started here.
    Program(Box<Program>),
    /// Something that runs elsewhere.
    Remote { url: String },
}

/// A program to start.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Its name in the search path, or a path.
    pub(crate) name: String,
    /// Programs in whose folders it finds what it needs.
    pub(crate) needs: Vec<String>,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) ports: Vec<String>,
    /// Name in the component's folder, and content with names in it.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) ready: Option<Ready>,
    pub(crate) ready_timeout: Duration,
    pub(crate) limits: Limits,
    /// Files that it may open; what the lab may where absent.
    pub(crate) open_files: Option<u64>,
    pub(crate) cores: Vec<u32>,
    pub(crate) stop: StopSignal,
    /// It does its work and ends, so many times one after the other; the next component starts when it has. 0: it serves.
    pub(crate) times: u32,
    /// An event of a load starts it, not the beginning of the run.
    pub(crate) standby: bool,
    /// The account it runs as when the lab runs as root.
    pub(crate) user: Option<String>,
    /// File in its folder that gets what it prints to standard output.
    pub(crate) stdout: Option<String>,
}

/// How it is known that a component is ready.
#[derive(Debug, Clone)]
pub(crate) enum Ready {
    /// This URL answers with a status below 400, and, where that is given, with just this line.
    Http(String, Option<String>),
    /// This port accepts connections.
    Tcp(String),
}

/// With what a program is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StopSignal {
    /// SIGTERM.
    #[default]
    Term,
    /// SIGINT, which ends PostgreSQL without waiting for clients.
    Int,
    /// SIGQUIT.
    Quit,
}

/// Where figures of a component are read that `/proc` does not have.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Metrics {
    /// Metrics in the Prometheus text format.
    pub(crate) url: String,
    /// Labels that a sample must have.
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// The counter of accepted connections, where it has one.
    pub(crate) connections: Option<String>,
    /// The counter of requests that it has received, where it has one.
    pub(crate) calls: Option<String>,
    /// The counter of TLS handshakes, where it has one.
    pub(crate) handshakes: Option<String>,
    /// Other counters that it has, by the name that the record gives them.
    #[serde(default)]
    pub(crate) counters: BTreeMap<String, String>,
    /// Any certificate is believed.
    #[serde(default)]
    pub(crate) insecure: bool,
    /// Certificates that are believed.
    pub(crate) ca: Option<PathBuf>,
    /// A file with the token that is sent.
    pub(crate) token_file: Option<PathBuf>,
}

/// Who gives tokens.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tokens {
    /// Token endpoint (RFC 6749 §3.2).
    pub(crate) url: Option<String>,
    /// The clients' secret.
    pub(crate) secret_file: Option<String>,
    /// By token mode: `oauth` (opaque) or `oidc` (JWT).
    pub(crate) mode: BTreeMap<String, TokenMode>,
    /// Any certificate is believed.
    #[serde(default)]
    pub(crate) insecure: bool,
}

/// How tokens of one mode are got.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenMode {
    /// The client that asks, with grant `client_credentials`.
    pub(crate) client: Option<String>,
    /// A file with tokens, one a line, in place of asking.
    pub(crate) file: Option<PathBuf>,
    /// Claims of JWTs that the lab signs itself, in place of asking.
    pub(crate) claims: Option<serde_json::Map<String, serde_json::Value>>,
    /// Such a JWT is filled up to so many bytes.
    #[serde(default)]
    pub(crate) bytes: usize,
}

/// Where credentials are revoked while load lasts, and who is asked about them; they are issued as those of the load are.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Revocations {
    /// Revocation endpoints (RFC 7009).
    pub(crate) revoke: Vec<String>,
    /// Token endpoints; that of `[tokens]` when there is none.
    #[serde(default)]
    pub(crate) issue: Vec<String>,
    /// Where Postern's administration revokes tokens by the list: `POST {"tokens": […]}`.
    #[serde(default)]
    pub(crate) lists: Vec<String>,
    /// The client that may do so, with the scope `postern:admin`.
    pub(crate) operator: Option<String>,
    /// The client that introspects.
    pub(crate) introspecting_client: Option<String>,
    /// Who is asked.
    pub(crate) place: Vec<WatchedPlace>,
}

/// Where a credential is accepted or not: asked by a request, or by introspection (RFC 7662).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchedPlace {
    pub(crate) node: String,
    pub(crate) cluster: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) introspection: Option<String>,
}

/// Where load enters.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// One, or several that share the load.
    pub(crate) urls: Vec<String>,
    pub(crate) protocol: Protocol,
    pub(crate) ca: Option<String>,
    pub(crate) insecure: bool,
    pub(crate) connect: Option<String>,
    /// Requests without a token must be refused; checked before load.
    pub(crate) guarded: bool,
    /// The component whose `Server-Timing` answers carry.
    pub(crate) timing: Option<String>,
}

/// How a program tells its version, and how to get it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramTable {
    pub(crate) version: Option<Vec<String>>,
    pub(crate) get: Option<String>,
}

impl Topology {
    /// Where load enters, with these variables in place of its own; names of what is known when it runs only stay.
    pub(crate) fn entries_with(&self, variables: &BTreeMap<String, String>) -> Vec<String> {
        // Variables may name variables.
        let with = |text: String| {
            let all = self.variables.iter().map(|(name, value)| (name, variables.get(name).unwrap_or(value)));
            all.fold(text, |text, (name, value)| text.replace(&format!("@{name}@"), value))
        };
        self.load.urls.iter().map(|url| with(with(url.clone()))).collect()
    }

    /// The components in the order in which a request meets them, in words.
    pub fn words(&self) -> String {
        if self.path.is_empty() {
            self.title.clone()
        } else {
            format!("{}: {}", self.title, self.path.join(" → "))
        }
    }

    /// Its tokens are signed by the lab.
    pub(crate) fn wants_signer(&self) -> bool {
        self.tokens.iter().flat_map(|tokens| tokens.mode.values()).any(|mode| mode.claims.is_some())
    }

    /// Token modes it knows; empty without tokens.
    pub fn modes(&self) -> Vec<&str> {
        self.tokens.iter().flat_map(|tokens| tokens.mode.keys().map(String::as_str)).collect()
    }

    /// Components in order, and what each is: the program that is started here, or the URL of what runs elsewhere.
    pub fn places(&self) -> impl Iterator<Item = (&str, String)> {
        self.components.iter().map(|component| {
            let what = match &component.kind {
                Kind::Program(program) => format!("program {}", program.name),
                Kind::Remote { url } => format!("at {url}"),
            };
            (component.name.as_str(), what)
        })
    }

    /// Where load enters, with the names in it as they stand in the file.
    pub fn entries(&self) -> &[String] {
        &self.load.urls
    }

    pub(crate) fn component(&self, name: &str) -> Option<&Component> {
        self.components.iter().find(|component| component.name == name)
    }

    /// Components that are started here, their programs and those that they need, and what the topology says about those.
    pub(crate) fn programs(&self) -> impl Iterator<Item = (&str, &str, Option<&ProgramTable>)> {
        self.components.iter().flat_map(|component| {
            let names = match &component.kind {
                Kind::Program(program) => [&program.name].into_iter().chain(&program.needs).collect(),
                Kind::Remote { .. } => Vec::new(),
            };
            let of = |name: &'_ String| self.programs.get(name);
            names.into_iter().map(move |name| (component.name.as_str(), name.as_str(), of(name)))
        })
    }

    /// Whether its provider has everything that a flow needs.
    pub(crate) fn takes(&self, flow: Flow) -> Result<(), String> {
        let Some(provider) = &self.provider else {
            return Err("it describes no provider for a flow: give [provider]".to_owned());
        };
        let described = provider::filled(provider, &self.names())?;
        described.check(flow).map_err(|error| error.to_string())
    }

    /// A component waits until an event starts it.
    pub(crate) fn stands_by(&self, component: &str) -> bool {
        let kind = self.component(component).map(|component| &component.kind);
        matches!(kind, Some(Kind::Program(program)) if program.standby)
    }
}

//! Topology description: the checked content of a topology file.
//!
//! Owns: the data of a topology. Does not own: reading it ([`super::read`]), checking it
//! ([`super::check`]), and running it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lab_load::cgroup::Limits;
use lab_load::load::Protocol;
use lab_load::provider::Flow;
use serde::Deserialize;

use super::provider;

/// A checked topology: components, tokens, and where load enters.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Name of the topology: the file name without its extension.
    pub name: String,
    /// One-line description for people.
    pub title: String,
    pub(crate) components: Vec<Component>,
    pub(crate) programs: BTreeMap<String, ProgramInfo>,
    pub(crate) variables: BTreeMap<String, String>,
    /// Variables that selected an included part, with the values they had when the topology was
    /// read.
    pub(crate) part_variables: BTreeMap<String, String>,
    /// Names of the secrets that are created for each run.
    pub(crate) secrets: Vec<String>,
    pub(crate) tokens: Option<Tokens>,
    /// The provider that flows use, with names in its texts.
    pub(crate) provider: Option<toml::Table>,
    pub(crate) entry: LoadEntry,
    pub(crate) revocations: Option<Revocations>,
    /// The cluster whose objects a gateway serves.
    pub(crate) cluster: Option<Cluster>,
    /// Components in the order in which a request passes them.
    pub(crate) path: Vec<String>,
    /// Components in the order in which a request of a flow passes them.
    pub(crate) flow_path: Vec<String>,
    /// Every source text of the topology, by name. The digest of the topology covers all of them.
    pub(crate) sources: BTreeMap<String, String>,
}

/// A component of a topology.
#[derive(Debug, Clone)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) metrics: Option<Metrics>,
}

/// Where a component runs.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// A program that the lab starts.
    Program(Box<Program>),
    /// A component that runs elsewhere.
    Remote { url: String },
}

/// A program that the lab starts.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Name in the search path, or a path.
    pub(crate) name: String,
    /// Programs whose folders this program must know.
    pub(crate) required_programs: Vec<String>,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) ports: Vec<String>,
    /// Files in the component's folder: name, and content with names in it.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) ready: Option<Ready>,
    pub(crate) ready_timeout: Duration,
    pub(crate) limits: Limits,
    /// Limit of open files; `None` for the lab's own limit.
    pub(crate) open_files: Option<u64>,
    pub(crate) cores: Vec<u32>,
    pub(crate) stop: StopSignal,
    /// Number of consecutive executions of a program that does its work and exits. The next
    /// component starts after the last one. 0: the program is a server.
    pub(crate) repetitions: u32,
    /// `true` if an event during load starts the program, instead of the begin of the run.
    pub(crate) standby: bool,
    /// Account of the program if the lab runs as root.
    pub(crate) user: Option<String>,
    /// File in the component's folder that receives standard output.
    pub(crate) stdout: Option<String>,
}

/// Probe that shows whether a component is ready.
#[derive(Debug, Clone)]
pub(crate) enum Ready {
    /// This URL responds with a status below 400 and, if given, with exactly this line.
    Http(String, Option<String>),
    /// This port accepts TCP connections.
    Tcp(String),
}

/// Signal that asks a program to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StopSignal {
    /// SIGTERM, the default.
    #[default]
    Term,
    /// SIGINT, which ends PostgreSQL without waiting for clients.
    Int,
    /// Signal SIGQUIT.
    Quit,
}

/// Source of component figures that `/proc` does not have.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Metrics {
    /// URL of the metrics in the Prometheus text format.
    pub(crate) url: String,
    /// Labels that a sample must have to be used.
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// Name of the counter of accepted connections, if it exists.
    pub(crate) connections: Option<String>,
    /// Name of the counter of received requests, if it exists.
    pub(crate) calls: Option<String>,
    /// Name of the counter of TLS handshakes, if it exists.
    pub(crate) handshakes: Option<String>,
    /// Further counters, by the name that the record gives them.
    #[serde(default)]
    pub(crate) counters: BTreeMap<String, String>,
    /// Accepts any certificate of the metrics server.
    #[serde(default)]
    pub(crate) insecure: bool,
    /// PEM file of the certificate authorities to accept.
    pub(crate) ca: Option<PathBuf>,
    /// File with the bearer token to send.
    pub(crate) token_file: Option<PathBuf>,
}

/// Where the tokens of the load come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tokens {
    /// URL of the token endpoint (RFC 6749 §3.2).
    pub(crate) url: Option<String>,
    /// File with the secret of the clients.
    pub(crate) secret_file: Option<String>,
    /// How to get tokens, by token mode: `oauth` (opaque) or `oidc` (JWT).
    pub(crate) mode: BTreeMap<String, TokenMode>,
    /// Accepts any certificate of the token endpoint.
    #[serde(default)]
    pub(crate) insecure: bool,
}

/// How the lab gets the tokens of one mode.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenMode {
    /// Client ID for the grant `client_credentials` at the token endpoint.
    pub(crate) client: Option<String>,
    /// File with one token per line, instead of the token endpoint.
    pub(crate) file: Option<PathBuf>,
    /// Claims of JWTs that the lab signs, instead of the token endpoint.
    pub(crate) claims: Option<serde_json::Map<String, serde_json::Value>>,
    /// Size in bytes to which such a JWT is padded; 0 for no padding.
    #[serde(default)]
    pub(crate) bytes: usize,
}

/// Where credentials are revoked during load, and which places are watched. The credentials are
/// issued like those of the load.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Revocations {
    /// Revocation endpoints (RFC 7009).
    pub(crate) revoke: Vec<String>,
    /// Token endpoints; if empty, the one of `[tokens]`.
    #[serde(default)]
    pub(crate) issue: Vec<String>,
    /// Endpoints of Postern's admin API that revoke a list of tokens: `POST {"tokens": […]}`.
    #[serde(default)]
    pub(crate) lists: Vec<String>,
    /// Client for these endpoints; it needs the scope `postern:admin`.
    pub(crate) operator: Option<String>,
    /// Client that sends introspection requests.
    pub(crate) introspecting_client: Option<String>,
    /// Places at which the lab checks whether a credential is still accepted.
    pub(crate) place: Vec<RevocationProbe>,
}

/// A place that accepts or refuses a credential. The lab checks it with a request or by
/// introspection (RFC 7662).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevocationProbe {
    pub(crate) node: String,
    pub(crate) cluster: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) introspection: Option<String>,
}

/// A Kubernetes cluster. The lab fills it after its API server has started. All texts may contain
/// names.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cluster {
    /// Component that is the API server.
    pub(crate) after: String,
    /// URL of the API server. Any certificate is accepted.
    pub(crate) api: String,
    /// Bearer token of an administrator.
    pub(crate) token: String,
    /// Files and folders with definitions of kinds.
    pub(crate) definitions: Vec<String>,
    /// Name of the controller that serves the Gateways.
    pub(crate) controller: String,
    /// Address of the service: of this machine, and not a loopback address.
    pub(crate) address: String,
    /// Port of the service.
    pub(crate) service_port: String,
    /// Port of the Gateway that everything but the other Gateways is attached to.
    pub(crate) port: String,
    /// First port of the other Gateways.
    pub(crate) first_port: String,
    /// Metrics of the gateway.
    pub(crate) metrics: String,
    /// Gauge in them that is 1 when all objects were read.
    pub(crate) synced: String,
    /// Gauge in them that is 0 when the status of all objects is written.
    pub(crate) settled: String,
    pub(crate) gateways: String,
    pub(crate) listener_sets: String,
    pub(crate) routes: String,
    pub(crate) notebooks: String,
}

impl Cluster {
    /// All texts with names, each with its key.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let one = [
            ("api", &self.api),
            ("token", &self.token),
            ("controller", &self.controller),
            ("address", &self.address),
            ("service_port", &self.service_port),
            ("port", &self.port),
            ("first_port", &self.first_port),
            ("metrics", &self.metrics),
            ("gateways", &self.gateways),
            ("listener_sets", &self.listener_sets),
            ("routes", &self.routes),
            ("notebooks", &self.notebooks),
        ];
        one.into_iter().chain(self.definitions.iter().map(|text| ("definitions", text)))
    }
}

/// Where load enters the topology.
#[derive(Debug, Clone)]
pub(crate) struct LoadEntry {
    /// One URL, or several that share the load.
    pub(crate) urls: Vec<String>,
    pub(crate) protocol: Protocol,
    pub(crate) ca: Option<String>,
    pub(crate) insecure: bool,
    pub(crate) connect: Option<String>,
    /// `true` if requests without a token must be refused. This is checked before the load starts.
    pub(crate) guarded: bool,
    /// Component whose `Server-Timing` phases the responses carry.
    pub(crate) server_timing_of: Option<String>,
}

/// How to get the version of a program, and how to install the program.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramInfo {
    pub(crate) version: Option<Vec<String>>,
    pub(crate) get: Option<String>,
}

impl Topology {
    /// URLs where load enters, with `variables` replacing those of the topology. Names whose value
    /// is known only during a run remain.
    pub(crate) fn entries_with(&self, variables: &BTreeMap<String, String>) -> Vec<String> {
        // Values of variables may contain variables: replace twice.
        let with = |text: String| {
            let all = self.variables.iter().map(|(name, value)| (name, variables.get(name).unwrap_or(value)));
            all.fold(text, |text, (name, value)| text.replace(&format!("@{name}@"), value))
        };
        self.entry.urls.iter().map(|url| with(with(url.clone()))).collect()
    }

    /// The title and the components in the order in which a request passes them.
    pub fn summary(&self) -> String {
        if self.path.is_empty() {
            self.title.clone()
        } else {
            format!("{}: {}", self.title, self.path.join(" → "))
        }
    }

    /// Whether the lab signs its tokens.
    pub(crate) fn needs_signer(&self) -> bool {
        self.tokens.iter().flat_map(|tokens| tokens.mode.values()).any(|mode| mode.claims.is_some())
    }

    /// Supported token modes; empty for a topology without tokens.
    pub fn modes(&self) -> Vec<&str> {
        self.tokens.iter().flat_map(|tokens| tokens.mode.keys().map(String::as_str)).collect()
    }

    /// Components in order, and what each is: the program that is started here, or the URL of a
    /// component elsewhere.
    pub fn component_sources(&self) -> impl Iterator<Item = (&str, String)> {
        self.components.iter().map(|component| {
            let source = match &component.kind {
                Kind::Program(program) => format!("program {}", program.name),
                Kind::Remote { url } => format!("at {url}"),
            };
            (component.name.as_str(), source)
        })
    }

    /// URLs where load enters, with names as they are in the file.
    pub fn entry_urls(&self) -> &[String] {
        &self.entry.urls
    }

    pub(crate) fn component(&self, name: &str) -> Option<&Component> {
        self.components.iter().find(|component| component.name == name)
    }

    /// Programs of the components that are started here, including required ones: component,
    /// program, and the topology's own entry for it.
    pub(crate) fn programs(&self) -> impl Iterator<Item = (&str, &str, Option<&ProgramInfo>)> {
        self.components.iter().flat_map(|component| {
            let names = match &component.kind {
                Kind::Program(program) => {
                    [&program.name].into_iter().chain(&program.required_programs).collect()
                }
                Kind::Remote { .. } => Vec::new(),
            };
            let of = |name: &'_ String| self.programs.get(name);
            names.into_iter().map(move |name| (component.name.as_str(), name.as_str(), of(name)))
        })
    }

    /// Checks whether the provider has everything that a flow needs.
    ///
    /// # Errors
    /// The topology has no provider, or its description lacks a key for the flow.
    pub(crate) fn supports_flow(&self, flow: Flow) -> Result<(), String> {
        let Some(provider) = &self.provider else {
            return Err("the topology has no provider for a flow; add [provider]".to_owned());
        };
        let described = provider::filled(provider, &self.names())?;
        described.check(flow).map_err(|error| error.to_string())
    }

    /// Whether the component waits until an event starts it.
    pub(crate) fn is_standby(&self, component: &str) -> bool {
        let kind = self.component(component).map(|component| &component.kind);
        matches!(kind, Some(Kind::Program(program)) if program.standby)
    }
}

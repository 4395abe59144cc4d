//! The TOML form of a topology.
//!
//! Owns: keys, what they may hold, and the texts that belong together (includes and templates). Does not own: running anything. What can be
//! checked without starting a program is ([`super::check`]), so that a spelling mistake does not show after half an hour of load.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::TopologyError;
use super::during::Anew;
use super::library::{Library, Text};
use super::names::own_names;
use super::provider;
use super::table::Gathered;
use super::template;
use crate::cgroup::Limits;
use crate::load::Protocol;
use crate::provider::Scenario as Flow;

/// Most places where load enters.
const MOST_ENTRIES: usize = 64;

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
    /// Reads a topology that ships, or a file.
    pub fn read(name: &str) -> Result<Self, TopologyError> {
        Self::read_with(name, &BTreeMap::new())
    }

    /// The same with these variables, on which the parts that it includes may depend.
    pub fn read_with(name: &str, variables: &BTreeMap<String, String>) -> Result<Self, TopologyError> {
        Self::parse(&Library::topology(name)?, name, variables)
    }

    /// Where load enters, with these variables in place of its own; names of what is known when it runs only stay.
    pub(crate) fn entries_with(&self, variables: &BTreeMap<String, String>) -> Vec<String> {
        // Variables may name variables.
        let with = |text: String| {
            let all = self.variables.iter().map(|(name, value)| (name, variables.get(name).unwrap_or(value)));
            all.fold(text, |text, (name, value)| text.replace(&format!("@{name}@"), value))
        };
        self.load.urls.iter().map(|url| with(with(url.clone()))).collect()
    }

    /// Reads a topology from a text; `name` is what errors call it.
    pub fn from_text(content: &str, name: &str) -> Result<Self, TopologyError> {
        let text = Text { name: name.to_owned(), content: content.to_owned(), folder: None };
        Self::parse(&text, name, &BTreeMap::new())
    }

    fn parse(text: &Text, name: &str, variables: &BTreeMap<String, String>) -> Result<Self, TopologyError> {
        let mut gathered = Gathered { given: variables.clone(), ..Gathered::default() };
        let file = text.name.clone();
        let top = gathered.take(text, 0)?;
        let missing = |key: &str, what: &str| TopologyError::value(&file, key, what);
        let load = gathered.load.ok_or_else(|| {
            missing(
                "`load` is missing",
                "say where load enters: [load] url = \"http://127.0.0.1:@COMPONENT.PORT@/\"",
            )
        })?;
        let guarded = load.guarded.unwrap_or(gathered.tokens.is_some());
        let urls = match (load.url, load.urls) {
            (Some(url), urls) if urls.is_empty() => vec![url],
            (None, urls) if (1..=MOST_ENTRIES).contains(&urls.len()) => urls,
            _ => {
                return Err(missing(
                    "load",
                    "takes either `url` or `urls` (from 1 to 64, which share the load)",
                ));
            }
        };
        let stem = PathBuf::from(name)
            .file_stem()
            .map_or(name.to_owned(), |stem| stem.to_string_lossy().into_owned());
        let topology = Self {
            name: stem.clone(),
            title: top.unwrap_or(stem),
            components: gathered.components,
            programs: gathered.programs,
            variables: gathered.variables,
            chosen: gathered.chosen,
            secrets: gathered.secrets,
            tokens: gathered.tokens,
            provider: gathered.provider,
            load: Entry {
                urls,
                protocol: load.protocol.protocol(),
                ca: load.ca,
                insecure: load.insecure,
                connect: load.connect,
                guarded,
                timing: load.server_timing_of,
            },
            revocations: gathered.revocations,
            path: gathered.path,
            flow_path: gathered.flow_path,
            sources: gathered.sources,
        };
        topology.check(&file)?;
        Ok(topology)
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

    /// Whether a file of a component can be written anew so.
    pub(crate) fn can_write(&self, component: &str, anew: &Anew) -> Result<(), String> {
        let Some(Kind::Program(program)) = self.component(component).map(|component| &component.kind) else {
            return Err(format!("no component `{component}` is started here"));
        };
        let Some(text) = program.files.get(&anew.file) else {
            let has: Vec<&str> = program.files.keys().map(String::as_str).collect();
            return Err(format!(
                "component `{component}` has no file `{}`; it has {}",
                anew.file,
                has.join(", ")
            ));
        };
        let own = own_names(program, &self.names());
        for (variable, value) in &anew.with {
            if !self.variables.contains_key(variable) {
                let known: Vec<&str> = self.variables.keys().map(String::as_str).collect();
                return Err(format!("there is no variable `{variable}`; there is {}", known.join(", ")));
            }
            if !text.contains(&format!("@{variable}@")) {
                return Err(format!("`{}` does not use `@{variable}@`: it would stay as it is", anew.file));
            }
            template::fill(value, &own).map_err(|unknown| format!("{variable}: {}", unknown.words(&own)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_ship_are_sound() {
        for name in Library::topologies() {
            let topology = Topology::read(name).unwrap_or_else(|error| panic!("{error}"));
            assert!(topology.title.len() > name.len(), "{name} says what it is");
            // Whoever signs in brings no token.
            let enters = topology.tokens.is_some() || topology.provider.is_some() || name == "direct";
            assert!(enters, "{name}");
        }
    }

    #[test]
    fn faults_say_where_and_what_instead() {
        let refuse = |text: &str| Topology::from_text(text, "mine.toml").unwrap_err().to_string();
        let load = "[load]\nurl = \"http://127.0.0.1:@a.http@/\"\n";
        let a = "[[component]]\nname = \"a\"\nprogram = \"x\"\nports = [\"http\"]\n";
        assert!(Topology::from_text(&format!("{load}{a}"), "mine.toml").is_ok());
        for (text, words) in [
            (a.to_owned(), vec!["`mine.toml`: `load` is missing", "[load] url ="]),
            (
                format!("{load}{a}cpu = \"50m\""),
                vec!["`mine.toml` is not understood", "unknown field `cpu`", "cpu_limit"],
            ),
            (format!("{load}{a}cpu_limit = \"50\""), vec!["component `a`: cpu_limit", "50m"]),
            (format!("{load}{a}memory_limit = \"much\""), vec!["component `a`: memory_limit", "64MiB"]),
            (format!("{load}{a}url = \"http://x\""), vec!["either `program`"]),
            (
                format!("{load}{a}metrics = {{ url = \"http://x\", calls = \"a b\" }}"),
                vec!["component `a`: metrics.calls", "NAME{label=\"value\"}"],
            ),
            (format!("{load}{a}{a}"), vec!["two are called `a`"]),
            (
                format!("{load}{a}arguments = [\"@b.http@\"]"),
                vec!["component `a`: arguments", "nothing is called `@b.http@`"],
            ),
            (format!("{load}{a}ready = {{ http = \"x\", tcp = \"y\" }}"), vec!["either `http`"]),
            (format!("{load}{a}ready = {{ tcp = \"y\", timeout = \"soon\" }}"), vec!["ready.timeout", "30s"]),
            (
                format!("{load}{a}files = {{ \"x\" = \"nowhere.cfg\" }}"),
                vec!["no template `nowhere.cfg`", "fused"],
            ),
            (format!("path = [\"b\"]\n{load}{a}"), vec!["path: there is no component `b`; there is a"]),
            (format!("flow_path = [\"b\"]\n{load}{a}"), vec!["flow_path: there is no component `b`"]),
            (format!("include = [\"b\"]\n{load}{a}"), vec!["no part `b`", "backend, provider"]),
            (format!("{load}{a}[tokens.mode.oidc]\nclient = \"x\""), vec!["needs `url` and `secret_file`"]),
            (
                format!("{load}{a}[tokens.mode.oidc]\nfile = \"x\"\nclaims = {{ iss = \"y\" }}"),
                vec!["tokens.mode.oidc", "either `client`", "`claims`"],
            ),
            (
                format!("{load}{a}[tokens.mode.oidc]\nclaims = {{ iss = \"y\" }}\nbytes = 99999"),
                vec!["tokens.mode.oidc", "16384"],
            ),
            (
                format!("include = [\"b-@kind@\"]\n{load}{a}"),
                vec!["include: nothing is called `@kind@`", "a variable of the same file"],
            ),
            (format!("secrets = [\"A b\"]\n{load}{a}"), vec!["secrets: `A b` is not made of"]),
            (format!("{load}{a}arguments = [\"@secret.b@\"]"), vec!["nothing is called `@secret.b@`"]),
            (format!("{load}{a}arguments = [\"@port.tls@\"]"), vec!["nothing is called `@port.tls@`"]),
            (format!("{load}{a}arguments = [\"@n@\"]"), vec!["nothing is called `@n@`"]),
            (format!("{load}{a}times = 3"), vec!["component `a`: times", "once = true"]),
            (format!("{load}{a}once = true\ntimes = 0"), vec!["component `a`: times", "from 1"]),
            (format!("{load}{a}stdout = \"../x\""), vec!["component `a`: stdout", "`../x` is not"]),
            (format!("{load}{a}ready = {{ tcp = \"1\", says = \"y\" }}"), vec!["`says`", "`http`"]),
            (format!("{load}{a}[provider]\nname = \"x\""), vec!["provider: missing field"]),
            (format!("{load}[[component]]\nname = \"A b\"\nprogram = \"x\""), vec!["component `A b`: name"]),
        ] {
            let said = refuse(&text);
            assert!(words.iter().all(|word| said.contains(word)), "{text}\n{said}");
        }
    }

    #[test]
    fn a_variable_chooses_a_part() {
        let with = |connector: &str| {
            let variables = BTreeMap::from([("connector".to_owned(), connector.to_owned())]);
            Topology::read_with("idp-single", &variables).map_err(|error| error.to_string())
        };
        let broker = |topology: &Topology| topology.component("broker").is_some();
        assert!(!broker(&Topology::read("idp-single").unwrap()), "by itself it has no connector");
        assert!(!broker(&with("postgres").unwrap()) && broker(&with("nats").unwrap()));
        let error = with("pigeons").unwrap_err();
        assert!(
            error.contains("no part `connector-pigeons.toml`") && error.contains("connector-nats"),
            "{error}"
        );
    }
}

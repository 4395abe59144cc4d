//! Topology tables: the tables of a topology's TOML file, and how a file and its included parts are
//! merged.
//!
//! Owns: keys, and faults of single values. Does not own: the consistency of several keys
//! ([`super::check`]).

use std::collections::BTreeMap;
use std::time::Duration;

use lab_analysis::amount;
use lab_load::cgroup::Limits;
use lab_load::load::Protocol;
use serde::Deserialize;

use super::TopologyError;
use super::description::{
    Cluster, Component, Kind, Metrics, Program, ProgramInfo, Ready, Revocations, StopSignal, Tokens,
};
use super::library::{Library, SourceText};
use super::template;

/// Default timeout of the readiness wait.
const DEFAULT_READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest nesting depth of included parts.
const MAX_INCLUDE_DEPTH: usize = 4;
/// Largest number of executions of a one-time program. Each execution starts the program.
const MAX_REPETITIONS: u32 = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    title: Option<String>,
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    path: Vec<String>,
    #[serde(default)]
    flow_path: Vec<String>,
    #[serde(default)]
    variables: BTreeMap<String, String>,
    #[serde(default)]
    programs: BTreeMap<String, ProgramInfo>,
    #[serde(default)]
    secrets: Vec<String>,
    tokens: Option<Tokens>,
    provider: Option<toml::Table>,
    load: Option<LoadTable>,
    revocations: Option<Revocations>,
    cluster: Option<Cluster>,
    #[serde(default)]
    component: Vec<ComponentTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadTable {
    pub(super) url: Option<String>,
    #[serde(default)]
    pub(super) urls: Vec<String>,
    #[serde(default)]
    pub(super) protocol: WireProtocol,
    pub(super) ca: Option<String>,
    #[serde(default)]
    pub(super) insecure: bool,
    pub(super) connect: Option<String>,
    pub(super) guarded: Option<bool>,
    pub(super) server_timing_of: Option<String>,
}

/// Name of a protocol in TOML files.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) enum WireProtocol {
    #[default]
    #[serde(rename = "http/1.1")]
    Http1,
    #[serde(rename = "h2")]
    Http2,
}

impl WireProtocol {
    /// Converts the name to the protocol.
    pub(crate) fn protocol(self) -> Protocol {
        match self {
            Self::Http1 => Protocol::Http1,
            Self::Http2 => Protocol::Http2,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ComponentTable {
    name: String,
    program: Option<String>,
    #[serde(default)]
    needs: Vec<String>,
    url: Option<String>,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    ports: Vec<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    ready: Option<ReadyTable>,
    cpu_limit: Option<String>,
    memory_limit: Option<String>,
    open_files: Option<u64>,
    #[serde(default)]
    cores: Vec<u32>,
    #[serde(default)]
    stop_signal: StopSignal,
    #[serde(default)]
    once: bool,
    times: Option<u32>,
    #[serde(default)]
    standby: bool,
    user: Option<String>,
    stdout: Option<String>,
    metrics: Option<Metrics>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadyTable {
    http: Option<String>,
    says: Option<String>,
    tcp: Option<String>,
    timeout: Option<String>,
}

impl ReadyTable {
    /// Readiness probe of a component, and the timeout of its wait.
    ///
    /// # Errors
    /// The wrong key, and what is wrong with it.
    fn read(self, once: bool) -> Result<(Option<Ready>, Duration), (&'static str, String)> {
        let timeout = self.timeout.as_deref().map(amount::duration).transpose();
        let timeout = timeout.map_err(|message| ("ready.timeout", message))?;
        let wrong = |message: &str| Err(("ready", message.to_owned()));
        let how = match (self.http, self.tcp) {
            // A one-time program is ready when it has ended.
            (None, None) if once && self.says.is_none() => None,
            (Some(url), None) => Some(Ready::Http(url, self.says)),
            (None, Some(_)) if self.says.is_some() => {
                return wrong("`says` needs `http`: a `tcp` probe has no response");
            }
            (None, Some(port)) => Some(Ready::Tcp(port)),
            _ => return wrong("needs either `http` (a URL) or `tcp` (a port)"),
        };
        Ok((how, timeout.unwrap_or(DEFAULT_READY_TIMEOUT)))
    }
}

/// How often a component runs to its end before the load starts; 0 for one that keeps running.
fn times(once: bool, times: Option<u32>) -> Result<u32, String> {
    match (once, times) {
        (false, None) => Ok(0),
        (true, None) => Ok(1),
        (true, Some(times)) if (1..=MAX_REPETITIONS).contains(&times) => Ok(times),
        (true, Some(_)) => Err(format!("must be from 1 to {MAX_REPETITIONS}")),
        (false, Some(_)) => Err("needs a component that exits after its work: `once = true`".to_owned()),
    }
}

/// Whether `name` is a valid name of a component, a port or a secret.
fn is_valid_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.bytes().all(known)
}

/// Whether `name` is a valid file name in a component's folder. `log` is reserved for its output.
fn is_file_name(name: &str) -> bool {
    !(name.is_empty() || name.contains('/') || name.starts_with('.') || name == "log")
}

fn not_a_file_name(name: &str) -> String {
    format!("`{name}` is not a valid file name in the component's folder")
}

/// The merged content of a topology and its included parts.
#[derive(Default)]
pub(super) struct MergedTables {
    /// Variables from outside that replace those of the file.
    pub(super) given: BTreeMap<String, String>,
    /// Variables that selected a part, with their values.
    pub(super) part_variables: BTreeMap<String, String>,
    pub(super) components: Vec<Component>,
    pub(super) programs: BTreeMap<String, ProgramInfo>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) secrets: Vec<String>,
    pub(super) tokens: Option<Tokens>,
    pub(super) provider: Option<toml::Table>,
    pub(super) load: Option<LoadTable>,
    pub(super) revocations: Option<Revocations>,
    pub(super) cluster: Option<Cluster>,
    pub(super) path: Vec<String>,
    pub(super) flow_path: Vec<String>,
    pub(super) sources: BTreeMap<String, String>,
}

impl MergedTables {
    /// Merges a text after its included parts. Returns its title.
    pub(super) fn merge(&mut self, text: &SourceText, depth: usize) -> Result<Option<String>, TopologyError> {
        let table: Table = toml::from_str(&text.content)
            .map_err(|error| TopologyError::Toml { file: text.name.clone(), error })?;
        if depth > MAX_INCLUDE_DEPTH {
            return Err(TopologyError::invalid_value(
                &text.name,
                "include",
                "parts include each other, or are nested too deep",
            ));
        }
        self.sources.insert(text.name.clone(), text.content.clone());
        for part in &table.include {
            let part = self.resolve_part(part, &table.variables, text)?;
            self.merge(&Library::part(&part, text.folder.as_deref())?, depth + 1)?;
        }
        for component in table.component {
            let component = self.component(component, text)?;
            self.components.push(component);
        }
        self.programs.extend(table.programs);
        self.variables.extend(table.variables);
        for name in table.secrets {
            if !is_valid_name(&name) {
                let message = format!("`{name}` must consist of lower-case letters, digits and `-`");
                return Err(TopologyError::invalid_value(&text.name, "secrets", message));
            }
            if !self.secrets.contains(&name) {
                self.secrets.push(name);
            }
        }
        self.provider = table.provider.or(self.provider.take());
        self.tokens = table.tokens.or(self.tokens.take());
        self.load = table.load.or(self.load.take());
        self.cluster = table.cluster.or(self.cluster.take());
        self.revocations = table.revocations.or(self.revocations.take());
        if !table.path.is_empty() {
            self.path = table.path;
        }
        if !table.flow_path.is_empty() {
            self.flow_path = table.flow_path;
        }
        Ok(table.title)
    }

    /// Name of a part. It may contain a variable of the same text: `connector-@connector@.toml`.
    fn resolve_part(
        &mut self,
        part: &str,
        variables: &BTreeMap<String, String>,
        text: &SourceText,
    ) -> Result<String, TopologyError> {
        let mut values = variables.clone();
        let given = self.given.iter().filter(|(name, _)| variables.contains_key(*name));
        values.extend(given.map(|(name, value)| (name.clone(), value.clone())));
        let filled = template::fill(part, &values).map_err(|unknown| {
            let message = format!(
                "{}: a part can only depend on variables of the same file",
                unknown.describe(&values)
            );
            TopologyError::invalid_value(&text.name, "include", message)
        })?;
        let named = values.into_iter().filter(|(name, _)| part.contains(&format!("@{name}@")));
        self.part_variables.extend(named);
        Ok(filled)
    }

    fn component(
        &mut self,
        mut table: ComponentTable,
        text: &SourceText,
    ) -> Result<Component, TopologyError> {
        let name = table.name.clone();
        let wrong = |key: &str, message: &str| {
            Err(TopologyError::invalid_value(&text.name, format!("component `{name}`: {key}"), message))
        };
        if !is_valid_name(&name) {
            return wrong("name", "must consist of lower-case letters, digits and `-`");
        }
        if let Some(port) = table.ports.iter().find(|port| !is_valid_name(port)) {
            return wrong(
                "ports",
                &format!(
                    "`{port}` must consist of lower-case letters, digits and `-`: ports have names, the lab assigns the numbers"
                ),
            );
        }
        let metrics = table.metrics.take();
        let kind = match (table.program.take(), table.url.take()) {
            (Some(program), None) => Kind::Program(Box::new(self.program(program, table, text)?)),
            (None, Some(url)) => {
                let lists = [table.arguments.is_empty(), table.ports.is_empty(), table.files.is_empty()];
                let limits = [&table.cpu_limit, &table.memory_limit];
                if lists.contains(&false)
                    || limits.iter().any(|limit| limit.is_some())
                    || table.open_files.is_some()
                    || table.standby
                {
                    return wrong(
                        "url",
                        "a component with `url` has no arguments, ports, files, limits or `standby`",
                    );
                }
                Kind::Remote { url }
            }
            _ => return wrong("program", "needs either `program` (started here) or `url` (runs elsewhere)"),
        };
        Ok(Component { name, kind, metrics })
    }

    /// The program of a component that the lab starts. `name` is that of the program.
    fn program(
        &mut self,
        name: String,
        table: ComponentTable,
        text: &SourceText,
    ) -> Result<Program, TopologyError> {
        let wrong = |(key, message): (&str, String)| {
            TopologyError::invalid_value(&text.name, format!("component `{}`: {key}", table.name), message)
        };
        let limit = |key, given: Option<&String>, parse: fn(&str) -> Result<u64, String>| {
            given.map(|given| parse(given)).transpose().map_err(|message| wrong((key, message)))
        };
        let limits = Limits {
            cpu_millicores: limit("cpu_limit", table.cpu_limit.as_ref(), amount::millicores)?,
            memory_bytes: limit("memory_limit", table.memory_limit.as_ref(), amount::bytes)?,
        };
        let (ready, ready_timeout) = match table.ready {
            None => (
                table.ports.first().map(|port| Ready::Tcp(format!("@{}.{port}@", table.name))),
                DEFAULT_READY_TIMEOUT,
            ),
            Some(ready) => ready.read(table.once).map_err(wrong)?,
        };
        let times = times(table.once, table.times).map_err(|message| wrong(("times", message)))?;
        if table.standby && table.once {
            let message = "is for servers only: a component with `once = true` exits before the load starts";
            return Err(wrong(("standby", message.to_owned())));
        }
        if let Some(name) = table.stdout.as_ref().filter(|name| !is_file_name(name)) {
            return Err(wrong(("stdout", not_a_file_name(name))));
        }
        let mut files = BTreeMap::new();
        for (name, template) in &table.files {
            if !is_file_name(name) {
                return Err(wrong(("files", not_a_file_name(name))));
            }
            files.insert(name.clone(), self.template(template, text)?);
        }
        Ok(Program {
            name,
            required_programs: table.needs,
            arguments: table.arguments,
            environment: table.environment,
            ports: table.ports,
            files,
            ready,
            ready_timeout,
            limits,
            open_files: table.open_files,
            cores: table.cores,
            stop: table.stop_signal,
            repetitions: times,
            standby: table.standby,
            user: table.user,
            stdout: table.stdout,
        })
    }

    fn template(&mut self, name: &str, text: &SourceText) -> Result<String, TopologyError> {
        let template = Library::template(name, text.folder.as_deref())?;
        let folder = template.folder.clone();
        let sources = &mut self.sources;
        sources.insert(template.name.clone(), template.content.clone());
        template::include(&template.content, |part| {
            let part = Library::template(part, folder.as_deref())?;
            sources.insert(part.name.clone(), part.content.clone());
            Ok(part.content)
        })
    }
}

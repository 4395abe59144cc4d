//! Topology reader: reads a topology from a file or from the library, with all included parts.
//!
//! Everything that can be checked without starting a program is checked here and in
//! [`super::check`]. Otherwise a spelling mistake would show up only after half an hour of load.
//!
//! Owns: the source of the text, and the check for required tables in the combined topology. Does
//! not own: keys, and merging a file with its parts ([`super::table`]).

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::TopologyError;
use super::description::{LoadEntry, Topology};
use super::library::{Library, SourceText};
use super::table::MergedTables;

/// Largest number of URLs where load enters.
const MAX_ENTRIES: usize = 64;

impl Topology {
    /// Reads a shipped topology or a file.
    ///
    /// # Errors
    /// The text cannot be read or parsed, or the topology is invalid.
    pub fn read(name: &str) -> Result<Self, TopologyError> {
        Self::read_with(name, &BTreeMap::new())
    }

    /// Like [`Topology::read`], with these variables. Included parts may depend on them.
    pub fn read_with(name: &str, variables: &BTreeMap<String, String>) -> Result<Self, TopologyError> {
        Self::parse(&Library::topology(name)?, name, variables)
    }

    /// Reads a topology from a text; `name` is its name in errors.
    pub fn from_text(content: &str, name: &str) -> Result<Self, TopologyError> {
        let text = SourceText { name: name.to_owned(), content: content.to_owned(), folder: None };
        Self::parse(&text, name, &BTreeMap::new())
    }

    fn parse(
        text: &SourceText,
        name: &str,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, TopologyError> {
        let mut gathered = MergedTables { given: variables.clone(), ..MergedTables::default() };
        let file = text.name.clone();
        let top = gathered.merge(text, 0)?;
        let missing = |key: &str, message: &str| TopologyError::invalid_value(&file, key, message);
        let load = gathered.load.ok_or_else(|| {
            missing(
                "`load` is missing",
                "add where load enters: [load] url = \"http://127.0.0.1:@COMPONENT.PORT@/\"",
            )
        })?;
        let guarded = load.guarded.unwrap_or(gathered.tokens.is_some());
        let urls = match (load.url, load.urls) {
            (Some(url), urls) if urls.is_empty() => vec![url],
            (None, urls) if (1..=MAX_ENTRIES).contains(&urls.len()) => urls,
            _ => {
                return Err(missing("load", "needs either `url` or `urls` (1 to 64, which share the load)"));
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
            part_variables: gathered.part_variables,
            secrets: gathered.secrets,
            tokens: gathered.tokens,
            provider: gathered.provider,
            entry: LoadEntry {
                urls,
                protocol: load.protocol.protocol(),
                ca: load.ca,
                insecure: load.insecure,
                connect: load.connect,
                guarded,
                server_timing_of: load.server_timing_of,
            },
            revocations: gathered.revocations,
            cluster: gathered.cluster,
            path: gathered.path,
            flow_path: gathered.flow_path,
            sources: gathered.sources,
        };
        topology.check(&file)?;
        Ok(topology)
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
            // Requests of a sign-in carry no token.
            let without = ["direct", "gateway-api"].contains(&name);
            let enters = topology.tokens.is_some() || topology.provider.is_some() || without;
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
                vec!["cannot parse `mine.toml`", "unknown field `cpu`", "cpu_limit"],
            ),
            (format!("{load}{a}cpu_limit = \"50\""), vec!["component `a`: cpu_limit", "50m"]),
            (format!("{load}{a}memory_limit = \"much\""), vec!["component `a`: memory_limit", "64MiB"]),
            (format!("{load}{a}url = \"http://x\""), vec!["either `program`"]),
            (
                format!("{load}{a}metrics = {{ url = \"http://x\", calls = \"a b\" }}"),
                vec!["component `a`: metrics.calls", "NAME{label=\"value\"}"],
            ),
            (format!("{load}{a}{a}"), vec!["two components have the name `a`"]),
            (
                format!("{load}{a}arguments = [\"@b.http@\"]"),
                vec!["component `a`: arguments", "unknown name `@b.http@`"],
            ),
            (format!("{load}{a}ready = {{ http = \"x\", tcp = \"y\" }}"), vec!["either `http`"]),
            (format!("{load}{a}ready = {{ tcp = \"y\", timeout = \"soon\" }}"), vec!["ready.timeout", "30s"]),
            (
                format!("{load}{a}files = {{ \"x\" = \"nowhere.cfg\" }}"),
                vec!["unknown template `nowhere.cfg`", "fused"],
            ),
            (format!("path = [\"b\"]\n{load}{a}"), vec!["path: unknown component `b`; available: a"]),
            (format!("flow_path = [\"b\"]\n{load}{a}"), vec!["flow_path: unknown component `b`"]),
            (format!("include = [\"b\"]\n{load}{a}"), vec!["unknown part `b`", "backend, provider"]),
            (format!("{load}{a}[tokens.mode.oidc]\nclient = \"x\""), vec!["needs `url` and `secret_file`"]),
            (
                format!("{load}{a}[tokens.mode.oidc]\nfile = \"x\"\nclaims = {{ iss = \"y\" }}"),
                vec!["tokens.mode.oidc", "exactly one of `client`", "`claims`"],
            ),
            (
                format!("{load}{a}[tokens.mode.oidc]\nclaims = {{ iss = \"y\" }}\nbytes = 99999"),
                vec!["tokens.mode.oidc", "16384"],
            ),
            (
                format!("include = [\"b-@kind@\"]\n{load}{a}"),
                vec!["include: unknown name `@kind@`", "variables of the same file"],
            ),
            (format!("secrets = [\"A b\"]\n{load}{a}"), vec!["secrets: `A b` must consist of"]),
            (format!("{load}{a}arguments = [\"@secret.b@\"]"), vec!["unknown name `@secret.b@`"]),
            (format!("{load}{a}arguments = [\"@port.tls@\"]"), vec!["unknown name `@port.tls@`"]),
            (format!("{load}{a}arguments = [\"@n@\"]"), vec!["unknown name `@n@`"]),
            (format!("{load}{a}times = 3"), vec!["component `a`: times", "once = true"]),
            (format!("{load}{a}once = true\ntimes = 0"), vec!["component `a`: times", "from 1"]),
            (format!("{load}{a}stdout = \"../x\""), vec!["component `a`: stdout", "`../x` is not"]),
            (format!("{load}{a}ready = {{ tcp = \"1\", says = \"y\" }}"), vec!["`says`", "`http`"]),
            (format!("{load}{a}[provider]\nname = \"x\""), vec!["provider: missing field"]),
            (format!("{load}[[component]]\nname = \"A b\"\nprogram = \"x\""), vec!["component `A b`: name"]),
        ] {
            let message = refuse(&text);
            assert!(words.iter().all(|word| message.contains(word)), "{text}\n{message}");
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
            error.contains("unknown part `connector-pigeons.toml`") && error.contains("connector-nats"),
            "{error}"
        );
    }
}

//! Envoy: a bootstrap with static resources, as far as it authenticates, authorizes and routes.
//!
//! Owns: its listeners, clusters and routes, and the filters `jwt_authn` and `ext_authz`. A filter that
//! decides about requests and has no equal closes every route: what is not translated must not open
//! anything.

mod clusters;
mod filters;
mod listeners;
mod paths;
mod routes;

use std::collections::BTreeMap;

use serde_json::Value as Json;

use self::filters::Filters;
use crate::draft::Draft;
use crate::files::ContainerFiles;
use crate::input_fault::InputFault;
use crate::report::{MigrationReport, Translation};
use crate::settings::Given;
use crate::{Migration, SecretFile};

/// Name of the program, for messages.
pub const PROGRAM: &str = "Envoy";

/// Translates a bootstrap, YAML or JSON, from this file.
///
/// # Errors
/// If it is no YAML, or has no listener with HTTP.
pub fn translate(name: &str, text: &str) -> Result<Migration, InputFault> {
    let mut files = ContainerFiles::default();
    files.add(name, text);
    let bootstrap: Json = files.yaml(&Given::new(name, name))?;
    let resources = &bootstrap["static_resources"];
    let mut output = Output::default();
    let managers = listeners::translate(resources, &mut output);
    if managers.is_empty() {
        let why = "it has no static listener with an HTTP connection manager";
        return Err(InputFault::File { name: name.to_owned(), why: why.into() });
    }
    if managers.iter().any(|manager| manager.listener != managers[0].listener) {
        let why = "several listeners have routes, and here routes serve every listener: leave one of these listeners in the \
                   file, and run one Postern for each";
        return Err(InputFault::File { name: name.to_owned(), why: why.into() });
    }
    clusters::translate(resources, &mut output);
    for manager in &managers {
        let mut filters = Filters::read(manager.config, &mut output);
        filters.is_closed |= manager.is_closed;
        routes::translate(manager, &filters, &mut output);
    }
    for name in output.upstreams.clone() {
        if output.used.contains(&name) {
            output.translated(format!("cluster {name}"));
        }
    }
    for name in output.draft.retain("[[upstream]]", &output.used) {
        let difference = "no route leads to it, so it is left out; keys are fetched from their address";
        output.different(format!("cluster {name}"), difference);
    }
    admin(&bootstrap, &mut output);
    output.report.notes.extend(
        [
            "a prefix ends with a segment here: `/api` is not a prefix of `/apix`, which another route takes",
            "a public route looks at no token, so it passes none on: if the service verifies tokens itself, add \
             `forward_authorization`",
            "headers that state who calls or where a request came from are removed from every request",
        ]
        .map(str::to_owned),
    );
    let head = [format!("Translated from {name}."), "Check it: postern check FILE".to_owned()];
    let Output { draft, files, report, .. } = output;
    Ok(Migration { configuration: draft.render(&head), secrets: files, report })
}

/// What the translation builds.
#[derive(Default)]
struct Output {
    draft: Draft,
    files: Vec<SecretFile>,
    report: MigrationReport,
    /// Clusters that became upstreams.
    upstreams: Vec<String>,
    /// Those that a route or an authorizer leads to.
    used: Vec<String>,
    /// Providers of tokens that became issuers.
    issuers: Vec<String>,
    /// The same by their names in the bootstrap, to recognize them in another filter chain.
    providers: BTreeMap<String, Json>,
    /// Number of authorizers.
    authorizers: usize,
    /// Names of virtual hosts, which those of their routes begin with.
    host_names: Vec<String>,
    /// Hosts of the filter chains so far.
    hosts: Vec<String>,
}

impl Output {
    fn translated(&mut self, setting: impl Into<String>) {
        self.report.add(setting, Translation::Translated);
    }

    fn different(&mut self, setting: impl Into<String>, difference: &str) {
        self.report.add(setting, Translation::Different(difference.to_owned()));
    }

    fn no_equal(&mut self, setting: impl Into<String>, remedy: &str) {
        self.report.add(setting, Translation::NoEqual(remedy.to_owned()));
    }

    /// Reports the fields of an object that are there and have no equal.
    fn none_equal(&mut self, object: &Json, of: &str, fields: &[(&str, &str)]) {
        for (field, remedy) in fields {
            if !object[*field].is_null() {
                self.no_equal(format!("{field} of {of}"), remedy);
            }
        }
    }
}

fn admin(bootstrap: &Json, output: &mut Output) {
    let address = &bootstrap["admin"]["address"]["socket_address"];
    if let Some(address) = socket_address(address) {
        output.draft.table("[admin]").set("address", address, "admin");
        output.different("admin", "the admin listener has `/livez`, `/readyz`, `/metrics` and `/debug`");
    }
}

/// `ADDRESS:PORT` of a `socket_address`.
fn socket_address(address: &Json) -> Option<String> {
    let (host, port) = (address["address"].as_str()?, address["port_value"].as_u64()?);
    Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// A duration such as `0.25s`, as a configuration has it; `None` if it is none or zero.
fn duration(value: &Json) -> Option<String> {
    let (whole, part) = match value.as_str()?.strip_suffix('s')?.split_once('.') {
        Some((whole, part)) => (whole, part),
        None => (value.as_str()?.strip_suffix('s')?, ""),
    };
    let whole: u64 = whole.parse().ok()?;
    let part: u64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    match (whole, part) {
        (0, 0) => None,
        (whole, 0) => Some(format!("{whole}s")),
        (whole, part) => Some(format!("{}ms", whole.checked_mul(1_000)? + part)),
    }
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

/// Whether a configuration is of this type, whatever its version.
fn is_type(config: &Json, name: &str) -> bool {
    text(&config["@type"]).rsplit('.').next() == Some(name)
}

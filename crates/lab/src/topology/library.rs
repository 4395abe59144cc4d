//! Library: the topologies, scenarios and templates that ship with the lab, and files beside them.
//!
//! A file of the caller takes precedence over a shipped one. An included name is searched beside
//! the including file first, so that a custom topology can use the shipped parts or replace one of
//! them. A shipped text includes only shipped texts, regardless of the current folder.
//!
//! Owns: the resolution of names.

use std::fs;
use std::path::{Path, PathBuf};

use super::TopologyError;

/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

macro_rules! texts {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../", $folder, "/", $name)))),*]
    };
}

type Texts = &'static [(&'static str, &'static str)];

const TOPOLOGIES: Texts = texts!("topologies":
    "direct.toml", "fused.toml", "2x.toml", "3x.toml", "envoy-3x.toml", "nginx-auth-request.toml", "idp-single.toml",
    "idp-multi.toml", "row.toml", "peer-direct.toml", "peer-postern.toml", "peer-haproxy.toml",
    "peer-haproxy-current.toml", "peer-nginx-current.toml",
    "peer-haproxy-tcp.toml", "peer-haproxy-jwt.toml", "peer-nginx.toml", "peer-envoy-jwt.toml", "takeover.toml",
    "provider-postern.toml", "provider-keycloak.toml", "gateway-api.toml",
    "model-direct.toml", "model-postern.toml", "model-haproxy.toml",
);
const PARTS: Texts = texts!("topologies/parts":
    "backend.toml", "provider.toml", "postgres.toml", "idp-a.toml", "idp-b.toml", "idp-front.toml", "idp-gateway-a.toml",
    "idp-gateway-b.toml", "connector-off.toml", "connector-postgres.toml", "connector-nats.toml", "connector-artemis.toml",
    "connector-ibm-mq-profile.toml", "connector-activemq.toml", "connector-rabbitmq.toml", "connector-rough.toml", "artemis.toml",
    "signed.toml", "provider-people.toml", "provider-on-sqlite.toml", "provider-on-postgres.toml",
    "provider-on-sqlite-full.toml", "provider-on-postgres-full.toml", "keycloak-on-h2.toml", "keycloak-on-postgres.toml",
    "model.toml",
);
const TEMPLATES: Texts = texts!("topologies/files":
    "provider.toml", "common.toml", "tokens.toml", "rules.toml", "rules-of-checks.toml", "checks.toml", "fused.toml",
    "behind-edge.toml", "split-edge.toml", "split-authentication.toml", "split-authorization.toml", "haproxy.cfg",
    "envoy.yaml", "auth-request.toml", "nginx.conf", "idp-node.toml", "idp-clients.toml", "front.toml",
    "idp-gateway.toml", "faults.toml", "artemis.xml", "artemis-bootstrap.xml", "artemis-login.config", "artemis-management.xml",
    "artemis-users.properties", "artemis-roles.properties", "activemq.java", "rabbitmq.conf", "rabbitmq-plugins",
    "peer-postern.toml", "peer-haproxy.cfg", "peer-haproxy-tcp.cfg", "peer-haproxy-jwt.cfg", "peer-nginx.conf",
    "peer-envoy.yaml", "row-edge.toml", "row-authentication.toml", "row-authorization.toml",
    "provider-alone.toml", "fill-sqlite.sql", "fill-postgres.sql", "keycloak.conf", "keycloak-realm.json", "keycloak-same-cost.sh",
    "gateway-api.toml", "kubeconfig.yaml", "cluster-tokens.csv", "model-postern.toml", "model-haproxy.cfg",
);
const SCENARIOS: Texts = texts!("scenarios":
    "one.toml", "knee.toml", "paths.toml", "cpu-limit.toml", "slow-backend.toml", "gateway.toml", "path-costs.toml",
    "overload.toml", "lifecycle.toml", "identity.toml", "coherence.toml", "following.toml", "flood.toml", "provider.toml",
    "provider-size.toml", "counts.toml", "generators.toml", "gateway-api.toml", "streams.toml",
    "idle.toml",
);

/// A text and its origin.
#[derive(Debug, Clone)]
pub(crate) struct SourceText {
    /// Name of the text in error messages.
    pub(crate) name: String,
    pub(crate) content: String,
    /// Folder that contains it, if it is a file.
    pub(crate) folder: Option<PathBuf>,
}

/// Lookup of shipped texts and files by name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Library;

impl Library {
    /// Names of the shipped topologies.
    pub fn topologies() -> impl Iterator<Item = &'static str> {
        TOPOLOGIES.iter().filter_map(|(name, _)| name.strip_suffix(".toml"))
    }

    /// Names of the shipped scenarios.
    pub fn scenarios() -> impl Iterator<Item = &'static str> {
        SCENARIOS.iter().filter_map(|(name, _)| name.strip_suffix(".toml"))
    }

    pub(crate) fn topology(name: &str) -> Result<SourceText, TopologyError> {
        find("topology", name, TOPOLOGIES, named(name))
    }

    pub(crate) fn scenario(name: &str) -> Result<SourceText, TopologyError> {
        find("scenario", name, SCENARIOS, named(name))
    }

    pub(super) fn part(name: &str, beside: Option<&Path>) -> Result<SourceText, TopologyError> {
        find("part", name, PARTS, beside.map(|folder| folder.join(name)))
    }

    pub(super) fn template(name: &str, beside: Option<&Path>) -> Result<SourceText, TopologyError> {
        find("template", name, TEMPLATES, beside.map(|folder| folder.join(name)))
    }
}

/// Path that the caller means. A bare word is a shipped name, even if the current folder has a file
/// or folder with that name.
fn named(name: &str) -> Option<PathBuf> {
    name.contains(['/', '.']).then(|| PathBuf::from(name))
}

/// Returns the file if it exists, otherwise the shipped text with this name.
fn find(
    kind: &'static str,
    name: &str,
    texts: Texts,
    file: Option<PathBuf>,
) -> Result<SourceText, TopologyError> {
    if let Some(path) = file.filter(|path| path.is_file()) {
        return read(&path);
    }
    let shipped = texts.iter().find(|(known, _)| *known == name || known.strip_suffix(".toml") == Some(name));
    if let Some((known, content)) = shipped {
        let name = format!("{kind} {}", known.trim_end_matches(".toml"));
        return Ok(SourceText { name, content: (*content).to_owned(), folder: None });
    }
    let known: Vec<&str> = texts.iter().map(|(known, _)| known.trim_end_matches(".toml")).collect();
    Err(TopologyError::Unknown { kind, name: name.to_owned(), known: known.join(", ") })
}

fn read(path: &Path) -> Result<SourceText, TopologyError> {
    let failed = |error| TopologyError::File { action: "read", path: path.display().to_string(), error };
    if fs::metadata(path).map_err(failed)?.len() > MAX_FILE_BYTES {
        let message = format!("file is larger than {} MiB", MAX_FILE_BYTES >> 20);
        return Err(failed(std::io::Error::other(message)));
    }
    let content = fs::read_to_string(path).map_err(failed)?;
    let folder = path.parent().map(Path::to_path_buf);
    Ok(SourceText { name: path.display().to_string(), content, folder })
}

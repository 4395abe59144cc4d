//! Migration: translates the settings of another proxy into a configuration of this one.
//!
//! Owns: reading command lines, environments, manifests and files of other programs; the meaning of
//! each of their settings here; the configuration with its comments, and the report. Does not own:
//! whether the configuration is valid (`config`), writing files (the command).
//!
//! Every setting of a program ends in the report as one of three: translated, translated with a
//! difference, or without an equal. A setting that is not known is a fault, as it is for the program
//! itself.
//!
//! Flow: `arguments | manifest → flags → ProgramSettings → a translator → Draft + MigrationReport → Migration`.

pub mod draft;
pub mod envoy;
pub mod files;
pub mod flags;
mod go;
pub mod input_fault;
pub mod istio;
pub mod keycloak;
pub mod kube_rbac_proxy;
pub mod manifest;
pub mod oauth2_proxy;
pub mod oauth_proxy;
pub mod report;
mod server_tls;
pub mod settings;

use crate::report::MigrationReport;

/// The result of a translation.
#[derive(Debug)]
pub struct Migration {
    /// Text of the configuration, TOML.
    pub configuration: String,
    /// Files that the configuration names and that are to be written beside it, not readable by
    /// others.
    pub secrets: Vec<SecretFile>,
    /// What became of each setting.
    pub report: MigrationReport,
}

/// A file with a secret, beside the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFile {
    /// Its name.
    pub name: &'static str,
    /// Its content; `None`: a new random key, 32 bytes in base64.
    pub content: Option<String>,
}

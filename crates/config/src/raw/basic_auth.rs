//! Table of `[basic_auth]`: user names and passwords as credentials.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::Name;

/// User names and passwords (HTTP Basic, RFC 7617), for programs that know nothing else. Routes
/// accept them with `basic_auth`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicAuth {
    /// Name of this source of identities in rules, identity headers and metrics, like that of an
    /// issuer.
    #[serde(default = "BasicAuth::default_name")]
    pub name: Name,
    /// htpasswd file with bcrypt (`htpasswd -B`) or `$argon2id$` hashes. Read again when it changes.
    /// A changed or removed entry ends what is cached for it.
    pub file: PathBuf,
    /// `realm` of the challenge, which browsers show. Default: `server.realm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realm: Option<String>,
    /// Groups of each user, by user name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, Vec<String>>,
}

impl BasicAuth {
    fn default_name() -> Name {
        Name("basic".into())
    }
}

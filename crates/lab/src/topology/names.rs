//! What texts of a topology can refer to: `@NAME@`.
//!
//! Owns: what ports, files, folders and secrets are called there. Does not own: what is put in their place ([`crate::topology::workdir`]), and the form
//! ([`super::template`]).

use super::description::{Kind, Program, Topology};
use super::template::Values;

/// Names that every text can use, beside ports, files, secrets and variables.
const BUILT_IN: [&str; 9] = [
    "run",
    "work",
    "cores",
    "secret_file",
    "certificate",
    "key",
    "certificate_and_key",
    "token_key",
    "token_keys",
];
/// What stands for the number of the time, where a program does its work several times.
pub(super) const NUMBER: &str = "n";

impl Topology {
    /// Names that every text can use, with something that looks like what they stand for.
    pub(super) fn names(&self) -> Values {
        let mut shared: Values = BUILT_IN.map(|name| (name.to_owned(), String::new())).into();
        shared.extend(self.variables.keys().map(|name| (name.clone(), String::new())));
        let secrets = self.secrets.iter().flat_map(|name| secret_names(name));
        shared.extend(secrets.map(|name| (name, String::new())));
        for component in &self.components {
            match &component.kind {
                Kind::Program(program) => shared.extend(
                    program.ports.iter().map(|port| (format!("{}.{port}", component.name), "1".to_owned())),
                ),
                Kind::Remote { .. } => drop(shared.insert(format!("{}.url", component.name), String::new())),
            }
        }
        shared
    }
}

/// Names that texts of a program can use, with something that looks like what they stand for.
pub(super) fn own_names(program: &Program, shared: &Values) -> Values {
    let mut own = shared.clone();
    own.extend(program.files.keys().map(|name| (file_name(name), String::new())));
    own.extend(program.ports.iter().map(|port| (port_name(port), "1".to_owned())));
    own.extend(program.needs.iter().map(|need| (folder_name(need), String::new())));
    if program.times > 0 {
        own.insert(NUMBER.to_owned(), "1".to_owned());
    }
    own
}

/// What a component's own file is called in its texts.
pub(super) fn file_name(name: &str) -> String {
    format!("file.{}", name.to_ascii_lowercase())
}

/// What a component's own port is called in its texts.
pub(super) fn port_name(name: &str) -> String {
    format!("port.{name}")
}

/// What the folder of a program is called in the texts of a component that needs it.
pub(super) fn folder_name(program: &str) -> String {
    format!("folder.{program}")
}

/// What a secret and the file that holds it are called.
pub(super) fn secret_names(name: &str) -> [String; 2] {
    [format!("secret.{name}"), format!("secret_file.{name}")]
}

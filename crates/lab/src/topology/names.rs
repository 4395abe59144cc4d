//! Names: the placeholders `@NAME@` that texts of a topology can use.
//!
//! Owns: the names of ports, files, folders and secrets. Does not own: their values
//! ([`crate::topology::workdir`]), and the syntax ([`super::template`]).

use super::description::{Kind, Program, Topology};
use super::template::Values;

/// Names that every text can use, in addition to ports, files, secrets and variables.
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
/// Name of the execution number of a program that is executed several times.
pub(super) const REPETITION_NAME: &str = "n";

impl Topology {
    /// Names that every text can use, each with a sample value.
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

/// Names that texts of a program can use, each with a sample value.
pub(super) fn program_names(program: &Program, shared: &Values) -> Values {
    let mut own = shared.clone();
    own.extend(program.files.keys().map(|name| (file_name(name), String::new())));
    own.extend(program.ports.iter().map(|port| (port_name(port), "1".to_owned())));
    own.extend(program.required_programs.iter().map(|need| (folder_name(need), String::new())));
    if program.repetitions > 0 {
        own.insert(REPETITION_NAME.to_owned(), "1".to_owned());
    }
    own
}

/// Placeholder name of a file in the texts of its component.
pub(super) fn file_name(name: &str) -> String {
    format!("file.{}", name.to_ascii_lowercase())
}

/// Placeholder name of a port in the texts of its component.
pub(super) fn port_name(name: &str) -> String {
    format!("port.{name}")
}

/// Placeholder name of a program's folder, in the texts of a component that needs the program.
pub(super) fn folder_name(program: &str) -> String {
    format!("folder.{program}")
}

/// Placeholder names of a secret and of the file that contains it.
pub(super) fn secret_names(name: &str) -> [String; 2] {
    [format!("secret.{name}"), format!("secret_file.{name}")]
}

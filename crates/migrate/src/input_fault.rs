//! Faults of what is to be translated.

/// Why settings cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputFault {
    /// The program has no such flag.
    #[error("{program} has no flag {flag}; check its spelling, and that the arguments are of {program}")]
    UnknownFlag {
        /// The program.
        program: &'static str,
        /// The flag as written.
        flag: String,
    },
    /// A flag needs a value.
    #[error("{flag} has no value")]
    NoValue {
        /// The flag as written.
        flag: String,
    },
    /// The program takes flags only.
    #[error("{argument:?} is no flag; the program takes flags only")]
    NotAFlag {
        /// The argument.
        argument: String,
    },
    /// A value has not the form that the flag needs.
    #[error("{origin}: {value:?} is not {expected}")]
    Value {
        /// Where the value stands.
        origin: String,
        /// The value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A file that the settings name was not given.
    #[error(
        "{origin}: the file {path} is not here; give it with --file {path}=LOCAL_PATH, or its ConfigMap with --manifest"
    )]
    MissingFile {
        /// Where the path stands.
        origin: String,
        /// Path in the container.
        path: String,
    },
    /// A file has not the form that it needs.
    #[error("{name}: {why}")]
    File {
        /// Path or origin of the file.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// No container, or several, could be the program.
    #[error("{0}")]
    Container(String),
    /// Settings contradict each other: the program would not start.
    #[error("{0}; the program does not start with these settings")]
    Contradiction(String),
}

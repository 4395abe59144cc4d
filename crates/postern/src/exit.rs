//! How a command ends: well, with a no, or not at all.

/// How a command ended that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Good,
    /// The answer is no. The command has said why.
    No,
}

/// Why a command could not run to its end.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    usage: bool,
}

impl Failure {
    /// From a message in lower case, without a full stop.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: false }
    }

    /// The command line is not understood; else as [`Failure::new`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: true }
    }

    /// Whether it is the command line that is not understood.
    pub fn is_usage(&self) -> bool {
        self.usage
    }
}

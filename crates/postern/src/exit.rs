//! Exit status: success, a negative result, or a failure.

/// Result of a command that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The command succeeded.
    Success,
    /// The result is negative. The command has printed why.
    Negative,
}

/// Why a command could not run to its end.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    usage: bool,
}

impl Failure {
    /// Creates a failure from a message in lower case, without a full stop.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: false }
    }

    /// Creates a failure for an invalid command line. Otherwise like [`Failure::new`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: true }
    }

    /// Whether the command line is invalid.
    pub fn is_usage(&self) -> bool {
        self.usage
    }
}

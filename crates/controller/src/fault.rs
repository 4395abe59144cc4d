//! Why an object, or a part of one, is not used as it is written.
//!
//! Owns: the type.
//! Does not own: the reasons, which the Gateway API defines for each condition.
//! Flow: derived state → [`Fault`] → a condition.

/// A reason of the Gateway API, and a phrase for people that names the input and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The reason of the condition.
    pub reason: &'static str,
    /// The message of the condition.
    pub message: String,
}

impl Fault {
    /// A fault with this reason and phrase.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

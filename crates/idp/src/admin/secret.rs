//! Secrets in requests and responses of administration.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::AdminFault;
use crate::provider::Provider;

/// Alphabet of a generated password: 32 characters that are hard to confuse.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Characters of a generated password: 100 bits.
const PASSWORD_LENGTH: usize = 20;
/// Characters per group, between hyphens.
const GROUP_LENGTH: usize = 5;

/// A secret in clear text. It is erased when dropped, and `Debug` does not print it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, format = "password")]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a text as a secret.
    pub fn new(text: impl Into<Zeroizing<String>>) -> Self {
        Self(text.into())
    }

    /// The secret in clear text.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Generates a password that is not guessable and easy to type.
    pub(super) fn draw_password(provider: &Provider) -> Result<Self, AdminFault> {
        let mut random = Zeroizing::new([0u8; PASSWORD_LENGTH]);
        provider.entropy().fill(&mut *random)?;
        let mut text =
            Zeroizing::new(String::with_capacity(PASSWORD_LENGTH + PASSWORD_LENGTH / GROUP_LENGTH));
        for (i, byte) in random.iter().enumerate() {
            if i > 0 && i % GROUP_LENGTH == 0 {
                text.push('-');
            }
            text.push(char::from(ALPHABET[usize::from(byte % 32)]));
        }
        Ok(Self(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

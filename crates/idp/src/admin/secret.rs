//! Secrets on their way in or out.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::AdminFault;
use crate::provider::Provider;

/// What a generated password is made of: 32 characters that are not mistaken for one another.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Characters of a generated password: 100 bits.
const DRAWN: usize = 20;
/// How many stand together.
const TOGETHER: usize = 5;

/// A secret in the clear: erased when dropped, shown by no `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, format = "password")]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text over.
    pub fn new(text: impl Into<Zeroizing<String>>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A password that nobody guesses and anybody can type.
    pub(super) fn draw_password(provider: &Provider) -> Result<Self, AdminFault> {
        let mut random = Zeroizing::new([0u8; DRAWN]);
        provider.entropy().fill(&mut *random)?;
        let mut text = Zeroizing::new(String::with_capacity(DRAWN + DRAWN / TOGETHER));
        for (i, byte) in random.iter().enumerate() {
            if i > 0 && i % TOGETHER == 0 {
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

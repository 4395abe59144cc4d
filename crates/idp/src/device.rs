//! Device authorization (RFC 8628): user codes, and the user's decision about a device.
//!
//! Owns: the format of user codes, and [`Decision`], which is stored until the device polls. Does
//! not own: the rows (the store), the pages, the grant ([`crate::grants`]).

use serde::{Deserialize, Serialize};

use crate::{Entropy, EntropyFailed, id_token::Authentication};

/// Letters of a user code: no vowels, so that no words appear, and none that is confused with
/// another (RFC 8628 §6.1). There are 20⁸ codes; failed attempts are limited.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const LENGTH: usize = 8;

/// Draws a user code in its displayed form, for example `WDJB-MJHT`.
///
/// # Errors
/// [`EntropyFailed`] when the random source fails.
pub fn draw_user_code(entropy: &dyn Entropy) -> Result<String, EntropyFailed> {
    let mut code = String::with_capacity(LENGTH + 1);
    // Bytes above the last whole multiple of 20 would make some letters more likely.
    let fair = u8::MAX - u8::MAX % 20;
    while code.len() < LENGTH {
        let mut byte = [0];
        entropy.fill(&mut byte)?;
        if byte[0] < fair {
            code.push(char::from(LETTERS[usize::from(byte[0]) % LETTERS.len()]));
        }
    }
    code.insert(LENGTH / 2, '-');
    Ok(code)
}

/// Normalizes a typed code: upper case, separators replaced by one hyphen. `None`: not a code.
pub fn read_user_code(typed: &str) -> Option<String> {
    let letters: String = typed
        .chars()
        .filter(|c| !matches!(c, '-' | ' ' | '\u{2010}'..='\u{2015}'))
        .map(|c| c.to_ascii_uppercase())
        .collect();
    let sound = letters.len() == LENGTH && letters.bytes().all(|b| LETTERS.contains(&b));
    sound.then(|| format!("{}-{}", &letters[..LENGTH / 2], &letters[LENGTH / 2..]))
}

/// A user's decision to allow a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When the user decided, in milliseconds since 1970.
    pub at: u64,
    /// When the user's session was read, in milliseconds of log time. `None`: the decision comes
    /// from a node whose version did not record it.
    #[serde(default)]
    pub read_at: Option<u64>,
    /// Scopes granted to the device's client, space-separated.
    pub scopes: String,
    /// Granted audiences, space-separated.
    pub audiences: String,
    /// How the user authenticated.
    pub authentication: Authentication,
}

impl Decision {
    /// Parses the details of a device code. `None`: they hold no decision.
    pub fn read(details: &str) -> Option<Self> {
        serde_json::from_str(details).ok()
    }

    /// Serializes the decision for the details of a device code.
    pub fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;

    use super::*;

    #[test]
    fn a_code_is_read_however_it_is_typed() {
        for _ in 0..100 {
            let code = draw_user_code(&SystemRandom::new()).unwrap();
            assert_eq!(read_user_code(&code).as_deref(), Some(&*code));
            assert_eq!(read_user_code(&code.to_lowercase().replace('-', " ")).as_deref(), Some(&*code));
        }
        for bad in ["", "WDJB-MJH", "WDJB-MJHTX", "WDJA-MJHT", "WDJB_MJHT", "ẞDJB-MJHT"] {
            assert_eq!(read_user_code(bad), None, "{bad:?}");
        }
    }
}

//! Devices without a browser (RFC 8628): the codes that people type, and what a person decides.
//!
//! Owns: the form of user codes, and [`Decision`], what is kept of one until the device asks. Does not own: the rows (the
//! store), the pages, the grant ([`crate::grants`]).

use serde::{Deserialize, Serialize};

use crate::{Entropy, EntropyFailed, id_token::Authentication};

/// Letters of a code: no vowels, so that no words appear, and none that is taken for another (RFC 8628 §6.1). 20⁸ codes, of
/// which a guesser may try a few.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const LENGTH: usize = 8;

/// Draws a code as it is shown: `WDJB-MJHT`.
pub fn draw_user_code(entropy: &dyn Entropy) -> Result<String, EntropyFailed> {
    let mut code = String::with_capacity(LENGTH + 1);
    // bytes above the last whole multiple would make some letters likelier
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

/// A typed code in its one spelling: letters in upper case, without what stands between them. `None`: it is none.
pub fn read_user_code(typed: &str) -> Option<String> {
    let letters: String = typed
        .chars()
        .filter(|c| !matches!(c, '-' | ' ' | '\u{2010}'..='\u{2015}'))
        .map(|c| c.to_ascii_uppercase())
        .collect();
    let sound = letters.len() == LENGTH && letters.bytes().all(|b| LETTERS.contains(&b));
    sound.then(|| format!("{}-{}", &letters[..LENGTH / 2], &letters[LENGTH / 2..]))
}

/// What a person decided about a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When, in milliseconds.
    pub at: u64,
    /// When the person's session was read, in milliseconds of the time of the log; nothing: by a node that did not note it.
    #[serde(default)]
    pub read_at: Option<u64>,
    /// What the device's client may, space-separated.
    pub scopes: String,
    /// Where, space-separated.
    pub audiences: String,
    /// How the person had proved who they are.
    pub authentication: Authentication,
}

impl Decision {
    /// From the details of a device code.
    pub fn read(details: &str) -> Option<Self> {
        serde_json::from_str(details).ok()
    }

    /// For the details of a device code.
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

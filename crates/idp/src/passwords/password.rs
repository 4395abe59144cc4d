//! A password in the clear, for as long as somebody needs it.
//!
//! Owns: the bound on its length, and that it is erased when the last holder lets go of it.
//! Does not own: the buffers it arrived in (the reader of the form), what makes it good ([`super::rules`]).

use std::{fmt, sync::Arc};

use zeroize::Zeroizing;

/// Longest password in bytes. Argon2's cost hardly grows with the length, but the memory of a full queue does.
pub const MAX_PASSWORD: usize = 1024;

/// More than [`MAX_PASSWORD`] bytes: such a password was never set, so the answer to it is "wrong".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a password has at most {MAX_PASSWORD} bytes")]
pub struct PasswordTooLong;

/// A password in the clear: erased when the last clone is dropped, shown by no `Debug`.
///
/// A clone shares the text, for one login may verify, hash again and remember.
#[derive(Clone)]
pub struct Password(Arc<Zeroizing<String>>);

impl Password {
    /// Takes the text over without a copy; one that is refused is erased too.
    pub fn new(text: String) -> Result<Self, PasswordTooLong> {
        let text = Zeroizing::new(text);
        if text.len() > MAX_PASSWORD { Err(PasswordTooLong) } else { Ok(Self(Arc::new(text))) }
    }

    /// The text itself, for this room alone.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

#[cfg(test)]
pub(super) fn password(text: &str) -> Password {
    Password::new(text.to_owned()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_password_is_taken_and_one_byte_more_is_not() {
        assert_eq!(Password::new("x".repeat(MAX_PASSWORD)).unwrap().expose().len(), MAX_PASSWORD);
        assert_eq!(Password::new("x".repeat(MAX_PASSWORD + 1)).map(|_| ()), Err(PasswordTooLong));
        assert!(Password::new("ä".repeat(MAX_PASSWORD / 2 + 1)).is_err(), "bytes count, not characters");
    }

    #[test]
    fn debug_shows_nothing_not_even_the_length() {
        assert_eq!(format!("{:?} {:?}", password("secret"), password("")), "Password(..) Password(..)");
    }
}

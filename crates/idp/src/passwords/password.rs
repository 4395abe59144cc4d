//! Password: clear text while it is needed, with its normalized form.
//!
//! Owns: the maximum length, the normalized form (RFC 8265 §4.2, `OpaqueString`), and erasure when
//! the last clone is dropped.
//!
//! Does not own: the buffers in which it arrived (the reader of the form), the rules for new
//! passwords ([`super::rules`]).
//!
//! Older and imported hashes were made of the text as typed, byte for byte. So a password is
//! compared in its form and, if that differs, as typed. A text that the profile refuses has no
//! form; such a password can no longer be set.
//!
//! If the form differs, intermediate buffers of the library are freed without erasure.

use std::{fmt, sync::Arc};

use precis_profiles::{OpaqueString, precis_core::profile::PrecisFastInvocation as _};
use zeroize::Zeroizing;

/// Longest password in bytes. Argon2's cost hardly grows with the length, but the memory of a full
/// queue does.
pub const MAX_PASSWORD: usize = 1024;

/// The text has more than [`MAX_PASSWORD`] bytes. Such a password was never set, so a login reports
/// it as wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a password has at most {MAX_PASSWORD} bytes")]
pub struct PasswordTooLong;

/// A password in clear text. It is erased when the last clone is dropped, and `Debug` does not
/// print it.
///
/// Clones share the text, because one login may verify it, hash it again and cache it.
#[derive(Clone)]
pub struct Password(Arc<Texts>);

struct Texts {
    typed: Zeroizing<String>,
    form: Form,
}

enum Form {
    /// The form equals the text as typed.
    AsTyped,
    Other(Zeroizing<String>),
    /// The text has a character that is not allowed in a password.
    None,
}

impl Password {
    /// Takes the text without a copy; erases a text that is refused.
    ///
    /// # Errors
    /// [`PasswordTooLong`] for a text of more than [`MAX_PASSWORD`] bytes.
    pub fn new(text: String) -> Result<Self, PasswordTooLong> {
        let typed = Zeroizing::new(text);
        if typed.len() > MAX_PASSWORD {
            return Err(PasswordTooLong);
        }
        let form = match OpaqueString::enforce(typed.as_str()) {
            Ok(form) if *form == **typed => Form::AsTyped,
            Ok(form) => Form::Other(Zeroizing::new(form.into_owned())),
            Err(_) if typed.is_empty() => Form::AsTyped,
            Err(_) => Form::None,
        };
        Ok(Self(Arc::new(Texts { typed, form })))
    }

    /// Whether both have the same form.
    pub fn same_form_as(&self, other: &Self) -> bool {
        self.form() == other.form()
    }

    /// Whether it has a character that is not allowed in a new password.
    pub(super) fn has_forbidden_character(&self) -> bool {
        matches!(self.0.form, Form::None)
    }

    /// The text that is hashed: the form, or the text as typed if there is no form.
    pub(super) fn form(&self) -> &str {
        match &self.0.form {
            Form::Other(form) => form,
            Form::AsTyped | Form::None => &self.0.typed,
        }
    }

    /// The text as typed.
    pub(super) fn typed(&self) -> &str {
        &self.0.typed
    }

    /// The texts of which a stored hash may be made: the form, then the text as typed if it
    /// differs.
    pub(super) fn candidates(&self) -> impl Iterator<Item = &str> {
        let typed = matches!(self.0.form, Form::Other(_)).then(|| self.typed());
        std::iter::once(self.form()).chain(typed)
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
        assert_eq!(Password::new("x".repeat(MAX_PASSWORD)).unwrap().form().len(), MAX_PASSWORD);
        assert_eq!(Password::new("x".repeat(MAX_PASSWORD + 1)).map(|_| ()), Err(PasswordTooLong));
        assert!(Password::new("ä".repeat(MAX_PASSWORD / 2 + 1)).is_err(), "bytes count, not characters");
    }

    #[test]
    fn debug_shows_nothing_not_even_the_length() {
        assert_eq!(format!("{:?} {:?}", password("secret"), password("")), "Password(..) Password(..)");
    }

    #[test]
    fn a_password_is_one_however_it_is_typed() {
        let (composed, apart) = ("caf\u{e9} au lait", "cafe\u{301} au lait");
        assert_eq!(password(composed).candidates().collect::<Vec<_>>(), [composed]);
        assert_eq!(password(apart).candidates().collect::<Vec<_>>(), [composed, apart]);
        assert_eq!(
            password("a\u{a0}b").candidates().collect::<Vec<_>>(),
            ["a b", "a\u{a0}b"],
            "spaces are one"
        );
        assert!(password(composed).same_form_as(&password(apart)));
        for other in ["Caf\u{e9} au lait", "cafe au lait", "caf\u{e9} au lait ", ""] {
            assert!(
                !password(composed).same_form_as(&password(other)),
                "case and everything else count: {other:?}"
            );
        }
    }

    #[test]
    fn what_the_profile_refuses_is_compared_as_it_was_typed() {
        for text in ["zero\u{200b}width", "new\nline", "nul\0", "\u{feff}mark"] {
            assert!(password(text).has_forbidden_character(), "{text:?}");
            assert_eq!(password(text).candidates().collect::<Vec<_>>(), [text]);
        }
        assert!(!password("  \u{2603} Fenster!").has_forbidden_character());
        assert!(!password("").has_forbidden_character(), "too short is what it is");
    }
}

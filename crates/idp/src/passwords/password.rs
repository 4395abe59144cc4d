//! A password in the clear, for as long as somebody needs it, and the form in which it is one however it was typed.
//!
//! Owns: the bound on its length, its form (RFC 8265 §4.2, `OpaqueString`), and that it is erased when the last holder lets go of it.
//! Does not own: the buffers it arrived in (the reader of the form), what makes it good ([`super::rules`]).
//!
//! Hashes of before were made of what was typed, byte for byte, and so are those that come from elsewhere. So a password is compared in
//! its form, and as it was typed where that differs. What the profile refuses has no form; such a password is not set any more.
//!
//! Where a form differs, what the library needed on the way to it is freed without being erased.

use std::{fmt, sync::Arc};

use precis_profiles::{OpaqueString, precis_core::profile::PrecisFastInvocation as _};
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
pub struct Password(Arc<Texts>);

struct Texts {
    typed: Zeroizing<String>,
    form: Form,
}

enum Form {
    /// That in which it was typed.
    AsTyped,
    Other(Zeroizing<String>),
    /// It has a character that no password may have.
    None,
}

impl Password {
    /// Takes the text over without a copy; one that is refused is erased too.
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

    /// Whether both are one password, however they were typed.
    pub fn is(&self, other: &Self) -> bool {
        self.form() == other.form()
    }

    /// Whether it has a character that a password which is set may not have.
    pub(super) fn has_no_form(&self) -> bool {
        matches!(self.0.form, Form::None)
    }

    /// The text of which a hash is made: its form, if it has one.
    pub(super) fn form(&self) -> &str {
        match &self.0.form {
            Form::Other(form) => form,
            Form::AsTyped | Form::None => &self.0.typed,
        }
    }

    /// As it was typed.
    pub(super) fn typed(&self) -> &str {
        &self.0.typed
    }

    /// The texts that a stored hash may have been made of: the form, then what was typed, if that is another.
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
        assert!(password(composed).is(&password(apart)));
        for other in ["Caf\u{e9} au lait", "cafe au lait", "caf\u{e9} au lait ", ""] {
            assert!(!password(composed).is(&password(other)), "case and everything else count: {other:?}");
        }
    }

    #[test]
    fn what_the_profile_refuses_is_compared_as_it_was_typed() {
        for text in ["zero\u{200b}width", "new\nline", "nul\0", "\u{feff}mark"] {
            assert!(password(text).has_no_form(), "{text:?}");
            assert_eq!(password(text).candidates().collect::<Vec<_>>(), [text]);
        }
        assert!(!password("  \u{2603} Fenster!").has_no_form());
        assert!(!password("").has_no_form(), "too short is what it is");
    }
}

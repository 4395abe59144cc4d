//! Names: which spellings are equivalent (RFC 8265), and which names are allowed.
//!
//! Owns: the stored form of user and group names, the comparison form of names and addresses, the
//! reason of a refusal. Does not own: the rows ([`crate::users`]), rows from before these forms
//! existed ([`crate::name_conflicts`]).
//!
//! A name consists of words separated by single spaces (RFC 8265 §3.1). Each word is stored as a
//! `UsernameCasePreserved` and compared as a `UsernameCaseMapped`: full-width letters become
//! ordinary ones, letters and accents are composed, invisible characters are refused. An address
//! may contain characters that a name may not. It is compared as RFC 8266 compares nicknames, which
//! gives the same result for all characters of names.

use precis_profiles::precis_core::profile::PrecisFastInvocation as _;
use precis_profiles::precis_core::{Error, UnexpectedError};
use precis_profiles::{Nickname, OpaqueString, UsernameCaseMapped, UsernameCasePreserved};

/// Why a name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// An invisible or control character, a symbol, or a character whose equivalent must be used
    /// instead.
    #[error("{} is not allowed (RFC 8264): remove it", displayed(*.0))]
    Character(char),
    /// One word mixes left-to-right and right-to-left letters.
    #[error("one word mixes left-to-right and right-to-left letters (RFC 5893 section 2): use one direction")]
    Direction,
    /// The name has no characters.
    #[error("it is empty")]
    Empty,
}

fn displayed(character: char) -> String {
    let number = u32::from(character);
    // Most refused characters are invisible or ambiguous when printed.
    if character.is_ascii_graphic() {
        format!("{character:?}")
    } else {
        format!("the character U+{number:04X}")
    }
}

impl NameFault {
    fn from_error(error: &Error) -> Self {
        let number = match error {
            Error::BadCodepoint(at)
            | Error::Unexpected(
                UnexpectedError::ContextRuleNotApplicable(at) | UnexpectedError::MissingContextRule(at),
            ) => at.cp,
            Error::Invalid | Error::Unexpected(_) => return Self::Direction,
        };
        char::from_u32(number).map_or(Self::Direction, Self::Character)
    }
}

/// A user's name in its stored form.
///
/// # Errors
/// [`NameFault`] when the name is not allowed.
pub fn user_name(name: &str) -> Result<String, NameFault> {
    enforce_words(name, |word| UsernameCasePreserved::enforce(word).map(Into::into))
}

/// A group's name in its stored form, `OpaqueString`: symbols are allowed and case is significant,
/// as in access rules.
///
/// # Errors
/// [`NameFault`] when the name is not allowed.
pub fn group_name(name: &str) -> Result<String, NameFault> {
    if name.is_empty() {
        return Err(NameFault::Empty);
    }
    OpaqueString::enforce(name).map(Into::into).map_err(|error| NameFault::from_error(&error))
}

/// Checks that an address is allowed. It is stored unchanged, because mail is sent to it.
///
/// # Errors
/// [`NameFault`] when the address is not allowed.
pub fn address(address: &str) -> Result<(), NameFault> {
    if address.is_empty() {
        return Err(NameFault::Empty);
    }
    Nickname::prepare(address).map(|_| ()).map_err(|error| NameFault::from_error(&error))
}

/// The comparison form of a name or address. A text that is not allowed, or no longer allowed, is
/// only converted to lower case.
pub fn comparison_form(text: &str) -> String {
    let lower = lowercase(text);
    let name = enforce_words(&lower, |word| UsernameCaseMapped::enforce(word).map(Into::into));
    name.or_else(|_| nickname_form(&lower)).unwrap_or(lower)
}

/// The text in lower case. Names that differ only in case have always been equivalent, even before
/// the other forms existed.
pub(crate) fn lowercase(name: &str) -> String {
    name.to_lowercase()
}

/// The comparison form of a nickname (RFC 8266 §2.4).
fn nickname_form(lower: &str) -> Result<String, NameFault> {
    let of = |error: Error| NameFault::from_error(&error);
    // The library does not export this form, only its parts. Normalization may produce new capital
    // letters, so the result is enforced again.
    let once: String = Nickname::enforce(lower).map_err(of)?.to_lowercase();
    Ok(Nickname::enforce(once).map_err(of)?.into())
}

fn enforce_words(text: &str, form: impl Fn(&str) -> Result<String, Error>) -> Result<String, NameFault> {
    let words = text.split(' ').filter(|word| !word.is_empty());
    let words: Vec<String> =
        words.map(form).collect::<Result<_, _>>().map_err(|error| NameFault::from_error(&error))?;
    if words.is_empty() { Err(NameFault::Empty) } else { Ok(words.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_has_one_form_however_it_is_spelt() {
        for (spelt, kept, compared) in [
            ("nora", "nora", "nora"),
            ("NoRa", "NoRa", "nora"),
            ("\u{ff2e}\u{ff4f}\u{ff52}\u{ff41}", "Nora", "nora"),
            ("Zoe\u{308}", "Zo\u{eb}", "zo\u{eb}"),
            ("Zo\u{eb}", "Zo\u{eb}", "zo\u{eb}"),
            ("Ada  Lovelace", "Ada Lovelace", "ada lovelace"),
            ("Ada@Example.com", "Ada@Example.com", "ada@example.com"),
            ("Ada\u{ff20}example.com", "Ada@example.com", "ada@example.com"),
            // A capital sigma at the end of a word becomes a final sigma (U+03C2).
            ("\u{39f}\u{394}\u{39f}\u{3a3}", "\u{39f}\u{394}\u{39f}\u{3a3}", "\u{3bf}\u{3b4}\u{3bf}\u{3c2}"),
            ("\u{5e0}\u{5d5}\u{5e8}\u{5d4}", "\u{5e0}\u{5d5}\u{5e8}\u{5d4}", "\u{5e0}\u{5d5}\u{5e8}\u{5d4}"),
        ] {
            assert_eq!(user_name(spelt).as_deref(), Ok(kept), "{spelt:?}");
            assert_eq!(comparison_form(spelt), compared, "{spelt:?}");
            assert_eq!(comparison_form(compared), compared, "{spelt:?}: the form has itself for a form");
        }
    }

    #[test]
    fn invisible_characters_and_mixed_directions_are_refused_by_their_names() {
        for (name, fault) in [
            ("no\u{200b}ra", NameFault::Character('\u{200b}')),
            ("no\u{ad}ra", NameFault::Character('\u{ad}')),
            ("\u{200f}nora", NameFault::Character('\u{200f}')),
            ("\u{202e}nora", NameFault::Character('\u{202e}')),
            ("no\0ra", NameFault::Character('\0')),
            ("no\tra", NameFault::Character('\t')),
            ("no\u{200d}ra", NameFault::Character('\u{200d}')),
            ("\u{2603}", NameFault::Character('\u{2603}')),
            ("\u{5e0}nora", NameFault::Direction),
            ("", NameFault::Empty),
            (" ", NameFault::Empty),
        ] {
            assert_eq!(user_name(name), Err(fault), "{name:?}");
        }
        let refused = NameFault::Character('\u{200b}').to_string();
        assert_eq!(refused, "the character U+200B is not allowed (RFC 8264): remove it");
        assert_eq!(comparison_form("No\u{200b}Ra"), "no\u{200b}ra", "found as it is kept");
    }

    #[test]
    fn groups_keep_case_and_symbols() {
        assert_eq!(group_name("R&D \u{2013} Zu\u{308}rich").as_deref(), Ok("R&D \u{2013} Z\u{fc}rich"));
        assert_eq!(group_name("no\u{200b}ra"), Err(NameFault::Character('\u{200b}')));
        assert_eq!(group_name("a\0b"), Err(NameFault::Character('\0')));
        assert_eq!(group_name(""), Err(NameFault::Empty));
    }

    #[test]
    fn addresses_are_compared_with_names() {
        for (spelt, compared) in [
            ("Nora@Example.com", "nora@example.com"),
            ("nora\u{ff20}example.com", "nora@example.com"),
            // Both directions of writing: allowed in addresses, but not in names.
            ("\u{5e0}\u{5d5}@example.com", "\u{5e0}\u{5d5}@example.com"),
            ("\u{2603}@Example.com", "\u{2603}@example.com"),
        ] {
            assert_eq!((address(spelt), comparison_form(spelt)), (Ok(()), compared.to_owned()), "{spelt:?}");
        }
        assert_eq!(address("no\u{200b}ra@example.com"), Err(NameFault::Character('\u{200b}')));
        assert_eq!(address("a\0@b"), Err(NameFault::Character('\0')));
    }

    #[test]
    fn what_may_be_a_name_is_compared_alike_as_a_name_and_as_an_address() {
        let letters = [
            'a', 'Z', '\u{ff21}', 'e', '\u{301}', '\u{130}', '\u{df}', '\u{1e9e}', '\u{4e00}', '.', '@', ' ',
        ];
        let mut number = 1_u32;
        for _ in 0..2000 {
            let mut name = String::new();
            for _ in 0..5 {
                number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                name.push(letters[(number >> 16) as usize % letters.len()]);
            }
            if let Ok(kept) = user_name(&name) {
                assert_eq!(nickname_form(&lowercase(&name)), Ok(comparison_form(&name)), "{name:?}");
                assert_eq!(
                    (comparison_form(&kept), comparison_form(&comparison_form(&name))),
                    (comparison_form(&name), comparison_form(&name)),
                    "{name:?}"
                );
            }
        }
    }
}

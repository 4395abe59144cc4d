//! Rules for new passwords (NIST SP 800-63B §3.1.1.2: length and a blocklist, no composition
//! rules).
//!
//! Owns: the minimum length; the refusal of common passwords, of personal data and of passwords
//! that are guessed quickly; texts that help to choose a better one.
//!
//! Does not own: the page that shows the text, the maximum length (enforced by
//! [`super::password`]), existing passwords, which are not checked at login.
//!
//! Lists and estimate are those of zxcvbn: common passwords, names, words, dates, keyboard
//! patterns, substitutions. It takes 20 µs, or up to 160 ms for an adversarial text. So it runs on
//! the password threads ([`Pool::judge`](super::Pool::judge)) and checks only the first
//! [`MAX_ESTIMATED`] characters: a password that is weak up to there is refused. It reads the
//! current year (for dates) and leaves copies of the password in freed memory. That is acceptable
//! because it runs only when a password is set.

use std::fmt;

use zxcvbn::{Score, feedback::Warning, zxcvbn};

use super::password::Password;

/// Smallest configurable minimum length in characters.
pub const MIN_LENGTH: usize = 8;
/// Largest configurable minimum length in characters, so that users can still meet it.
pub const MAX_MIN_LENGTH: usize = 64;
/// Characters that the estimate checks: its cost grows faster than the length.
pub const MAX_ESTIMATED: usize = 48;
/// A shorter name is refused only if it is the whole password: it is part of too many words.
const MIN_NAME: usize = 4;

/// Number of guesses that a password must withstand, as powers of ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strength {
    /// A million guesses: more than the lockout allows in years. The default.
    #[default]
    Million,
    /// A hundred million guesses.
    HundredMillion,
    /// Ten thousand million guesses: withstands a search with a stolen hash for a while.
    TenBillion,
}

impl Strength {
    fn score(self) -> Score {
        match self {
            Self::Million => Score::Two,
            Self::HundredMillion => Score::Three,
            Self::TenBillion => Score::Four,
        }
    }
}

/// The configured minimum length is out of bounds; holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("minimum password length {0} out of bounds: use {MIN_LENGTH} to {MAX_MIN_LENGTH}")]
pub struct LengthFault(pub usize);

/// Reason why a password may not be set. Its `Display` is for the user who chose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It has too few characters.
    TooShort {
        /// Fewest characters.
        least: usize,
    },
    /// It has control or invisible characters, or characters that some keyboards cannot type.
    Characters,
    /// It contains a name of the user or of this service.
    Personal,
    /// It is common or similar to a common one.
    Common,
    /// It is a keyboard pattern, a repetition, a sequence or a date.
    Pattern,
    /// It is a single name or word.
    Word,
    /// It is guessed quickly for another reason.
    Guessable,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::TooShort { least } => {
                return write!(
                    f,
                    "Please use at least {least} characters. A few words in a row are easy to remember."
                );
            }
            Self::Characters => {
                "The password has a character that is invisible or hard to type. Please remove it."
            }
            Self::Personal => {
                "Please leave out your user name, your e-mail address and the name of this service: attackers try them first."
            }
            Self::Common => {
                "This password or a similar one is common, so attackers try it first. Please choose another one."
            }
            Self::Pattern => {
                "Rows of keys, repetitions, sequences and dates are easy to guess. Please use a few unrelated words."
            }
            Self::Word => "A single name or word is easy to guess. Please add two or three unrelated words.",
            Self::Guessable => "This password is easy to guess. Please add another word or two.",
        };
        f.write_str(text)
    }
}

/// Data about the user and the service: passwords made of it are guessed first.
#[derive(Debug, Clone, Copy, Default)]
pub struct UserData<'a> {
    /// The user name.
    pub user_name: &'a str,
    /// The email address.
    pub address: Option<&'a str>,
    /// Other related words: given name, family name, name of the service.
    pub words: &'a [&'a str],
}

impl<'a> UserData<'a> {
    /// Names that must not be part of a password: each whole name, and the address without its
    /// domain.
    fn names(self) -> impl Iterator<Item = &'a str> {
        let local = self.address.and_then(|a| a.split('@').next());
        std::iter::once(self.user_name)
            .chain(self.address)
            .chain(local)
            .chain(self.words.iter().copied())
            .filter(|name| !name.is_empty())
    }
}

/// The checked rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    least: usize,
    strength: Strength,
}

impl Rules {
    /// Rules for passwords of at least `least` characters (8 to 64) that withstand `strength`.
    ///
    /// # Errors
    /// [`LengthFault`] when the length is out of bounds.
    pub fn new(least: usize, strength: Strength) -> Result<Self, LengthFault> {
        if (MIN_LENGTH..=MAX_MIN_LENGTH).contains(&least) {
            Ok(Self { least, strength })
        } else {
            Err(LengthFault(least))
        }
    }

    /// Checks whether `person` may set `password`. It is slow: do not call it on a runtime thread.
    ///
    /// # Errors
    /// [`Refusal`] with the reason.
    pub fn check(&self, password: &Password, person: UserData<'_>) -> Result<(), Refusal> {
        if password.has_forbidden_character() {
            return Err(Refusal::Characters);
        }
        let text = password.form();
        if text.chars().count() < self.least {
            return Err(Refusal::TooShort { least: self.least });
        }
        let folded = zeroize::Zeroizing::new(text.to_lowercase());
        if person.names().any(|name| part_of(&folded, &name.to_lowercase())) {
            return Err(Refusal::Personal);
        }
        // Includes parts of names: ada.lovelace@x.example yields ada and lovelace.
        let inputs: Vec<&str> = person
            .names()
            .chain(person.names().flat_map(|name| name.split(|c: char| !c.is_alphanumeric())))
            .filter(|name| name.len() > 1)
            .collect();
        let end = text.char_indices().nth(MAX_ESTIMATED).map_or(text.len(), |(end, _)| end);
        let estimate = zxcvbn(&text[..end], &inputs);
        if estimate.score() >= self.strength.score() {
            return Ok(());
        }
        let warning = estimate.feedback().and_then(zxcvbn::feedback::Feedback::warning);
        Err(warning.map_or(Refusal::Guessable, reason))
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self { least: MIN_LENGTH, strength: Strength::default() }
    }
}

/// Whether the name is part of the password, or equal if it is short; both in lower case.
fn part_of(password: &str, name: &str) -> bool {
    if name.chars().count() < MIN_NAME { password == name } else { password.contains(name) }
}

fn reason(warning: Warning) -> Refusal {
    match warning {
        Warning::ThisIsATop10Password
        | Warning::ThisIsATop100Password
        | Warning::ThisIsACommonPassword
        | Warning::ThisIsSimilarToACommonlyUsedPassword => Refusal::Common,
        Warning::StraightRowsOfKeysAreEasyToGuess
        | Warning::ShortKeyboardPatternsAreEasyToGuess
        | Warning::RepeatsLikeAaaAreEasyToGuess
        | Warning::RepeatsLikeAbcAbcAreOnlySlightlyHarderToGuess
        | Warning::SequencesLikeAbcAreEasyToGuess
        | Warning::RecentYearsAreEasyToGuess
        | Warning::DatesAreOftenEasyToGuess => Refusal::Pattern,
        Warning::AWordByItselfIsEasyToGuess
        | Warning::NamesAndSurnamesByThemselvesAreEasyToGuess
        | Warning::CommonNamesAndSurnamesAreEasyToGuess => Refusal::Word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passwords::password::{MAX_PASSWORD, password};

    const ADA: UserData<'_> = UserData {
        user_name: "countess",
        address: Some("ada.lovelace@x.example"),
        words: &["Postern", "Byron", "Ada"],
    };

    fn judged(text: &str) -> Result<(), Refusal> {
        Rules::default().check(&password(text), ADA)
    }

    #[test]
    fn good_passwords_may_be_set_whatever_they_are_composed_of() {
        for text in [
            "correct horse battery staple",
            "vq7Rk2mZ",
            "wolken kratzen am fenster",
            "тихая река под мостом",
            "月が綺麗ですね今夜は",
            "  spaces  are  fine  too ",
            "zebra-mountain-quartz",
        ] {
            assert_eq!(judged(text), Ok(()), "{text}");
        }
        assert_eq!(judged(&"lamp hedge oyster ".repeat(50)[..800]), Ok(()));
    }

    #[test]
    fn length_is_counted_in_characters() {
        let short = Err(Refusal::TooShort { least: 8 });
        for text in ["", "vq7Rk2m", "äöüßéèê", "月が綺麗です"] {
            assert_eq!(judged(text), short, "{text}");
        }
        assert_eq!(judged("vq7Rk2mZ"), Ok(()));
        let rules = Rules::new(15, Strength::Million).unwrap();
        assert_eq!(rules.check(&password("vq7Rk2mZ8pL3xW"), ADA), Err(Refusal::TooShort { least: 15 }));
        assert_eq!(rules.check(&password("vq7Rk2mZ8pL3xWt"), ADA), Ok(()));
    }

    #[test]
    fn what_no_password_may_have_is_refused_and_what_is_typed_otherwise_is_not() {
        for text in ["vq7Rk2mZ\u{200b}", "vq7Rk2mZ\0", "vq7Rk2mZ\n", "\u{200f}vq7Rk2mZ"] {
            assert_eq!(judged(text), Err(Refusal::Characters), "{text:?}");
        }
        assert_eq!(judged("\u{fc}\u{3b1} vq7Rk2mZ \u{2603}"), Ok(()));
        assert_eq!(
            judged("u\u{308}u\u{308}u\u{308}u\u{308}"),
            Err(Refusal::TooShort { least: 8 }),
            "four letters"
        );
    }

    #[test]
    fn what_others_choose_too_is_refused() {
        for text in ["password", "Password1", "iloveyou", "p@ssw0rd", "drowssap", "trustno1", "PASSWORD"] {
            assert_eq!(judged(text), Err(Refusal::Common), "{text}");
        }
    }

    #[test]
    fn patterns_are_refused() {
        for text in ["zxcvbnm,./", "aaaaaaaaaaaa", "abcdefghijk", "17.03.1984", "xyxyxyxyxyxy"] {
            assert_eq!(judged(text), Err(Refusal::Pattern), "{text}");
        }
        assert_eq!(judged(&"a".repeat(MAX_PASSWORD)), Err(Refusal::Pattern));
    }

    #[test]
    fn a_single_word_is_refused() {
        for text in ["christopher", "archaeological"] {
            assert_eq!(judged(text), Err(Refusal::Word), "{text}");
        }
    }

    #[test]
    fn what_is_known_about_the_person_is_refused() {
        for text in [
            "countess",
            "my CountesS is nice",
            "ada.lovelace@x.example",
            "xyzAda.Lovelace!42",
            "the postern gate is green",
            "Byron Byron Byron Byron",
        ] {
            assert_eq!(judged(text), Err(Refusal::Personal), "{text}");
        }
        // Short names are part of many words.
        assert_eq!(judged("canada geese over lakes"), Ok(()));
        // Parts of names and variants of them make a password weak, but are not forbidden.
        assert_ne!(judged("lovelace"), Ok(()));
        assert_ne!(judged("c0unte55"), Ok(()));
        assert_ne!(judged("lovelace1"), Ok(()));
        assert_eq!(judged("lovelace vq7Rk2mZ"), Ok(()));
    }

    #[test]
    fn a_person_nothing_is_known_of_is_judged_too() {
        let rules = Rules::default();
        assert_eq!(rules.check(&password("vq7Rk2mZ"), UserData::default()), Ok(()));
        let empty = UserData { user_name: "", address: Some(""), words: &[""] };
        assert_eq!(rules.check(&password("vq7Rk2mZ"), empty), Ok(()));
        let no_domain = UserData { address: Some("lovelace"), ..empty };
        assert_eq!(rules.check(&password("lovelace vq7Rk2mZ"), no_domain), Err(Refusal::Personal));
    }

    #[test]
    fn more_strength_refuses_more() {
        let text = "vq7Rk2mZ8";
        for (strength, good) in
            [(Strength::Million, true), (Strength::HundredMillion, true), (Strength::TenBillion, false)]
        {
            let rules = Rules::new(8, strength).unwrap();
            assert_eq!(rules.check(&password(text), ADA).is_ok(), good, "{strength:?}");
        }
    }

    #[test]
    fn a_weak_beginning_is_refused_whatever_follows() {
        let weak = "ä".repeat(MAX_ESTIMATED);
        assert_eq!(judged(&format!("{weak} vq7Rk2mZ8pL3xWt")), Err(Refusal::Pattern));
        assert_eq!(judged(&format!("{} vq7Rk2mZ8pL3xWt", &weak[..MAX_ESTIMATED])), Ok(()));
    }

    #[test]
    fn the_least_length_has_bounds() {
        assert_eq!(Rules::new(7, Strength::Million), Err(LengthFault(7)));
        assert_eq!(Rules::new(65, Strength::Million), Err(LengthFault(65)));
        assert!(Rules::new(64, Strength::Million).is_ok());
        assert_eq!(LengthFault(7).to_string(), "minimum password length 7 out of bounds: use 8 to 64");
        assert_eq!(Rules::new(8, Strength::Million), Ok(Rules::default()));
    }

    #[test]
    fn each_refusal_helps_and_repeats_nothing_of_the_password() {
        let all = [
            Refusal::TooShort { least: 12 },
            Refusal::Characters,
            Refusal::Personal,
            Refusal::Common,
            Refusal::Pattern,
            Refusal::Word,
            Refusal::Guessable,
        ];
        for refusal in all {
            assert!(refusal.to_string().contains("Please"), "{refusal}");
        }
        assert!(all[0].to_string().contains("at least 12 characters"));
    }
}

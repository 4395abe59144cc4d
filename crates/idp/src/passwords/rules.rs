//! Which passwords may be set (NIST SP 800-63B §3.1.1.2: length and a blocklist, no composition rules).
//!
//! Owns: the least length, the refusal of what others choose too, of what is said about the person, and of what
//! is guessed soon; the text that helps to choose a better one.
//! Does not own: the form it is shown in, the greatest length ([`super::password`] never lets more in), the
//! passwords already set, which are not judged at login.
//!
//! Lists and estimate are zxcvbn's: common passwords, names, words, dates, keyboard runs, substitutions. It takes
//! from 20 µs to, for a text made to be tedious, 160 ms, so it runs on the password threads
//! ([`Pool::judge`](super::Pool::judge)) and sees the first [`JUDGED`] characters only: a password that is weak up to
//! there is refused. It reads the year (for dates) and leaves copies of the password in freed memory, which is
//! borne because a password is judged once, when it is set.

use std::fmt;

use zxcvbn::{Score, feedback::Warning, zxcvbn};

use super::password::Password;

/// Least configurable length in characters.
pub const MIN_LENGTH: usize = 8;
/// Greatest configurable least length in characters: people must be able to have one.
pub const MAX_MIN_LENGTH: usize = 64;
/// Characters that the estimate sees: its cost grows faster than the length.
pub const JUDGED: usize = 48;
/// Names shorter than this are refused as the whole password only: they are part of too many words.
const MIN_NAME: usize = 4;

/// How many guesses a password must withstand, as powers of ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strength {
    /// A million guesses: more than the lockout permits in years. The default.
    #[default]
    Million,
    /// A hundred million guesses.
    HundredMillion,
    /// Ten thousand million guesses: withstands a search by somebody who has stolen the hash, for a while.
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

/// The configured least length is out of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("passwords of at least {0} characters: take {MIN_LENGTH} to {MAX_MIN_LENGTH}")]
pub struct LengthFault(pub usize);

/// Why a password may not be set. Its `Display` is meant for the person who chose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Too few characters.
    TooShort {
        /// Fewest characters.
        least: usize,
    },
    /// Invisible or control characters, or such as are not known everywhere: another keyboard may not have them.
    Characters,
    /// A name of the person or of this service is in it.
    Personal,
    /// Others have it too.
    Common,
    /// A row of keys, a repetition, a sequence, a date.
    Pattern,
    /// One name or word.
    Word,
    /// None of the above, and still soon guessed.
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
                "There is a character in it that cannot be typed everywhere or cannot be seen. Please leave it out."
            }
            Self::Personal => {
                "Please leave out your user name, your e-mail address and the name of this service: they are tried first."
            }
            Self::Common => {
                "Many people use this password or one much like it, so it is tried first. Please choose another one."
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

/// What is known about the person and the place: passwords made of it are guessed first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Person<'a> {
    /// The user name.
    pub user_name: &'a str,
    /// The e-mail address.
    pub address: Option<&'a str>,
    /// Other words that suggest themselves: given name, family name, the service's name.
    pub words: &'a [&'a str],
}

impl<'a> Person<'a> {
    /// Names that must not be part of a password: each of them whole, and the address without its domain.
    fn names(self) -> impl Iterator<Item = &'a str> {
        let local = self.address.and_then(|a| a.split('@').next());
        std::iter::once(self.user_name)
            .chain(self.address)
            .chain(local)
            .chain(self.words.iter().copied())
            .filter(|name| !name.is_empty())
    }
}

/// The rules, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    least: usize,
    strength: Strength,
}

impl Rules {
    /// Passwords of at least `least` characters (8 to 64) that withstand `strength`.
    pub fn new(least: usize, strength: Strength) -> Result<Self, LengthFault> {
        if (MIN_LENGTH..=MAX_MIN_LENGTH).contains(&least) {
            Ok(Self { least, strength })
        } else {
            Err(LengthFault(least))
        }
    }

    /// Whether `person` may set `password`. Not to be called on a thread that others wait for: see the module.
    pub fn check(&self, password: &Password, person: Person<'_>) -> Result<(), Refusal> {
        if password.has_no_form() {
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
        // parts of names too: ada.lovelace@x.example is ada and lovelace
        let inputs: Vec<&str> = person
            .names()
            .chain(person.names().flat_map(|name| name.split(|c: char| !c.is_alphanumeric())))
            .filter(|name| name.len() > 1)
            .collect();
        let end = text.char_indices().nth(JUDGED).map_or(text.len(), |(end, _)| end);
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

/// Both in lower case.
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

    const ADA: Person<'_> = Person {
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
        // short names are part of many words
        assert_eq!(judged("canada geese over lakes"), Ok(()));
        // parts of names and spellings of them make a password weak, not impossible
        assert_ne!(judged("lovelace"), Ok(()));
        assert_ne!(judged("c0unte55"), Ok(()));
        assert_ne!(judged("lovelace1"), Ok(()));
        assert_eq!(judged("lovelace vq7Rk2mZ"), Ok(()));
    }

    #[test]
    fn a_person_nothing_is_known_of_is_judged_too() {
        let rules = Rules::default();
        assert_eq!(rules.check(&password("vq7Rk2mZ"), Person::default()), Ok(()));
        let empty = Person { user_name: "", address: Some(""), words: &[""] };
        assert_eq!(rules.check(&password("vq7Rk2mZ"), empty), Ok(()));
        let no_domain = Person { address: Some("lovelace"), ..empty };
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
        let weak = "ä".repeat(JUDGED);
        assert_eq!(judged(&format!("{weak} vq7Rk2mZ8pL3xWt")), Err(Refusal::Pattern));
        assert_eq!(judged(&format!("{} vq7Rk2mZ8pL3xWt", &weak[..JUDGED])), Ok(()));
    }

    #[test]
    fn the_least_length_has_bounds() {
        assert_eq!(Rules::new(7, Strength::Million), Err(LengthFault(7)));
        assert_eq!(Rules::new(65, Strength::Million), Err(LengthFault(65)));
        assert!(Rules::new(64, Strength::Million).is_ok());
        assert_eq!(LengthFault(7).to_string(), "passwords of at least 7 characters: take 8 to 64");
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

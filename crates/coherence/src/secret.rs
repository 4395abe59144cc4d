//! Shared secret: what an authority's nodes share with each other and with its consumers.
//!
//! Owns: the text that holds it, and the keys that are derived from it: for tags, for messages, and
//! for requests over HTTP. Does not own: where it comes from.
//!
//! The text is a line for each generation: both halves in base64, a dot, its number, a dot, and a
//! check value in hexadecimal. With another half for tags, a consumer would be heard and would
//! follow, and would find none of its tokens revoked: so a line that was damaged must not be read.
//! Lines without a check value, as a version before wrote them, are read too.
//!
//! A holder of the secret can follow an authority. It can pretend that something was revoked or, to
//! consumers that receive nothing else, that nothing was. It can neither sign a token nor read one.

use std::fmt;

use aws_lc_rs::{constant_time, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use crate::tags::TagKey;
use crate::wire::Keys;

/// Length of each half, in bytes.
const HALF_BYTES: usize = 32;

/// Length of the check value of a line: one damaged line in four thousand million is read.
const CHECK_DIGITS: usize = 8;

/// Most generations that are accepted at the same time.
pub const MAX_GENERATIONS: usize = 4;

/// Why a text is not a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The text has another form.
    #[error("not a revocation secret: expected lines of {} bytes in base64, a number and a check value, separated by dots, as `postern admin revocation secret` prints", 2 * HALF_BYTES)]
    Malformed,
    /// A line is not as it was printed.
    #[error("a character of a line was changed or lost: copy what `postern admin revocation secret` prints")]
    Damaged,
    /// The bytes are not random.
    #[error("not a random secret: its bytes repeat or count up")]
    NotRandom,
    /// The lines belong to different providers.
    #[error("its lines are secrets of different providers: use one file for each")]
    Mixed,
    /// A generation occurs twice, or there are too many of them.
    #[error("it has a generation number twice, or more than {MAX_GENERATIONS} generations")]
    Generations,
}

/// The secret, in one generation or, during a rotation, in several. The first generation signs, and
/// all are accepted. `Debug` prints nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecret {
    /// Half that tags are made with, for as long as the log exists.
    tags: Zeroizing<[u8; HALF_BYTES]>,
    /// Numbered halves that the other keys are derived from; never none.
    roots: Vec<(u8, Zeroizing<[u8; HALF_BYTES]>)>,
}

impl SharedSecret {
    /// From its halves: the one for tags, and numbered roots.
    ///
    /// # Errors
    /// [`SecretError::Generations`] when a number occurs twice, there are too many roots, or there
    /// is none.
    pub fn new(
        tags: Zeroizing<[u8; HALF_BYTES]>,
        roots: Vec<(u8, Zeroizing<[u8; HALF_BYTES]>)>,
    ) -> Result<Self, SecretError> {
        let twice = |at: usize| roots[..at].iter().any(|(number, _)| *number == roots[at].0);
        if !(1..=MAX_GENERATIONS).contains(&roots.len()) || (0..roots.len()).any(twice) {
            return Err(SecretError::Generations);
        }
        Ok(Self { tags, roots })
    }

    /// Reads a text with a line for each generation.
    ///
    /// # Errors
    /// [`SecretError`] says why the text is not a secret.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let (mut tags, mut roots) = (None, Vec::new());
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (secret, rest) = line.split_once('.').ok_or(SecretError::Malformed)?;
            let (number, shown) =
                rest.split_once('.').map_or((rest, None), |(number, shown)| (number, Some(shown)));
            let number = number.parse().map_err(|_| SecretError::Malformed)?;
            let bytes = Zeroizing::new(STANDARD.decode(secret).map_err(|_| SecretError::Malformed)?);
            let (own, root) = bytes.split_first_chunk::<HALF_BYTES>().ok_or(SecretError::Malformed)?;
            let root: [u8; HALF_BYTES] = root.try_into().map_err(|_| SecretError::Malformed)?;
            if shown.is_some_and(|shown| shown != check(own, &root, number)) {
                return Err(SecretError::Damaged);
            }
            if looks_non_random(own) || looks_non_random(&root) {
                return Err(SecretError::NotRandom);
            }
            if *tags.get_or_insert_with(|| Zeroizing::new(*own)) != Zeroizing::new(*own) {
                return Err(SecretError::Mixed);
            }
            roots.push((number, Zeroizing::new(root)));
        }
        Self::new(tags.ok_or(SecretError::Malformed)?, roots)
    }

    /// The secret as text, a line for each generation.
    pub fn to_text(&self) -> Zeroizing<String> {
        let line = |(number, root): &(u8, Zeroizing<[u8; HALF_BYTES]>)| {
            let halves = Zeroizing::new([&self.tags[..], &root[..]].concat());
            let check = check(&self.tags, root, *number);
            Zeroizing::new(format!("{}.{number}.{check}", STANDARD.encode(&halves)))
        };
        let lines: Vec<_> = self.roots.iter().map(line).collect();
        Zeroizing::new(lines.iter().map(|line| line.as_str()).collect::<Vec<_>>().join("\n"))
    }

    /// A secret derived from this one, the same for all holders under the same name. It reveals
    /// nothing of this one.
    #[must_use]
    pub fn derive_for(&self, name: &str) -> Self {
        let roots = self.roots.iter().map(|(number, root)| (*number, derive(root, name.as_bytes())));
        Self { tags: derive(&self.tags, name.as_bytes()), roots: roots.collect() }
    }

    /// The key that tags are made with.
    pub fn tag_key(&self) -> TagKey {
        TagKey::new(&self.tags)
    }

    /// The keys that messages are signed with.
    pub fn message_keys(&self) -> Keys {
        let keys: Vec<_> =
            self.roots.iter().map(|(number, root)| (*number, *derive(root, b"messages"))).collect();
        Keys::new(&keys).expect("some, each number once")
    }

    /// Bearer token for requests over HTTP to nodes of the authority.
    pub fn bearer(&self) -> Zeroizing<String> {
        bearer(&self.roots[0].1)
    }

    /// Whether this is the bearer token of any generation.
    pub fn is_bearer(&self, shown: &[u8]) -> bool {
        let is = |(_, root): &(u8, Zeroizing<[u8; HALF_BYTES]>)| {
            constant_time::verify_slices_are_equal(shown, bearer(root).as_bytes()).is_ok()
        };
        self.roots.iter().any(is)
    }
}

/// Fewer distinct bytes than any random secret has: 32 random bytes have about 30 distinct ones,
/// and fewer than 8 once in 10^34 times.
const MIN_DISTINCT_BYTES: usize = 8;

/// Whether bytes that should be random repeat or count up, as those of a placeholder do. Its
/// duration reveals nothing of a secret: only bytes that are not random take another time.
pub fn looks_non_random(secret: &[u8]) -> bool {
    let mut seen = [false; 256];
    for byte in secret {
        seen[usize::from(*byte)] = true;
    }
    let different = seen.iter().filter(|seen| **seen).count();
    let mut steps = secret.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    let first = steps.next();
    different < MIN_DISTINCT_BYTES || steps.all(|step| Some(step) == first)
}

/// Check value of a line: it differs for another number, and for any other byte of either half.
fn check(tags: &[u8; HALF_BYTES], root: &[u8; HALF_BYTES], number: u8) -> String {
    let purpose = Zeroizing::new([&b"check"[..], &[number], tags].concat());
    let derived = derive(root, &purpose);
    let first = u32::from_be_bytes([derived[0], derived[1], derived[2], derived[3]]);
    format!("{first:0CHECK_DIGITS$x}")
}

fn bearer(root: &[u8; HALF_BYTES]) -> Zeroizing<String> {
    Zeroizing::new(URL_SAFE_NO_PAD.encode(*derive(root, b"facts")))
}

fn derive(root: &[u8; HALF_BYTES], purpose: &[u8]) -> Zeroizing<[u8; HALF_BYTES]> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, root);
    let mut derived = Zeroizing::new([0; HALF_BYTES]);
    derived.copy_from_slice(hmac::sign(&key, purpose).as_ref());
    derived
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::TagSubject;

    /// Bytes as a random draw could yield them.
    fn drawn(bytes: usize) -> Vec<u8> {
        let drawn = (0..bytes).map(|at| u8::try_from((at * at * 7 + at * 3 + 11) % 256));
        drawn.collect::<Result<_, _>>().expect("a byte")
    }

    fn secret(tags: u8, numbers: &[u8]) -> SharedSecret {
        let half = |plus: u8| {
            let bytes: Vec<u8> = drawn(HALF_BYTES).iter().map(|byte| byte.wrapping_add(plus)).collect();
            Zeroizing::new(<[u8; HALF_BYTES]>::try_from(bytes).expect("a half"))
        };
        let roots = numbers.iter().map(|number| (*number, half(100 + number))).collect();
        SharedSecret::new(half(tags), roots).expect("a few, each once")
    }

    #[test]
    fn bytes_that_nobody_drew_are_told_from_random_ones() {
        let counted: Vec<u8> = (0..32).map(|at| 250_u8.wrapping_add(at * 3)).collect();
        let few: Vec<u8> = (0..32).map(|at| at % 7).collect();
        for regular in [&[0; 32][..], &[7; 32], &counted, &few, b"changeme"] {
            assert!(looks_non_random(regular), "{regular:?}");
        }
        assert!(!looks_non_random(&drawn(32)));
        let zeros = format!("{}.1", STANDARD.encode([0; 2 * HALF_BYTES]));
        assert_eq!(SharedSecret::parse(&zeros), Err(SecretError::NotRandom));
        let half = format!("{}.1", STANDARD.encode([&drawn(HALF_BYTES)[..], &[5; HALF_BYTES]].concat()));
        assert_eq!(SharedSecret::parse(&half), Err(SecretError::NotRandom));
    }

    #[test]
    fn it_is_read_as_it_was_written_and_prints_nothing() {
        let secret = secret(1, &[2, 7]);
        let again = SharedSecret::parse(&format!("{}\n\n", *secret.to_text())).expect("read");
        assert_eq!(secret, again);
        assert_eq!(secret.tag_key().tag(TagSubject::User("x")), again.tag_key().tag(TagSubject::User("x")));
        assert!(secret.is_bearer(again.bearer().as_bytes()) && !secret.is_bearer(b""));
        assert_eq!(format!("{secret:?}"), "SharedSecret(..)");
        assert_eq!(secret.derive_for("a"), again.derive_for("a"));
        assert!(secret.derive_for("a") != secret.derive_for("b") && secret.derive_for("a") != secret);
        let line = |bytes: usize| format!("{}.1", STANDARD.encode(drawn(bytes)));
        for text in [
            "",
            "x",
            "AAAA.1",
            &line(63),
            &line(65),
            &line(64).replace(".1", ".256"),
            &line(64).replace(".1", ""),
        ] {
            assert_eq!(SharedSecret::parse(text), Err(SecretError::Malformed), "{text:?}");
        }
        assert_eq!(SharedSecret::parse(&format!("{0}\n{0}", line(64))), Err(SecretError::Generations));
    }

    #[test]
    fn a_line_in_which_one_character_changed_is_refused() {
        let text = secret(1, &[7]).to_text();
        assert_eq!(text.rsplit('.').next().map(str::len), Some(CHECK_DIGITS));
        for (at, was) in text.char_indices() {
            let other = if was == 'A' { "B" } else { "A" };
            let damaged = [&text[..at], other, &text[at + 1..]].concat();
            let read = SharedSecret::parse(&damaged);
            assert!(matches!(read, Err(SecretError::Damaged | SecretError::Malformed)), "{at}: {read:?}");
        }
        assert_eq!(SharedSecret::parse(&text.replace(".7.", ".8.")), Err(SecretError::Damaged));
        // As a version before wrote it.
        let former = text.rsplit_once('.').expect("a check value").0;
        assert_eq!(SharedSecret::parse(former), Ok(secret(1, &[7])));
    }

    #[test]
    fn it_is_exchanged_step_by_step() {
        let stages = [&[1][..], &[1, 2], &[2, 1], &[2]].map(|numbers| secret(1, numbers));
        for neighbours in stages.windows(2) {
            for (one, other) in [(0, 1), (1, 0)] {
                assert!(neighbours[one].is_bearer(neighbours[other].bearer().as_bytes()));
            }
        }
        assert!(!stages[3].is_bearer(stages[0].bearer().as_bytes()), "the old one is over");
        let tag = |secret: &SharedSecret| secret.tag_key().tag(TagSubject::User("x"));
        assert_eq!(tag(&stages[0]), tag(&stages[3]), "what was revoked stays revoked");
        let mixed = format!("{}\n{}", *secret(1, &[1]).to_text(), *secret(2, &[2]).to_text());
        assert_eq!(SharedSecret::parse(&mixed), Err(SecretError::Mixed));
    }
}

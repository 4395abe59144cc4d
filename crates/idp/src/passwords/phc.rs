//! Text of a stored hash: `$argon2id$v=19$m=19456,t=2,p=1$salt$digest` (the PHC string format).
//!
//! Owns: strict reading and writing of that text: one spelling for each hash, and bounds on every
//! part. Does not own: the computation ([`super::hash`]), the column that holds it (the store).
//!
//! Only Argon2id of version 1.3 is supported. The import of accounts must convert or refuse other
//! hashes, so that a login never meets a hash that cannot verify.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

use super::parameters::{ParameterFault, Parameters};

/// Bytes of a new salt (RFC 9106 §3.1).
pub const SALT: usize = 16;
/// Bytes of a new digest.
pub const DIGEST: usize = 32;
/// Longest text of a stored hash in bytes.
pub const MAX_PHC: usize = 256;

/// Bytes of a stored salt: from the algorithm's minimum to more than any known software uses.
const SALTS: std::ops::RangeInclusive<usize> = 8..=64;
/// Bytes of a stored digest: with fewer than 16, a match by chance is too likely.
const DIGESTS: std::ops::RangeInclusive<usize> = 16..=64;

/// Reason why a stored hash cannot be used. It contains nothing of the hash itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PhcFault {
    /// The text is not a hash, or not in its canonical spelling.
    #[error("a stored password hash is malformed: expected $argon2id$v=19$m=…,t=…,p=…$salt$digest")]
    Malformed,
    /// The hash is of another algorithm.
    #[error("stored password hash is not argon2id: convert it or set a new password")]
    Algorithm,
    /// The hash is of an older version of Argon2.
    #[error("stored password hash is not argon2 version 19: set a new password")]
    Version,
    /// The parameters are out of bounds, and could exhaust the process.
    #[error("a stored password hash has parameters out of bounds: {0}")]
    Parameters(#[from] ParameterFault),
}

/// A stored hash, parsed.
#[derive(Clone, PartialEq, Eq)]
pub struct Phc {
    pub(super) parameters: Parameters,
    pub(super) salt: Vec<u8>,
    pub(super) digest: Vec<u8>,
}

impl Phc {
    /// Parses a stored hash.
    ///
    /// # Errors
    /// [`PhcFault`] when the text is not a supported hash.
    pub fn parse(text: &str) -> Result<Self, PhcFault> {
        if text.len() > MAX_PHC {
            return Err(PhcFault::Malformed);
        }
        let mut parts = text.split('$');
        let mut part = || parts.next().ok_or(PhcFault::Malformed);
        if !part()?.is_empty() {
            return Err(PhcFault::Malformed);
        }
        if part()? != "argon2id" {
            return Err(PhcFault::Algorithm);
        }
        if part()? != "v=19" {
            return Err(PhcFault::Version);
        }
        let [memory_kib, iterations, parallelism] = numbers(part()?).ok_or(PhcFault::Malformed)?;
        let salt = bytes(part()?).filter(|s| SALTS.contains(&s.len())).ok_or(PhcFault::Malformed)?;
        let digest = bytes(part()?).filter(|d| DIGESTS.contains(&d.len())).ok_or(PhcFault::Malformed)?;
        let parameters = Parameters::stored(memory_kib, iterations, parallelism)?;
        let phc = Self { parameters, salt, digest };
        // Equal output excludes leading zeros, signs and additional parts.
        if phc.encode() == text { Ok(phc) } else { Err(PhcFault::Malformed) }
    }

    /// The text to be stored. It is not `Display`, so that it is not logged by accident.
    pub fn encode(&self) -> String {
        format!(
            "$argon2id$v=19$m={},t={},p={}${}${}",
            self.parameters.memory_kib(),
            self.parameters.iterations(),
            self.parameters.parallelism(),
            STANDARD_NO_PAD.encode(&self.salt),
            STANDARD_NO_PAD.encode(&self.digest),
        )
    }

    /// Whether a verified password should be hashed again: cost, salt or digest are below those of
    /// new hashes.
    pub fn outdated(&self, current: Parameters) -> bool {
        self.parameters.weaker_than(current) || self.salt.len() < SALT || self.digest.len() < DIGEST
    }
}

impl fmt::Debug for Phc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Phc(..)")
    }
}

/// Parses `m=…,t=…,p=…` in this order.
fn numbers(text: &str) -> Option<[u32; 3]> {
    let mut fields = text.split(',');
    let mut number = |name: &str| fields.next()?.strip_prefix(name)?.parse().ok();
    Some([number("m=")?, number("t=")?, number("p=")?])
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    STANDARD_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";

    #[test]
    fn a_text_survives_reading_and_writing() {
        let phc = Phc::parse(GOOD).unwrap();
        assert_eq!(phc.encode(), GOOD);
        assert_eq!(phc.salt, b"somesalt");
        assert_eq!(phc.parameters, Parameters::new(65536, 2, 1).unwrap());
        assert_eq!(phc.digest.len(), DIGEST);
    }

    #[test]
    fn every_other_spelling_is_malformed() {
        let digest = "CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        for bad in [
            String::new(),
            "plain text".into(),
            GOOD[1..].into(),
            format!("{GOOD}$"),
            format!("{GOOD}="),
            format!(" {GOOD}"),
            format!("{GOOD}\n"),
            GOOD.replace("m=65536", "m=065536"),
            GOOD.replace("m=65536", "m=+65536"),
            GOOD.replace("m=65536", "m="),
            GOOD.replace("m=65536", "m=99999999999"),
            GOOD.replace("m=65536,t=2", "t=2,m=65536"),
            GOOD.replace(",p=1", ""),
            GOOD.replace(",p=1", ",p=1,keyid=AA"),
            GOOD.replace("c29tZXNhbHQ", "c2hvcnQ"),
            GOOD.replace("c29tZXNhbHQ", ""),
            GOOD.replace("c29tZXNhbHQ", &"A".repeat(88)),
            GOOD.replace(digest, ""),
            GOOD.replace(digest, "AAAA"),
            GOOD.replace(digest, &"A".repeat(88)),
            GOOD.replace("GRPPc", "GRPPd"),
            GOOD.replace("GRPPc", "GR-_c"),
            GOOD.replace("$v=19", "$v=19$"),
            "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ".into(),
            "$argon2id$v=19".into(),
            format!("$argon2id$v=19{}", "$".repeat(MAX_PHC)),
        ] {
            assert_eq!(Phc::parse(&bad), Err(PhcFault::Malformed), "{bad}");
        }
    }

    #[test]
    fn other_algorithms_and_versions_are_named() {
        for other in ["$argon2i$", "$argon2d$", "$argon2$", "$Argon2id$", "$"] {
            assert_eq!(Phc::parse(&GOOD.replace("$argon2id$", other)), Err(PhcFault::Algorithm), "{other}");
        }
        let bcrypt = "$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW";
        assert_eq!(Phc::parse(bcrypt), Err(PhcFault::Algorithm));
        for other in ["v=16$", "v=019$", ""] {
            assert_eq!(Phc::parse(&GOOD.replace("v=19$", other)), Err(PhcFault::Version), "{other}");
        }
    }

    #[test]
    fn a_memory_bomb_is_refused_before_anything_is_allocated() {
        for bomb in ["m=4294967295,t=1,p=1", "m=65536,t=4294967295,p=1", "m=262144,t=64,p=1", "m=7,t=1,p=1"] {
            let text = GOOD.replace("m=65536,t=2,p=1", bomb);
            assert!(matches!(Phc::parse(&text), Err(PhcFault::Parameters(_))), "{bomb}");
        }
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Phc::parse(GOOD).unwrap()), "Phc(..)");
    }
}

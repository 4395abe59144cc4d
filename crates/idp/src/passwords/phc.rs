//! Text of a stored hash: `$argon2id$v=19$m=19456,t=2,p=1$salt$digest` (the PHC string format).
//!
//! Owns: strict reading and writing of that text: one spelling for each hash, and bounds on every
//! part. Does not own: the computation ([`super::hash`]), the column that holds it (the store).
//!
//! New hashes are Argon2id of version 1.3. Imported ones may be of another type or version of
//! Argon2, or PBKDF2 (RFC 8018 §5.2): `$pbkdf2-sha256$i=27500,l=64$salt$digest`. They verify as they
//! are, and the next login replaces them. An import must refuse all others, so that a login never
//! meets a hash that cannot verify.

use std::fmt;
use std::num::NonZeroU32;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

use super::parameters::{ParameterFault, Parameters};

/// Bytes of a new salt (RFC 9106 §3.1).
pub const SALT: usize = 16;
/// Bytes of a new digest.
pub const DIGEST: usize = 32;
/// Longest text of a stored hash in bytes.
pub const MAX_PHC: usize = 256;
/// Most iterations of a stored PBKDF2 hash: about one second of one core. Keycloak's default for
/// SHA-1 is 1 300 000.
pub const MAX_PBKDF2_ITERATIONS: u32 = 2_000_000;

/// Bytes of a stored salt: from the algorithm's minimum to more than any known software uses.
const SALTS: std::ops::RangeInclusive<usize> = 8..=64;
/// Bytes of a stored digest: with fewer than 16, a match by chance is too likely.
const DIGESTS: std::ops::RangeInclusive<usize> = 16..=64;

/// Reason why a stored hash cannot be used. It contains nothing of the hash itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PhcFault {
    /// The text is not a hash, or not in its canonical spelling.
    #[error(
        "a stored password hash is malformed: expected $argon2id$v=19$m=…,t=…,p=…$salt$digest or $pbkdf2-sha256$i=…,l=…$salt$digest"
    )]
    Malformed,
    /// The hash is of another algorithm.
    #[error("stored password hash is neither argon2 nor pbkdf2: set a new password")]
    Algorithm,
    /// The hash is of an unknown version of Argon2.
    #[error("stored password hash is not of argon2 version 16 or 19: set a new password")]
    Version,
    /// The parameters are out of bounds, and could exhaust the process.
    #[error("a stored password hash has parameters out of bounds: {0}")]
    Parameters(#[from] ParameterFault),
    /// The iterations of PBKDF2 are out of bounds.
    #[error(
        "a stored password hash has {0} iterations of pbkdf2, out of bounds: 1 to {MAX_PBKDF2_ITERATIONS} are supported, set a new password"
    )]
    Iterations(u32),
}

/// Hash function of PBKDF2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pbkdf2Hash {
    Sha1,
    Sha256,
    Sha512,
}

/// How a digest was computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Argon2 { algorithm: argon2::Algorithm, version: argon2::Version, parameters: Parameters },
    Pbkdf2 { hash: Pbkdf2Hash, iterations: NonZeroU32 },
}

impl Scheme {
    /// The scheme of new hashes.
    pub(super) const fn new(parameters: Parameters) -> Self {
        let (algorithm, version) = (argon2::Algorithm::Argon2id, argon2::Version::V0x13);
        Self::Argon2 { algorithm, version, parameters }
    }

    /// Whether a digest of this scheme is weaker than a new one.
    fn weaker_than(self, current: Parameters) -> bool {
        match self {
            Self::Argon2 {
                algorithm: argon2::Algorithm::Argon2id,
                version: argon2::Version::V0x13,
                parameters,
            } => parameters.weaker_than(current),
            Self::Argon2 { .. } | Self::Pbkdf2 { .. } => true,
        }
    }
}

impl Pbkdf2Hash {
    fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "pbkdf2-sha1",
            Self::Sha256 => "pbkdf2-sha256",
            Self::Sha512 => "pbkdf2-sha512",
        }
    }

    /// Bytes of a block of the output.
    fn block(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// A stored hash, parsed.
#[derive(Clone, PartialEq, Eq)]
pub struct Phc {
    pub(super) scheme: Scheme,
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
        let algorithm = Algorithm::named(part()?).ok_or(PhcFault::Algorithm)?;
        let version = match algorithm {
            Algorithm::Pbkdf2(_) => None,
            Algorithm::Argon2(_) => Some(version(part()?).ok_or(PhcFault::Version)?),
        };
        let cost = part()?;
        let salt = bytes(part()?).filter(|s| SALTS.contains(&s.len())).ok_or(PhcFault::Malformed)?;
        let digest = bytes(part()?).filter(|d| DIGESTS.contains(&d.len())).ok_or(PhcFault::Malformed)?;
        let scheme = match (algorithm, version) {
            (Algorithm::Argon2(algorithm), Some(version)) => {
                let [memory_kib, iterations, parallelism] =
                    numbers(cost, ["m=", "t=", "p="]).ok_or(PhcFault::Malformed)?;
                let parameters = Parameters::stored(memory_kib, iterations, parallelism)?;
                Scheme::Argon2 { algorithm, version, parameters }
            }
            (Algorithm::Pbkdf2(hash), _) => {
                let [iterations, _] = numbers(cost, ["i=", "l="]).ok_or(PhcFault::Malformed)?;
                let within = NonZeroU32::new(iterations).filter(|i| i.get() <= MAX_PBKDF2_ITERATIONS);
                Scheme::Pbkdf2 { hash, iterations: within.ok_or(PhcFault::Iterations(iterations))? }
            }
            (Algorithm::Argon2(_), None) => return Err(PhcFault::Version),
        };
        let phc = Self { scheme, salt, digest };
        // Equal output excludes leading zeros, signs, additional parts and another length.
        if phc.encode() == text { Ok(phc) } else { Err(PhcFault::Malformed) }
    }

    /// The text to be stored. It is not `Display`, so that it is not logged by accident.
    pub fn encode(&self) -> String {
        let scheme = match self.scheme {
            Scheme::Argon2 { algorithm, version, parameters } => format!(
                "{}$v={}$m={},t={},p={}",
                algorithm.as_str(),
                u32::from(version),
                parameters.memory_kib(),
                parameters.iterations(),
                parameters.parallelism(),
            ),
            Scheme::Pbkdf2 { hash, iterations } => {
                format!("{}$i={iterations},l={}", hash.name(), self.digest.len())
            }
        };
        format!("${scheme}${}${}", STANDARD_NO_PAD.encode(&self.salt), STANDARD_NO_PAD.encode(&self.digest))
    }

    /// The part of the digest that a verification compares. The blocks of PBKDF2 are computed one by
    /// one (RFC 8018 §5.2), and with the first one a guess is decided. The others would only
    /// multiply the time of a login: Keycloak stores four with SHA-1.
    pub(super) fn decisive_digest(&self) -> &[u8] {
        let block = match self.scheme {
            Scheme::Pbkdf2 { hash, .. } => hash.block(),
            Scheme::Argon2 { .. } => self.digest.len(),
        };
        self.digest.get(..block).unwrap_or(&self.digest)
    }

    /// Whether a verified password should be hashed again: algorithm, cost, salt or digest are below
    /// those of new hashes.
    pub fn outdated(&self, current: Parameters) -> bool {
        self.scheme.weaker_than(current) || self.salt.len() < SALT || self.digest.len() < DIGEST
    }
}

/// Algorithm at the beginning of the text.
enum Algorithm {
    Argon2(argon2::Algorithm),
    Pbkdf2(Pbkdf2Hash),
}

impl Algorithm {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "argon2id" => Self::Argon2(argon2::Algorithm::Argon2id),
            "argon2i" => Self::Argon2(argon2::Algorithm::Argon2i),
            "argon2d" => Self::Argon2(argon2::Algorithm::Argon2d),
            "pbkdf2-sha1" => Self::Pbkdf2(Pbkdf2Hash::Sha1),
            "pbkdf2-sha256" => Self::Pbkdf2(Pbkdf2Hash::Sha256),
            "pbkdf2-sha512" => Self::Pbkdf2(Pbkdf2Hash::Sha512),
            _ => return None,
        })
    }
}

fn version(text: &str) -> Option<argon2::Version> {
    match text {
        "v=16" => Some(argon2::Version::V0x10),
        "v=19" => Some(argon2::Version::V0x13),
        _ => None,
    }
}

impl fmt::Debug for Phc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Phc(..)")
    }
}

/// Parses numbers with these names, in this order: `m=…,t=…,p=…`.
fn numbers<const N: usize>(text: &str, names: [&str; N]) -> Option<[u32; N]> {
    let mut fields = text.split(',');
    let mut numbers = [0; N];
    for (number, name) in numbers.iter_mut().zip(names) {
        *number = fields.next()?.strip_prefix(name)?.parse().ok()?;
    }
    Some(numbers)
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
        assert!(phc.scheme == Scheme::new(Parameters::new(65536, 2, 1).unwrap()));
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
        for other in ["$argon2$", "$Argon2id$", "$pbkdf2$", "$pbkdf2-md5$", "$"] {
            assert_eq!(Phc::parse(&GOOD.replace("$argon2id$", other)), Err(PhcFault::Algorithm), "{other}");
        }
        let bcrypt = "$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW";
        assert_eq!(Phc::parse(bcrypt), Err(PhcFault::Algorithm));
        for other in ["v=17$", "v=019$", ""] {
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
    fn imported_hashes_survive_reading_and_writing_and_are_outdated() {
        let digest = "CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        let salt = "c29tZXNhbHRzb21lc2FsdA";
        for scheme in [
            "argon2d$v=19$m=65536,t=3,p=4",
            "argon2i$v=16$m=65536,t=3,p=4",
            "argon2id$v=16$m=65536,t=3,p=4",
            "pbkdf2-sha1$i=1300000,l=32",
            "pbkdf2-sha256$i=1,l=32",
            "pbkdf2-sha512$i=2000000,l=32",
        ] {
            let text = format!("${scheme}${salt}${digest}");
            let phc = Phc::parse(&text).unwrap();
            assert!(phc.encode() == text && phc.outdated(Parameters::TINY), "{scheme}");
        }
        for (cost, fault) in [
            ("i=0,l=32", PhcFault::Iterations(0)),
            ("i=2000001,l=32", PhcFault::Iterations(2_000_001)),
            ("i=4294967295,l=32", PhcFault::Iterations(u32::MAX)),
            ("i=4294967296,l=32", PhcFault::Malformed),
            ("i=1000,l=31", PhcFault::Malformed),
            ("i=1000", PhcFault::Malformed),
            ("l=32,i=1000", PhcFault::Malformed),
            ("i=01000,l=32", PhcFault::Malformed),
            ("i=1000,l=32,x=1", PhcFault::Malformed),
            ("v=19$i=1000,l=32", PhcFault::Malformed),
        ] {
            let text = format!("$pbkdf2-sha256${cost}${salt}${digest}");
            assert_eq!(Phc::parse(&text), Err(fault), "{cost}");
        }
        let without_version = format!("$argon2id$m=65536,t=3,p=4${salt}${digest}");
        assert_eq!(Phc::parse(&without_version), Err(PhcFault::Version));
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Phc::parse(GOOD).unwrap()), "Phc(..)");
    }
}

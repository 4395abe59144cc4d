//! Users of an htpasswd file, and their passwords.
//!
//! Owns: the format of the file, which hashes are accepted, the comparison of a password. Does not
//! own: reading the file, the threads that compare ([`hash_pool`]), caching
//! ([`crate::authenticate`]).
//!
//! A line is `user:hash`; empty lines and lines that begin with `#` are skipped. Accepted are
//! bcrypt and Argon2id, which make guessing a password from a stolen file expensive. Every other
//! hash is a fault: `htpasswd` without `-B` writes one that is computed in a millionth of the time.

use std::collections::HashMap;
use std::fmt;

use argon2::{Algorithm, Block, Params, Version};
use argon2_hash::Job;
use aws_lc_rs::constant_time;
use base64::Engine as _;
use base64::alphabet::BCRYPT;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroize as _;

/// Longest password in bytes, and longest user name.
pub const MAX_BYTES: usize = 512;
/// Longest text of a hash.
const MAX_HASH: usize = 256;
/// Bytes of a password that bcrypt reads; the final NUL counts.
const BCRYPT_BYTES: usize = 72;
/// Cost of bcrypt: below the first it is as fast as what is refused, above the second one
/// comparison takes seconds.
const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 4..=14;
/// Most memory of Argon2id in KiB.
const MAX_MEMORY_KIB: u32 = 256 * 1024;
/// Most memory of Argon2id times passes, in KiB: about one second of one core.
const MAX_WORK_KIB: u64 = 1024 * 1024;
/// bcrypt's own alphabet. The last character of a salt has bits without a meaning.
const BCRYPT_TEXT: GeneralPurpose = GeneralPurpose::new(
    &BCRYPT,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// Groups of users, by name.
pub type UserGroups = HashMap<Box<str>, Vec<Box<str>>>;

/// A line of the file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {problem}", named(.user.as_deref()))]
pub struct HtpasswdFault {
    /// Number of the line, from 1.
    pub line: usize,
    /// The user of the line, if it has one.
    pub user: Option<String>,
    /// What is wrong with it.
    pub problem: HtpasswdProblem,
}

fn named(user: Option<&str>) -> String {
    user.map_or_else(String::new, |user| format!(", user {user:?}"))
}

/// What is wrong with a line. No text contains a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HtpasswdProblem {
    /// The line is not UTF-8.
    #[error("it is not UTF-8")]
    Encoding,
    /// The line has no colon.
    #[error("it is not of the form user:hash")]
    Form,
    /// The user name is empty, too long, or has a control character.
    #[error("the user name is empty, longer than {MAX_BYTES} bytes, or has a control character")]
    Name,
    /// The user has an earlier line.
    #[error("the user occurs twice")]
    Repeated,
    /// Apache's MD5.
    #[error("the hash is $apr1$ (MD5), which is too fast; make it with htpasswd -B")]
    Apr1,
    /// SHA-1 without a salt.
    #[error("the hash is {{SHA}} (SHA-1 without a salt), which is too fast; make it with htpasswd -B")]
    Sha1,
    /// Another hash of `crypt`.
    #[error("the hash is of crypt(3), and neither bcrypt nor argon2id; make it with htpasswd -B")]
    Crypt,
    /// No known hash: the password itself, or DES.
    #[error("the text is a plain password or a DES hash; make a hash with htpasswd -B")]
    Plain,
    /// A hash of a known kind that cannot be read.
    #[error("the hash is malformed; make it with htpasswd -B")]
    Malformed,
    /// The cost of bcrypt.
    #[error("the cost of bcrypt is out of bounds; use 4 to 14, such as htpasswd -B -C 10")]
    Cost,
    /// The parameters of Argon2id.
    #[error(
        "the parameters of argon2id are out of bounds; use at most 256 MiB, and at most 1 GiB in all passes"
    )]
    Parameters,
}

/// A hash that a password can be compared with.
#[derive(Clone, PartialEq, Eq)]
enum PasswordHash {
    Bcrypt { cost: u32, salt: [u8; 16], digest: [u8; 23] },
    Argon2id { memory_kib: u32, passes: u32, lanes: u32, salt: Box<[u8]>, digest: Box<[u8]> },
}

/// The hash of one user.
#[derive(Clone)]
pub struct StoredPassword {
    /// The text in the file, which names the entry in the cache.
    text: Box<str>,
    hash: PasswordHash,
}

impl StoredPassword {
    /// The text in the file: another text is another entry.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether this is the password; `None` if there is not enough memory to compute its hash. Takes
    /// tens of milliseconds or more.
    pub fn is_right(&self, password: &[u8]) -> Option<bool> {
        Some(match &self.hash {
            PasswordHash::Bcrypt { cost, salt, digest } => {
                let mut key = [0; BCRYPT_BYTES];
                let length = password.len().min(BCRYPT_BYTES);
                key[..length].copy_from_slice(&password[..length]);
                // A NUL follows the password, if there is room.
                let computed = bcrypt::bcrypt(*cost, *salt, &key[..(length + 1).min(BCRYPT_BYTES)]);
                key.zeroize();
                constant_time::verify_slices_are_equal(&computed[..digest.len()], digest).is_ok()
            }
            PasswordHash::Argon2id { memory_kib, passes, lanes, salt, digest } => {
                let mut computed = vec![0; digest.len()];
                let params = Params::new(*memory_kib, *passes, *lanes, Some(digest.len()));
                // The file was refused if they were out of bounds.
                let Ok(params) = params else { return Some(false) };
                let mut blocks = Vec::new();
                blocks.try_reserve_exact(params.block_count()).ok()?;
                blocks.resize(params.block_count(), Block::new());
                let (algorithm, version) = (Algorithm::Argon2id, Version::V0x13);
                let job = Job { algorithm, version, params: &params, password, salt };
                let done = job.hash(&mut computed, &mut blocks).is_ok();
                done && constant_time::verify_slices_are_equal(&computed, digest).is_ok()
            }
        })
    }
}

impl fmt::Debug for StoredPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredPassword(..)")
    }
}

/// The users of a file.
#[derive(Debug, Clone, Default)]
pub struct Htpasswd {
    users: HashMap<Box<str>, StoredPassword>,
    /// The same, in the order of the file.
    order: Vec<StoredPassword>,
}

impl Htpasswd {
    /// Parses a file.
    ///
    /// # Errors
    /// Every line that cannot be used.
    pub fn parse(file: &[u8]) -> Result<Self, Vec<HtpasswdFault>> {
        let (mut users, mut faults) = (Self::default(), Vec::new());
        for (index, line) in file.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Err((user, problem)) = users.add(line) {
                faults.push(HtpasswdFault { line: index + 1, user, problem });
            }
        }
        if faults.is_empty() { Ok(users) } else { Err(faults) }
    }

    fn add(&mut self, line: &[u8]) -> Result<(), (Option<String>, HtpasswdProblem)> {
        let line = std::str::from_utf8(line).map_err(|_| (None, HtpasswdProblem::Encoding))?;
        if line.trim().is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let (user, hash) = line.split_once(':').ok_or((None, HtpasswdProblem::Form))?;
        if user.is_empty() || user.len() > MAX_BYTES || user.chars().any(char::is_control) {
            return Err((None, HtpasswdProblem::Name));
        }
        let fault = |problem| (Some(user.to_owned()), problem);
        // Some tools add fields after the hash, as in passwd files.
        let hash = hash.split(':').next().unwrap_or_default();
        let stored = StoredPassword { text: hash.into(), hash: PasswordHash::parse(hash).map_err(fault)? };
        if self.users.insert(user.into(), stored.clone()).is_some() {
            return Err(fault(HtpasswdProblem::Repeated));
        }
        self.order.push(stored);
        Ok(())
    }

    /// The names of the users.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.users.keys().map(|name| &**name)
    }

    /// Whether there is no user.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The password of a user.
    pub fn password(&self, user: &str) -> Option<&StoredPassword> {
        self.users.get(user)
    }

    /// The hash that the password of an unknown user is compared with: that of a user, whose number
    /// is the same for the same `spread`. So unknown users take as long as known ones do, whatever
    /// different costs the file has.
    pub(crate) fn decoy(&self, spread: u64) -> Option<&StoredPassword> {
        let count = u64::try_from(self.order.len()).ok().filter(|count| *count > 0)?;
        self.order.get(usize::try_from(spread % count).unwrap_or(0))
    }
}

impl PasswordHash {
    fn parse(text: &str) -> Result<Self, HtpasswdProblem> {
        use HtpasswdProblem as P;
        if text.len() > MAX_HASH {
            return Err(P::Malformed);
        }
        match text.split('$').collect::<Vec<_>>().as_slice() {
            ["", "2y" | "2a" | "2b", cost, rest] => Self::bcrypt(cost, rest),
            ["", "argon2id", version, parameters, salt, digest] => {
                Self::argon2id(version, parameters, salt, digest)
            }
            ["", "2y" | "2a" | "2b" | "argon2id", ..] => Err(P::Malformed),
            ["", "apr1", ..] => Err(P::Apr1),
            ["", _, ..] => Err(P::Crypt),
            _ if text.starts_with("{SHA}") => Err(P::Sha1),
            _ => Err(P::Plain),
        }
    }

    /// `$2y$10$`, then 22 characters of salt and 31 of digest.
    fn bcrypt(cost: &str, rest: &str) -> Result<Self, HtpasswdProblem> {
        let malformed = HtpasswdProblem::Malformed;
        if cost.len() != 2 || rest.len() != 53 || !rest.is_ascii() {
            return Err(malformed);
        }
        let cost: u32 = cost.parse().map_err(|_| malformed)?;
        if !BCRYPT_COSTS.contains(&cost) {
            return Err(HtpasswdProblem::Cost);
        }
        let (salt, digest) = rest.split_at(22);
        let bytes = |text: &str| BCRYPT_TEXT.decode(text).map_err(|_| malformed);
        let salt = bytes(salt)?.try_into().map_err(|_| malformed)?;
        let digest = bytes(digest)?.try_into().map_err(|_| malformed)?;
        Ok(Self::Bcrypt { cost, salt, digest })
    }

    /// The PHC string format: `$argon2id$v=19$m=19456,t=2,p=1$salt$digest`.
    fn argon2id(version: &str, parameters: &str, salt: &str, digest: &str) -> Result<Self, HtpasswdProblem> {
        let malformed = HtpasswdProblem::Malformed;
        let mut parts = parameters.split(',');
        let mut number = |name: &str| parts.next()?.strip_prefix(name)?.parse::<u32>().ok();
        let numbers = (number("m="), number("t="), number("p="));
        let ((Some(memory_kib), Some(passes), Some(lanes)), None, "v=19") = (numbers, parts.next(), version)
        else {
            return Err(malformed);
        };
        let bytes = |text: &str| STANDARD_NO_PAD.decode(text).map_err(|_| malformed);
        let (salt, digest) = (bytes(salt)?, bytes(digest)?);
        if !(8..=64).contains(&salt.len()) || !(16..=64).contains(&digest.len()) {
            return Err(malformed);
        }
        let work = u64::from(memory_kib) * u64::from(passes);
        let usable = Params::new(memory_kib, passes, lanes, Some(digest.len())).is_ok();
        if !usable || memory_kib > MAX_MEMORY_KIB || work > MAX_WORK_KIB {
            return Err(HtpasswdProblem::Parameters);
        }
        Ok(Self::Argon2id { memory_kib, passes, lanes, salt: salt.into(), digest: digest.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A salt without a digest.
    const ADA: &str = "$2y$04$ABCDEFGHIJKLMNOPQRSTUu";

    fn only_fault(line: &str) -> HtpasswdFault {
        let mut faults = Htpasswd::parse(line.as_bytes()).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults.remove(0)
    }

    /// A bcrypt hash with the least cost.
    fn bcrypt_of(variant: &str, password: &[u8]) -> String {
        let salt = *b"0123456789abcdef";
        let mut key = password.to_vec();
        key.push(0);
        key.truncate(BCRYPT_BYTES);
        let digest = bcrypt::bcrypt(4, salt, &key);
        format!("${variant}$04${}{}", BCRYPT_TEXT.encode(salt), BCRYPT_TEXT.encode(&digest[..23]))
    }

    #[test]
    fn vectors_of_other_implementations_agree() {
        // From the tests of OpenBSD's and crypt_blowfish's implementations.
        for (password, hash) in [
            ("", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy"),
            ("abc", "$2a$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i"),
            ("U*U", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"),
            ("U*U", "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"),
            (
                "password",
                "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            ),
            (
                "password",
                "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc",
            ),
        ] {
            let users = Htpasswd::parse(format!("ada:{hash}\n").as_bytes()).unwrap();
            let stored = users.password("ada").unwrap();
            assert_eq!(stored.is_right(password.as_bytes()), Some(true), "{hash}");
            for wrong in [&b"Abc"[..], b"password "] {
                assert_eq!(stored.is_right(wrong), Some(false), "{hash}");
            }
        }
    }

    #[test]
    fn bcrypt_reads_seventy_two_bytes() {
        let long = [b'x'; 100];
        for variant in ["2a", "2b", "2y"] {
            let file = format!("ada:{}\n", bcrypt_of(variant, &long));
            let users = Htpasswd::parse(file.as_bytes()).unwrap();
            let ada = users.password("ada").unwrap();
            let is_right = |length| ada.is_right(&long[..length]);
            assert_eq!((is_right(100), is_right(72), is_right(71)), (Some(true), Some(true), Some(false)));
        }
    }

    #[test]
    fn comments_and_line_ends_are_no_users() {
        let hash = bcrypt_of("2y", b"pw");
        let file = format!("# staff\n\nada:{hash}\r\n  \ngrace:{hash}:Grace Hopper\n");
        let users = Htpasswd::parse(file.as_bytes()).unwrap();
        let mut names: Vec<&str> = users.names().collect();
        names.sort_unstable();
        assert_eq!(names, ["ada", "grace"]);
        assert_eq!(users.password("grace").unwrap().is_right(b"pw"), Some(true));
        assert!(users.password("# staff").is_none() && users.password("Ada").is_none());
        assert!(Htpasswd::parse(b"").unwrap().is_empty());
    }

    #[test]
    fn fast_hashes_are_refused_with_line_user_and_remedy() {
        for (hash, problem) in [
            ("$apr1$salt$4FPC2kMTHdwzVkTzYqoNJ1", HtpasswdProblem::Apr1),
            ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", HtpasswdProblem::Sha1),
            ("$6$salt$hash", HtpasswdProblem::Crypt),
            ("$5$rounds=5000$salt$hash", HtpasswdProblem::Crypt),
            ("$1$salt$hash", HtpasswdProblem::Crypt),
            ("$2x$10$abc", HtpasswdProblem::Crypt),
            ("$argon2i$v=19$m=256,t=2,p=1$c29tZXNhbHQ$c29tZXNhbHQ", HtpasswdProblem::Crypt),
            ("rqXexS6ZhobKA", HtpasswdProblem::Plain),
            ("secret", HtpasswdProblem::Plain),
            ("", HtpasswdProblem::Plain),
        ] {
            let found = only_fault(&format!("\nada:{hash}"));
            let expected = HtpasswdFault { line: 2, user: Some("ada".into()), problem };
            assert_eq!(found, expected, "{hash}");
            let text = found.to_string();
            assert!(text.starts_with("line 2, user \"ada\": ") && text.contains("htpasswd -B"), "{text}");
            assert!(hash.is_empty() || !text.contains(hash), "no hash is shown: {text}");
        }
    }

    #[test]
    fn malformed_lines_are_faults() {
        let good = bcrypt_of("2y", b"pw");
        for (line, problem) in [
            ("nobody".to_owned(), HtpasswdProblem::Form),
            (format!(":{good}"), HtpasswdProblem::Name),
            (format!("a\tb:{good}"), HtpasswdProblem::Name),
            (format!("{}:{good}", "x".repeat(MAX_BYTES + 1)), HtpasswdProblem::Name),
            (format!("ada:{ADA}"), HtpasswdProblem::Malformed),
            (format!("ada:{good}x"), HtpasswdProblem::Malformed),
            (format!("ada:{}", good.replace("$04$", "$4$")), HtpasswdProblem::Malformed),
            (format!("ada:{}", good.replace("$04$", "$03$")), HtpasswdProblem::Cost),
            (format!("ada:{}", good.replace("$04$", "$31$")), HtpasswdProblem::Cost),
            (
                "ada:$argon2id$v=16$m=256,t=2,p=1$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA".into(),
                HtpasswdProblem::Malformed,
            ),
            (
                "ada:$argon2id$v=19$m=9999999,t=2,p=1$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA".into(),
                HtpasswdProblem::Parameters,
            ),
            (
                "ada:$argon2id$v=19$m=262144,t=9,p=1$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA".into(),
                HtpasswdProblem::Parameters,
            ),
            (
                "ada:$argon2id$v=19$m=256,t=2$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA".into(),
                HtpasswdProblem::Malformed,
            ),
        ] {
            assert_eq!(only_fault(&line).problem, problem, "{line}");
        }
        let twice = format!("ada:{good}\nada:{good}");
        assert_eq!(only_fault(&twice).problem, HtpasswdProblem::Repeated);
        assert_eq!(Htpasswd::parse(b"ad\xe4:x").unwrap_err()[0].problem, HtpasswdProblem::Encoding);
        let all = Htpasswd::parse(b"a:x\nb\n:y\n").unwrap_err();
        assert_eq!(all.iter().map(|fault| fault.line).collect::<Vec<_>>(), [1, 2, 3], "all at once");
    }

    #[test]
    fn a_decoy_is_the_same_hash_each_time() {
        let file = format!("ada:{}\ngrace:{}\n", bcrypt_of("2y", b"1"), bcrypt_of("2a", b"2"));
        let users = Htpasswd::parse(file.as_bytes()).unwrap();
        let decoy = |spread| users.decoy(spread).unwrap().text().to_owned();
        assert_eq!((decoy(0), decoy(1)), (decoy(2), decoy(7)));
        assert_ne!(decoy(0), decoy(1));
        assert!(Htpasswd::default().decoy(1).is_none());
    }

    #[test]
    fn debug_shows_no_hash() {
        let file = format!("ada:{}\n", bcrypt_of("2y", b"1"));
        let text = format!("{:?}", Htpasswd::parse(file.as_bytes()).unwrap());
        assert!(!text.contains("$2y$"), "{text}");
    }
}

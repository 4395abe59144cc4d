//! NATS login: how the client authenticates to a server.
//!
//! Owns: the login methods, and the answer to a server's greeting ([`NatsLogin::fields`]). Does not
//! own: the connection. Secrets are in no `Debug` output and in no error.

use std::fmt;

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

/// How the client logs in.
#[derive(Clone, Default)]
pub enum NatsLogin {
    /// Without credentials, or by the client's TLS certificate.
    #[default]
    None,
    /// With a user name and a password.
    Password {
        /// Name of the user.
        user: String,
        /// Password of the user.
        password: String,
    },
    /// With a token that all clients share.
    Token(String),
    /// With a signed statement about the user, and the key that it names.
    Credentials(Credentials),
}

impl fmt::Debug for NatsLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Password { .. } => "Password",
            Self::Token(_) => "Token",
            Self::Credentials(_) => "Credentials",
        })
    }
}

impl NatsLogin {
    /// Login fields of the answer to a greeting with this nonce.
    pub(super) fn fields(&self, nonce: Option<&str>) -> Result<Map<String, Value>, String> {
        let fields = match self {
            Self::None => json!({}),
            Self::Password { user, password } => json!({ "user": user, "pass": password }),
            Self::Token(token) => json!({ "auth_token": token }),
            Self::Credentials(who) => {
                let nonce =
                    nonce.ok_or("the server requests no signature; check its login method for users")?;
                let signature = who.sign(nonce)?;
                match &who.jwt {
                    Some(jwt) => json!({ "jwt": jwt, "sig": signature }),
                    None => json!({ "nkey": who.public(), "sig": signature }),
                }
            }
        };
        Ok(match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        })
    }
}

/// Why a credentials file cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// The file has no seed of a user's key.
    #[error("no seed of a user's key (SU…) in the credentials; create them again with `nsc generate creds`")]
    NoSeed,
    /// The seed is damaged, or not a user's.
    #[error("the seed in the credentials is damaged, or not a user's (SU…); copy it again")]
    BadSeed,
}

/// A user's key, and the signed JWT about it.
#[derive(Clone)]
pub struct Credentials {
    jwt: Option<String>,
    seed: [u8; 32],
    public: [u8; 32],
}

/// Prefixes of an encoded key: of a seed, and of a user's key.
const SEED: u8 = 18 << 3;
const USER: u8 = 20 << 3;

impl Credentials {
    /// Parses a credentials file as `nsc` writes it, or a bare seed. For a bare seed, the server
    /// must know the key itself.
    pub fn parse(text: &str) -> Result<Self, CredentialsError> {
        let lines = || text.lines().map(str::trim).filter(|line| !line.starts_with('-'));
        let seed = lines().find(|line| line.starts_with("SU")).ok_or(CredentialsError::NoSeed)?;
        let jwt = lines().find(|line| line.starts_with("eyJ")).map(str::to_owned);
        let seed = decode_seed(seed).ok_or(CredentialsError::BadSeed)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| CredentialsError::BadSeed)?;
        let public = aws_lc_rs::signature::KeyPair::public_key(&pair).as_ref();
        let public = public.try_into().map_err(|_| CredentialsError::BadSeed)?;
        Ok(Self { jwt, seed, public })
    }

    /// The public key in the servers' encoding.
    pub fn public(&self) -> String {
        let mut bytes = vec![USER];
        bytes.extend_from_slice(&self.public);
        bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
        base32(&bytes)
    }

    fn sign(&self, nonce: &str) -> Result<String, String> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&self.seed)
            .map_err(|_| "the key in the credentials cannot be used")?;
        Ok(URL_SAFE_NO_PAD.encode(pair.sign(nonce.as_bytes())))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.public())
    }
}

/// The key in the encoded seed of a user: two bytes of kind, key, checksum.
fn decode_seed(text: &str) -> Option<[u8; 32]> {
    let bytes: [u8; 36] = unbase32(text)?.try_into().ok()?;
    let (body, sum) = bytes.split_at(34);
    let kind = [body[0] & 0xf8, (body[0] & 0x07) << 5 | (body[1] & 0xf8) >> 3];
    let sound = kind == [SEED, USER] && checksum(body).to_le_bytes() == sum;
    body[2..].try_into().ok().filter(|_| sound)
}

/// CRC-16 in the XMODEM variant.
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum: u16, _| {
            if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 }
        })
    })
}

/// Alphabet of base32 (RFC 4648 section 6); NATS omits the padding.
const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32(bytes: &[u8]) -> String {
    let bit = |at: usize| bytes.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1);
    let letter = |at: usize| LETTERS[(at..at + 5).fold(0, |letter, at| letter << 1 | usize::from(bit(at)))];
    (0..bytes.len() * 8).step_by(5).map(|at| char::from(letter(at))).collect()
}

fn unbase32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes() {
        let value = LETTERS.iter().position(|known| *known == letter)?;
        held = (held << 5 | u32::try_from(value).ok()?) & 0xfff;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The key pair in the documentation of NATS.
    const SEED_TEXT: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const PUBLIC_TEXT: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

    #[test]
    fn a_seed_has_the_public_key_that_others_find() {
        let file = format!(
            "-----BEGIN NATS USER JWT-----\neyJ0.e30.c2ln\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{SEED_TEXT}\n------END USER NKEY SEED------\n"
        );
        let credentials = Credentials::parse(&file).unwrap();
        assert_eq!(credentials.public(), PUBLIC_TEXT);
        assert_eq!(credentials.jwt.as_deref(), Some("eyJ0.e30.c2ln"));
        assert!(!format!("{:?}", NatsLogin::Credentials(credentials)).contains("SU"));
    }

    #[test]
    fn a_damaged_seed_is_refused() {
        let damaged = SEED_TEXT.replace("SUAC", "SUAD");
        assert_eq!(Credentials::parse(&damaged).unwrap_err(), CredentialsError::BadSeed);
        assert_eq!(Credentials::parse("nothing").unwrap_err(), CredentialsError::NoSeed);
    }
}

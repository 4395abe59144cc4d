//! JWK parsing: one JSON Web Key (RFC 7517 §4, RFC 7518 §6, RFC 8037 §2) to verification keys.
//!
//! Numbers are read in every spelling that is published and has one meaning: base64url or base64,
//! with or without padding, with missing or superfluous leading zeros. A member that is `null` is
//! absent. Tokens are different: there each has one spelling only.

use aws_lc_rs::signature::{
    self, EcdsaVerificationAlgorithm, ParsedPublicKey, RsaParameters, RsaPublicKeyComponents,
    VerificationAlgorithm,
};
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, Engine as _, GeneralPurpose, GeneralPurposeConfig};

use super::{Key, SkipReason};
use crate::algorithm::Algorithm;
use crate::json::Value;
use crate::keyset::MAX_KID_BYTES;

/// Members that only a private or symmetric key has (RFC 7518 §6.2.2, §6.3.2, §6.4).
const SECRET_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
/// Operations of keys that are not for signatures (RFC 7517 §4.3).
const ENCRYPTION_OPERATIONS: [&str; 6] =
    ["encrypt", "decrypt", "wrapKey", "unwrapKey", "deriveKey", "deriveBits"];
/// Beginnings of the names of algorithms that encrypt keys (RFC 7518 §4.1) with a public key.
const ENCRYPTION_ALGORITHMS: [&str; 3] = ["RSA-OAEP", "RSA1_5", "ECDH-ES"];
/// Base64url, with or without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The key, once for each algorithm that it can verify.
pub(super) fn parse(jwk: Value<'_>) -> Result<Vec<Key>, SkipReason> {
    if !jwk.is_object() {
        return Err(SkipReason::NotAnObject);
    }
    let kty = text(jwk, "kty")?.ok_or(SkipReason::Member("kty"))?;
    if kty == "oct" {
        return Err(SkipReason::Symmetric);
    }
    if SECRET_MEMBERS.iter().any(|name| member(jwk, name).is_some()) {
        return Err(SkipReason::Private);
    }
    check_purpose(jwk)?;
    let kid = kid(jwk)?;
    let declared = match text(jwk, "alg")? {
        Some(name) if ENCRYPTION_ALGORITHMS.iter().any(|begin| name.starts_with(begin)) => {
            return Err(SkipReason::Encryption);
        }
        Some(name) => Some(Algorithm::from_name(name).ok_or(SkipReason::Algorithm)?),
        None => None,
    };
    let forms = match kty {
        "RSA" => rsa(jwk, declared)?,
        "EC" => vec![ec(jwk)?],
        "OKP" => vec![okp(jwk)?],
        _ => return Err(SkipReason::Unsupported),
    };
    // If the key type does not support the declared algorithm, there is no form, or one for another
    // algorithm.
    if forms.is_empty() || declared.is_some_and(|declared| forms.iter().any(|(a, _)| *a != declared)) {
        return Err(SkipReason::Algorithm);
    }
    let forms = forms.into_iter();
    Ok(forms.map(|(algorithm, public)| Key { kid: kid.map(Into::into), algorithm, public }).collect())
}

/// The `kid`, if it is one that tokens may name.
pub(super) fn kid(jwk: Value<'_>) -> Result<Option<&str>, SkipReason> {
    let kid = text(jwk, "kid")?;
    if kid.is_some_and(|kid| kid.len() > MAX_KID_BYTES) { Err(SkipReason::KidTooLong) } else { Ok(kid) }
}

/// Checks that `use` (RFC 7517 §4.2) and `key_ops` (§4.3), where present, permit verification.
fn check_purpose(jwk: Value<'_>) -> Result<(), SkipReason> {
    match text(jwk, "use")? {
        None | Some("sig") => {}
        Some("enc") => return Err(SkipReason::Encryption),
        Some(_) => return Err(SkipReason::Use),
    }
    let Some(operations) = member(jwk, "key_ops") else { return Ok(()) };
    let operations = operations.items().ok_or(SkipReason::Member("key_ops"))?;
    let operations: Vec<_> = operations.map(Value::as_str).collect();
    let encrypts = |operation: Option<&str>| operation.is_some_and(|o| ENCRYPTION_OPERATIONS.contains(&o));
    if operations.contains(&Some("verify")) {
        Ok(())
    } else if !operations.is_empty() && operations.iter().copied().all(encrypts) {
        Err(SkipReason::Encryption)
    } else {
        Err(SkipReason::KeyOps)
    }
}

type Form = (Algorithm, ParsedPublicKey);

/// An RSA key (RFC 7518 §6.3): modulus and exponent.
fn rsa(jwk: Value<'_>, declared: Option<Algorithm>) -> Result<Vec<Form>, SkipReason> {
    let (n, e) = (number(jwk, "n")?, number(jwk, "e")?);
    let bits = n.len() * 8 - n[0].leading_zeros() as usize;
    if !(2048..=8192).contains(&bits) {
        return Err(SkipReason::RsaSize(bits));
    }
    // An RSA modulus or exponent is never even. With exponent 1, every message is its own
    // signature. A long exponent only makes verification slow.
    let odd = |number: &[u8]| number.last().is_some_and(|byte| byte & 1 == 1);
    if !odd(&n) || !odd(&e) || e == [1] || e.len() > 4 {
        return Err(SkipReason::Invalid);
    }
    let components = RsaPublicKeyComponents { n, e };
    let algorithms = Algorithm::ALL.into_iter().filter(|a| declared.is_none_or(|declared| declared == *a));
    let forms = algorithms.filter_map(|algorithm| Some((algorithm, rsa_parameters(algorithm)?)));
    forms
        .map(|(algorithm, parameters)| {
            let public = components.to_parsed_public_key(parameters).map_err(|_| SkipReason::Invalid)?;
            Ok((algorithm, public))
        })
        .collect()
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
        Algorithm::Es256 | Algorithm::Es384 | Algorithm::Es512 | Algorithm::EdDsa => None,
    }
}

/// A point on a curve (RFC 7518 §6.2); the curve decides the algorithm (§3.4).
fn ec(jwk: Value<'_>) -> Result<Form, SkipReason> {
    let (algorithm, verification, width): (_, &'static EcdsaVerificationAlgorithm, _) =
        match text(jwk, "crv")?.ok_or(SkipReason::Member("crv"))? {
            "P-256" => (Algorithm::Es256, &signature::ECDSA_P256_SHA256_FIXED, 32),
            "P-384" => (Algorithm::Es384, &signature::ECDSA_P384_SHA384_FIXED, 48),
            "P-521" => (Algorithm::Es512, &signature::ECDSA_P521_SHA512_FIXED, 66),
            _ => return Err(SkipReason::Unsupported),
        };
    // Uncompressed point, SEC 1 §2.3.3; parsing checks that it is on the curve.
    let mut point = Vec::with_capacity(1 + 2 * width);
    point.push(4);
    for name in ["x", "y"] {
        point.extend_from_slice(&coordinate(jwk, name, width)?);
    }
    Ok((algorithm, parse_public_key(verification, &point)?))
}

/// An Ed25519 key, the only supported kind of RFC 8037 §2.
fn okp(jwk: Value<'_>) -> Result<Form, SkipReason> {
    match text(jwk, "crv")?.ok_or(SkipReason::Member("crv"))? {
        "Ed25519" => {}
        // RFC 8037 §3.2
        "X25519" | "X448" => return Err(SkipReason::Encryption),
        _ => return Err(SkipReason::Unsupported),
    }
    let point = octets(jwk, "x", signature::ED25519_PUBLIC_KEY_LEN)?;
    Ok((Algorithm::EdDsa, parse_public_key(&signature::ED25519, &point)?))
}

fn parse_public_key(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
) -> Result<ParsedPublicKey, SkipReason> {
    ParsedPublicKey::new(algorithm, key).map_err(|_| SkipReason::Invalid)
}

/// A member of the key; `null` counts as absent.
fn member<'d>(jwk: Value<'d>, name: &str) -> Option<Value<'d>> {
    jwk.get(name).filter(|value| !value.is_null())
}

fn text<'d>(jwk: Value<'d>, name: &'static str) -> Result<Option<&'d str>, SkipReason> {
    let Some(value) = member(jwk, name) else { return Ok(None) };
    value.as_str().map(Some).ok_or(SkipReason::Member(name))
}

/// The bytes of a member, without leading zeros.
fn significant_bytes(jwk: Value<'_>, name: &'static str) -> Result<Vec<u8>, SkipReason> {
    let mut bytes = decode(jwk, name)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.drain(..zeros);
    Ok(bytes)
}

/// A number in exactly `width` bytes, with leading zeros (RFC 7518 §6.2.1.2).
fn coordinate(jwk: Value<'_>, name: &'static str, width: usize) -> Result<Vec<u8>, SkipReason> {
    let bytes = significant_bytes(jwk, name)?;
    let zeros = width.checked_sub(bytes.len()).ok_or(SkipReason::Encoding(name))?;
    Ok([vec![0; zeros], bytes].concat())
}

/// Exactly `width` bytes (RFC 8037 §2). They are no number, so no byte may be missing.
fn octets(jwk: Value<'_>, name: &'static str, width: usize) -> Result<Vec<u8>, SkipReason> {
    let bytes = decode(jwk, name)?;
    if bytes.len() == width { Ok(bytes) } else { Err(SkipReason::Encoding(name)) }
}

/// `Base64urlUInt` (RFC 7518 §2): a positive number.
fn number(jwk: Value<'_>, name: &'static str) -> Result<Vec<u8>, SkipReason> {
    let bytes = significant_bytes(jwk, name)?;
    if bytes.is_empty() { Err(SkipReason::Encoding(name)) } else { Ok(bytes) }
}

fn decode(jwk: Value<'_>, name: &'static str) -> Result<Vec<u8>, SkipReason> {
    let text = text(jwk, name)?.ok_or(SkipReason::Member(name))?;
    // The standard alphabet differs in two characters (RFC 4648 §4, §5).
    let url_safe = text.replace('+', "-").replace('/', "_");
    LENIENT.decode(url_safe).map_err(|_| SkipReason::Encoding(name))
}

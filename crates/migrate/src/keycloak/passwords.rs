//! Passwords: Keycloak's hashes as PHC strings.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;

use super::export::Credential;

#[derive(Deserialize)]
struct SecretData {
    value: String,
    salt: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CredentialData {
    hash_iterations: u32,
    algorithm: String,
    #[serde(default)]
    additional_parameters: AdditionalParameters,
}

/// Parameters of Argon2. Each is a list with one text.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AdditionalParameters {
    memory: Vec<String>,
    #[serde(rename = "type")]
    kind: Vec<String>,
    version: Vec<String>,
    parallelism: Vec<String>,
}

/// The hash of a credential as a PHC string.
///
/// # Errors
/// What is not supported or malformed, as a part of a sentence. It has nothing of the hash.
pub(super) fn phc(credential: &Credential) -> Result<String, String> {
    let secret: SecretData = read(credential.secret_data.as_deref(), "secretData")?;
    let data: CredentialData = read(credential.credential_data.as_deref(), "credentialData")?;
    let [salt, digest] = [&secret.salt, &secret.value].map(|text| STANDARD.decode(text));
    let (Ok(salt), Ok(digest)) = (salt, digest) else { return Err("its hash is not base64".into()) };
    let scheme = scheme(&data, digest.len())?;
    Ok(format!("${scheme}${}${}", STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(digest)))
}

fn read<'t, T: Deserialize<'t>>(text: Option<&'t str>, name: &str) -> Result<T, String> {
    let text = text.ok_or_else(|| format!("it has no {name}"))?;
    // The error of the parser could quote the hash.
    serde_json::from_str(text).map_err(|_| format!("its {name} has another form"))
}

fn scheme(data: &CredentialData, length: usize) -> Result<String, String> {
    let iterations = data.hash_iterations;
    let pbkdf2 = |hash: &str| Ok(format!("pbkdf2-{hash}$i={iterations},l={length}"));
    match &*data.algorithm {
        "pbkdf2" => pbkdf2("sha1"),
        "pbkdf2-sha256" => pbkdf2("sha256"),
        "pbkdf2-sha512" => pbkdf2("sha512"),
        "argon2" => argon2(&data.additional_parameters, iterations),
        other => Err(format!("its hash is made with {other:?}, which is not supported")),
    }
}

fn argon2(parameters: &AdditionalParameters, iterations: u32) -> Result<String, String> {
    let first = |list: &[String], name: &str| {
        list.first().cloned().ok_or_else(|| format!("its hash of argon2 has no {name}"))
    };
    let kind = first(&parameters.kind, "type")?;
    if !["d", "i", "id"].contains(&&*kind) {
        return Err(format!("its hash is of an unknown type of argon2, {kind:?}"));
    }
    let version = match &*first(&parameters.version, "version")? {
        "1.0" => 16,
        "1.3" => 19,
        other => return Err(format!("its hash is of an unknown version of argon2, {other:?}")),
    };
    let number = |list: &[String], name: &str| -> Result<u32, String> {
        first(list, name)?.parse().map_err(|_| format!("its hash of argon2 has a {name} that is no number"))
    };
    let memory = number(&parameters.memory, "memory")?;
    let parallelism = number(&parameters.parallelism, "parallelism")?;
    Ok(format!("argon2{kind}$v={version}$m={memory},t={iterations},p={parallelism}"))
}

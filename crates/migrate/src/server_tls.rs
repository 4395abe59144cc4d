//! TLS of a listener: versions and cipher suites as Go programs name them.

use toml::Value;

use crate::input_fault::InputFault;
use crate::settings::{Given, ProgramSettings};

/// Suites of TLS 1.2 that exist here.
const KNOWN: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];
/// Suites of TLS 1.3.
const TLS_1_3: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// Adds the lowest version and the cipher suites to the members of `tls`. Returns from what they came.
pub(crate) fn add_versions(
    settings: &mut ProgramSettings,
    version_flag: &str,
    suites_flag: &str,
    members: &mut Vec<(&'static str, Value)>,
) -> Result<Vec<String>, InputFault> {
    let mut from = Vec::new();
    if let Some(given) = settings.text(version_flag) {
        match &*given.value {
            "VersionTLS12" | "TLS1.2" => {
                members.push(("min_version", "1.2".into()));
                settings.translated(&given);
            }
            "VersionTLS13" | "TLS1.3" => {
                members.push(("min_version", "1.3".into()));
                settings.translated(&given);
            }
            "VersionTLS10" | "VersionTLS11" | "TLS1.0" | "TLS1.1" => {
                settings.different(&given, "TLS 1.2 is the lowest version here");
            }
            _ => return Err(given.fault("a version such as VersionTLS12")),
        }
        from.push(given.origin);
    }
    let suites = settings.list(suites_flag);
    if let Some(first) = suites.first() {
        from.push(first.origin.clone());
        let suites = cipher_suites(settings, &suites);
        members.push(("cipher_suites", suites.into()));
    }
    Ok(from)
}

/// The suites that exist here. Those of TLS 1.3 are always on in Go.
fn cipher_suites(settings: &mut ProgramSettings, given: &[Given]) -> Vec<&'static str> {
    let mut suites = TLS_1_3.to_vec();
    for suite in given {
        // Names of before RFC 7905.
        let name = match &*suite.value {
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => KNOWN[2],
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => KNOWN[5],
            name => name,
        };
        if TLS_1_3.contains(&name) {
            settings.different(suite, "suites of TLS 1.3 are all on, as in Go");
        } else if let Some(known) = KNOWN.into_iter().find(|known| *known == name) {
            suites.push(known);
            settings.translated(suite);
        } else {
            let remedy = "a suite without forward secrecy or authenticated encryption does not exist here";
            settings.no_equal(suite, remedy);
        }
    }
    suites
}

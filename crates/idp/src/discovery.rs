//! Discovery documents: what is there, and nothing else.
//!
//! Owns: the two metadata documents and the paths they stand at. OpenID Connect Discovery 1.0 §4 appends its
//! well-known path to the issuer; RFC 8414 §3.1 inserts its own between host and path. Clients are known to do
//! either with both, so both documents are served in both forms; without an issuer path these coincide.
//! Does not own: the endpoints they name ([`crate::router`]).
//!
//! The documents change only with the configuration, so they are written once, at start-up.

use serde::Serialize;

use crate::{client, grants::GrantType, issuer::Issuer};

/// Path of the token endpoint below the issuer.
pub const TOKEN: &str = "/token";
/// Path of the key set below the issuer.
pub const JWKS: &str = "/jwks";
const OPENID: &str = "/.well-known/openid-configuration";
const OAUTH: &str = "/.well-known/oauth-authorization-server";

/// Where the OpenID document stands, each path once.
pub fn openid_paths(issuer: &Issuer) -> Vec<String> {
    well_known_paths(issuer, OPENID)
}

/// Where the RFC 8414 document stands, each path once.
pub fn oauth_paths(issuer: &Issuer) -> Vec<String> {
    well_known_paths(issuer, OAUTH)
}

fn well_known_paths(issuer: &Issuer, well_known: &str) -> Vec<String> {
    let path = issuer.path();
    let mut paths = vec![format!("{path}{well_known}"), format!("{well_known}{path}")];
    paths.dedup();
    paths
}

/// RFC 8414 §2. Members whose default is wrong for this provider are spelled out.
#[derive(Serialize)]
struct OauthMetadata<'a> {
    issuer: &'a str,
    token_endpoint: String,
    jwks_uri: String,
    /// No endpoint answers with these yet. The standard requires the member and also says that empty ones
    /// are left out; typed clients fail on an absent member, none on an empty one.
    response_types_supported: [&'a str; 0],
    grant_types_supported: [&'a str; GrantType::ALL.len()],
    token_endpoint_auth_methods_supported: [&'a str; client::authenticate::METHODS.len()],
}

/// OpenID Connect Discovery 1.0 §3: the same and what it adds.
#[derive(Serialize)]
struct OpenidMetadata<'a> {
    #[serde(flatten)]
    oauth: OauthMetadata<'a>,
    subject_types_supported: [&'a str; 1],
    /// The algorithms of the published keys. Required by the standard, and what generic verifiers read.
    id_token_signing_alg_values_supported: &'a [&'a str],
    /// Its default is true.
    request_uri_parameter_supported: bool,
}

fn oauth_metadata(issuer: &Issuer) -> OauthMetadata<'_> {
    OauthMetadata {
        issuer: issuer.as_str(),
        token_endpoint: issuer.endpoint(TOKEN),
        jwks_uri: issuer.endpoint(JWKS),
        response_types_supported: [],
        grant_types_supported: GrantType::ALL.map(GrantType::as_str),
        token_endpoint_auth_methods_supported: client::authenticate::METHODS,
    }
}

/// The RFC 8414 document as JSON.
pub fn oauth_document(issuer: &Issuer) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&oauth_metadata(issuer))
}

/// The OpenID document as JSON; `algorithms` are the names (RFC 7518 §3.1) of the published keys.
pub fn openid_document(issuer: &Issuer, algorithms: &[&str]) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&OpenidMetadata {
        oauth: oauth_metadata(issuer),
        subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: algorithms,
        request_uri_parameter_supported: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_appended_and_inserted() {
        let plain = Issuer::parse("https://a").unwrap();
        assert_eq!(openid_paths(&plain), ["/.well-known/openid-configuration"]);
        assert_eq!(oauth_paths(&plain), ["/.well-known/oauth-authorization-server"]);
        let staff = Issuer::parse("https://a/b/c").unwrap();
        assert_eq!(
            openid_paths(&staff),
            ["/b/c/.well-known/openid-configuration", "/.well-known/openid-configuration/b/c"]
        );
        assert_eq!(
            oauth_paths(&staff),
            ["/b/c/.well-known/oauth-authorization-server", "/.well-known/oauth-authorization-server/b/c"]
        );
    }
}

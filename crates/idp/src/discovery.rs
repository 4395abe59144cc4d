//! Discovery documents: what is there, and nothing else.
//!
//! Owns: the two metadata documents, the paths they stand at, and the paths of everything they name. OpenID Connect Discovery
//! 1.0 §4 appends its well-known path to the issuer; RFC 8414 §3.1 inserts its own between host and path. Clients are known to
//! do either with both, so both documents are served in both forms; without an issuer path these coincide.
//! Does not own: the endpoints they name ([`crate::router`]).
//!
//! The documents change only with the configuration, so they are written once, at start-up.

use auth::algorithm::Algorithm;
use auth::token::jws::SigningAlgorithm;
use serde::Serialize;

use crate::{
    authorization::response::ResponseMode,
    client::{self, Registry},
    id_token::READ_AT,
    issuer::Issuer,
    keys::key,
    login::ACR,
    oauth::grant_type::GrantType,
    pages::Pages,
    person,
};

/// Path of the authorization endpoint below the issuer.
pub const AUTHORIZE: &str = "/authorize";
/// Path of the token endpoint below the issuer.
pub const TOKEN: &str = "/token";
/// Path of the key set below the issuer.
pub const JWKS: &str = "/jwks";
/// Path of the userinfo endpoint below the issuer.
pub const USERINFO: &str = "/userinfo";
/// Path of the introspection endpoint below the issuer.
pub const INTROSPECT: &str = "/introspect";
/// Path of the revocation endpoint below the issuer.
pub const REVOKE: &str = "/revoke";
/// Path of the end session endpoint below the issuer.
pub const END_SESSION: &str = "/logout";
/// Path of the endpoint for pushed authorization requests below the issuer.
pub const PUSHED_REQUEST: &str = "/par";
/// Path of the device authorization endpoint below the issuer.
pub const DEVICE_AUTHORIZATION: &str = "/device_authorization";
/// Path of the page where people type the code of a device.
pub const DEVICE: &str = "/device";
/// Where the page of a device is sent to.
pub const DEVICE_DECISION: &str = "/device/decision";
/// Where the login page is sent to.
pub const LOGIN: &str = "/login";
/// Where the consent page is sent to.
pub const CONSENT: &str = "/consent";
/// Where the page of logout is sent to.
pub const LOGOUT_DECISION: &str = "/logout/decision";
/// Path of the account page; its forms are sent below it.
pub const ACCOUNT: &str = "/account";

/// Path where a receiver fetches security events.
pub const EVENTS: &str = "/ssf/poll/{receiver}";

const SIGNALS: &str = "/.well-known/ssf-configuration";
const OPENID: &str = "/.well-known/openid-configuration";
const OAUTH: &str = "/.well-known/oauth-authorization-server";

/// Scopes with a meaning of their own.
const SCOPES: [&str; 7] = ["openid", "profile", "email", "address", "phone", "groups", "offline_access"];

/// Where the OpenID document stands, each path once.
pub fn openid_paths(issuer: &Issuer) -> Vec<String> {
    well_known_paths(issuer, OPENID)
}

/// Where the RFC 8414 document stands, each path once.
pub fn oauth_paths(issuer: &Issuer) -> Vec<String> {
    well_known_paths(issuer, OAUTH)
}

/// Where the document of SSF §7.1 stands, each path once.
pub fn signals_paths(issuer: &Issuer) -> Vec<String> {
    well_known_paths(issuer, SIGNALS)
}

fn well_known_paths(issuer: &Issuer, well_known: &str) -> Vec<String> {
    let path = issuer.path();
    let mut paths = vec![format!("{path}{well_known}"), format!("{well_known}{path}")];
    paths.dedup();
    paths
}

/// What the documents are made from.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) issuer: &'a Issuer,
    /// Those of the published keys.
    pub(crate) algorithms: &'a [SigningAlgorithm],
    pub(crate) pages: &'a Pages,
    pub(crate) clients: &'a Registry,
}

/// RFC 8414 §2. Members whose default is wrong for this provider are spelled out.
#[derive(Serialize)]
struct OauthMetadata<'a> {
    issuer: &'a str,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    introspection_endpoint: String,
    revocation_endpoint: String,
    device_authorization_endpoint: String,
    pushed_authorization_request_endpoint: String,
    require_pushed_authorization_requests: bool,
    scopes_supported: Vec<&'a str>,
    response_types_supported: [&'a str; 1],
    response_modes_supported: [&'a str; ResponseMode::ALL.len()],
    grant_types_supported: Vec<&'a str>,
    token_endpoint_auth_methods_supported: [&'a str; client::METHODS.len()],
    token_endpoint_auth_signing_alg_values_supported: Vec<&'a str>,
    introspection_endpoint_auth_methods_supported: [&'a str; 3],
    /// RFC 9701 §7.
    introspection_signing_alg_values_supported: [&'a str; 1],
    revocation_endpoint_auth_methods_supported: [&'a str; client::METHODS.len()],
    code_challenge_methods_supported: [&'a str; 1],
    authorization_response_iss_parameter_supported: bool,
    ui_locales_supported: Vec<&'a str>,
}

/// OpenID Connect Discovery 1.0 §3: the same and what it adds, and what the logout specifications add.
#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "the standard's")]
struct OpenidMetadata<'a> {
    #[serde(flatten)]
    oauth: OauthMetadata<'a>,
    userinfo_endpoint: String,
    end_session_endpoint: String,
    subject_types_supported: [&'a str; 1],
    id_token_signing_alg_values_supported: Vec<&'a str>,
    userinfo_signing_alg_values_supported: Vec<&'a str>,
    acr_values_supported: [&'a str; 1],
    claim_types_supported: [&'a str; 1],
    claims_supported: Vec<&'a str>,
    claims_parameter_supported: bool,
    request_parameter_supported: bool,
    /// Its default is true.
    request_uri_parameter_supported: bool,
    backchannel_logout_supported: bool,
    backchannel_logout_session_supported: bool,
}

impl<'a> Facts<'a> {
    /// The RFC 8414 document as JSON.
    pub(crate) fn oauth_document(self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&self.oauth())
    }

    /// The OpenID document as JSON.
    pub(crate) fn openid_document(self) -> serde_json::Result<Vec<u8>> {
        let own = ["iss", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "sid", READ_AT];
        serde_json::to_vec(&OpenidMetadata {
            oauth: self.oauth(),
            userinfo_endpoint: self.issuer.endpoint(USERINFO),
            end_session_endpoint: self.issuer.endpoint(END_SESSION),
            subject_types_supported: ["public"],
            id_token_signing_alg_values_supported: self.names(),
            userinfo_signing_alg_values_supported: self.names(),
            acr_values_supported: [ACR],
            claim_types_supported: ["normal"],
            claims_supported: person::claim_names().chain(own).collect(),
            claims_parameter_supported: true,
            request_parameter_supported: false,
            request_uri_parameter_supported: false,
            backchannel_logout_supported: true,
            backchannel_logout_session_supported: true,
        })
    }

    fn names(self) -> Vec<&'a str> {
        self.algorithms.iter().map(|&algorithm| key::name(algorithm)).collect()
    }

    fn oauth(self) -> OauthMetadata<'a> {
        let issuer = self.issuer;
        let methods = client::METHODS;
        // the password grant is named where somebody has it: it is no offer to others
        let passwords = self.clients.with_passwords().next().is_some();
        let grants = GrantType::ALL.into_iter().filter(|grant| passwords || *grant != GrantType::Password);
        OauthMetadata {
            issuer: issuer.as_str(),
            authorization_endpoint: issuer.endpoint(AUTHORIZE),
            token_endpoint: issuer.endpoint(TOKEN),
            jwks_uri: issuer.endpoint(JWKS),
            introspection_endpoint: issuer.endpoint(INTROSPECT),
            revocation_endpoint: issuer.endpoint(REVOKE),
            device_authorization_endpoint: issuer.endpoint(DEVICE_AUTHORIZATION),
            pushed_authorization_request_endpoint: issuer.endpoint(PUSHED_REQUEST),
            require_pushed_authorization_requests: false,
            scopes_supported: SCOPES.to_vec(),
            response_types_supported: ["code"],
            response_modes_supported: ResponseMode::ALL.map(ResponseMode::as_str),
            grant_types_supported: grants.map(GrantType::as_str).collect(),
            token_endpoint_auth_methods_supported: methods,
            token_endpoint_auth_signing_alg_values_supported: Algorithm::ALL.map(Algorithm::as_str).to_vec(),
            introspection_endpoint_auth_methods_supported: [methods[0], methods[1], methods[2]],
            introspection_signing_alg_values_supported: [key::name(
                self.clients.defaults().access_token_algorithm,
            )],
            revocation_endpoint_auth_methods_supported: methods,
            code_challenge_methods_supported: ["S256"],
            authorization_response_iss_parameter_supported: true,
            ui_locales_supported: self.pages.languages().tags().collect(),
        }
    }
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

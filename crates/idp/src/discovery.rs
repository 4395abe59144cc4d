//! Discovery: the metadata documents and their well-known paths.
//!
//! Owns: the metadata documents, the paths under which they are served, and the addresses they
//! list. OpenID Connect Discovery 1.0 §4 appends its well-known path to the issuer; RFC 8414 §3.1
//! inserts its own between host and path. Clients apply either rule to either document, so both
//! documents are served under both forms. Without an issuer path the forms coincide.
//!
//! Does not own: the endpoints they list ([`crate::router`]).
//!
//! The documents depend only on the configuration, so they are serialized once, at start-up.

use auth::algorithm::Algorithm;
use auth::token::jws::SigningAlgorithm;
use serde::Serialize;

use crate::authorization::request::READ_AT;
use crate::authorization::response::ResponseMode;
use crate::claim_mapping::Mapping;
use crate::claims;
use crate::client::{self, Registry};
use crate::issuer::Issuer;
use crate::keys::key;
use crate::login::ACR;
use crate::oauth::grant_type::GrantType;
use crate::pages::Pages;
use crate::paths::{
    AUTHORIZE, DEVICE_AUTHORIZATION, END_SESSION, INTROSPECT, JWKS, PUSHED_REQUEST, REVOKE, TOKEN, USERINFO,
};
use crate::subject::SubjectType;

const SSF_WELL_KNOWN: &str = "/.well-known/ssf-configuration";
const OPENID_WELL_KNOWN: &str = "/.well-known/openid-configuration";
const OAUTH_WELL_KNOWN: &str = "/.well-known/oauth-authorization-server";

/// Scopes that have a defined effect.
const SCOPES: [&str; 7] = ["openid", "profile", "email", "address", "phone", "groups", "offline_access"];

/// Paths of the OpenID document, without duplicates.
pub fn openid_paths(issuer: &Issuer) -> Vec<String> {
    well_known_paths(issuer, OPENID_WELL_KNOWN)
}

/// Paths of the RFC 8414 document, without duplicates.
pub fn oauth_paths(issuer: &Issuer) -> Vec<String> {
    well_known_paths(issuer, OAUTH_WELL_KNOWN)
}

/// Paths of the SSF §7.1 document, without duplicates.
pub fn signals_paths(issuer: &Issuer) -> Vec<String> {
    well_known_paths(issuer, SSF_WELL_KNOWN)
}

fn well_known_paths(issuer: &Issuer, well_known: &str) -> Vec<String> {
    let path = issuer.path();
    let mut paths = vec![format!("{path}{well_known}"), format!("{well_known}{path}")];
    paths.dedup();
    paths
}

/// Input of the documents.
#[derive(Clone, Copy)]
pub(crate) struct MetadataInput<'a> {
    pub(crate) issuer: &'a Issuer,
    /// Algorithms of the published keys.
    pub(crate) algorithms: &'a [SigningAlgorithm],
    pub(crate) pages: &'a Pages,
    pub(crate) clients: &'a Registry,
}

/// Metadata of RFC 8414 §2. Includes members whose default is wrong for this provider.
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
    token_endpoint_auth_methods_supported: [&'a str; client::AUTH_METHODS.len()],
    token_endpoint_auth_signing_alg_values_supported: Vec<&'a str>,
    introspection_endpoint_auth_methods_supported: [&'a str; 3],
    /// Member of RFC 9701 §7.
    introspection_signing_alg_values_supported: [&'a str; 1],
    revocation_endpoint_auth_methods_supported: [&'a str; client::AUTH_METHODS.len()],
    code_challenge_methods_supported: [&'a str; 1],
    authorization_response_iss_parameter_supported: bool,
    ui_locales_supported: Vec<&'a str>,
}

/// Metadata of OpenID Connect Discovery 1.0 §3, with members of the logout specifications.
#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "the standard's")]
struct OpenidMetadata<'a> {
    #[serde(flatten)]
    oauth: OauthMetadata<'a>,
    userinfo_endpoint: String,
    end_session_endpoint: String,
    subject_types_supported: [&'a str; 2],
    id_token_signing_alg_values_supported: Vec<&'a str>,
    userinfo_signing_alg_values_supported: Vec<&'a str>,
    acr_values_supported: [&'a str; 1],
    claim_types_supported: [&'a str; 1],
    claims_supported: Vec<&'a str>,
    claims_parameter_supported: bool,
    request_parameter_supported: bool,
    /// Sent because its default is true.
    request_uri_parameter_supported: bool,
    backchannel_logout_supported: bool,
    backchannel_logout_session_supported: bool,
}

impl<'a> MetadataInput<'a> {
    /// The RFC 8414 document as JSON.
    pub(crate) fn oauth_document(self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&self.oauth())
    }

    /// The OpenID document as JSON.
    pub(crate) fn openid_document(self) -> serde_json::Result<Vec<u8>> {
        let own = ["iss", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "sid", READ_AT];
        let mut supported: Vec<&str> = claims::claim_names().chain(own).collect();
        supported.extend(self.added_claims());
        serde_json::to_vec(&OpenidMetadata {
            oauth: self.oauth(),
            userinfo_endpoint: self.issuer.endpoint(USERINFO),
            end_session_endpoint: self.issuer.endpoint(END_SESSION),
            subject_types_supported: SubjectType::WIRE_NAMES,
            id_token_signing_alg_values_supported: self.algorithm_names(),
            userinfo_signing_alg_values_supported: self.algorithm_names(),
            acr_values_supported: [ACR],
            claim_types_supported: ["normal"],
            claims_supported: supported,
            claims_parameter_supported: true,
            request_parameter_supported: false,
            request_uri_parameter_supported: false,
            backchannel_logout_supported: true,
            backchannel_logout_session_supported: true,
        })
    }

    /// Claims that the configuration adds for all clients.
    fn added_claims(self) -> impl Iterator<Item = &'a str> {
        let mappings = self.clients.defaults().mappings.iter();
        // A claim that replaces the groups is already among the standard ones.
        mappings.filter_map(Mapping::top_level_name).filter(|name| !claims::is_reserved_claim(name))
    }

    /// Scopes with a defined effect, those of added claims included.
    fn scopes(self) -> Vec<&'a str> {
        let mut scopes = SCOPES.to_vec();
        for scope in self.clients.defaults().mappings.iter().flat_map(|mapping| mapping.scopes().iter()) {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        scopes
    }

    fn algorithm_names(self) -> Vec<&'a str> {
        self.algorithms.iter().map(|&algorithm| key::name(algorithm)).collect()
    }

    fn oauth(self) -> OauthMetadata<'a> {
        let issuer = self.issuer;
        let methods = client::AUTH_METHODS;
        // The password grant is listed only if some client may use it.
        let passwords = self.clients.with_password_grant().next().is_some();
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
            scopes_supported: self.scopes(),
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

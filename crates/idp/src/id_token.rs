//! ID tokens (OpenID Connect Core 1.0 §2): tell a client who logged in and how.
//!
//! Owns: the claims, `at_hash`, and reading an ID token that returns as a hint. Does not own: the
//! signature ([`crate::keys`]).

use auth::json::{Number, Value};
use auth::time::Timestamp;
use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::{
    claim_mapping::ClaimTarget,
    client::Client,
    keys::SigningAlgorithm,
    oauth::{error::OAuthFault, scope::ScopeSet},
    person::{ClaimSelection, Person},
    provider::Provider,
    secrets::PairwiseKind,
    subject,
};

/// The `typ` of the JOSE header; `JWT` is customary for ID tokens.
const TYP: &str = "JWT";

/// How a user authenticated, and which claims the client requested. Stored with the token family.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Authentication {
    /// `auth_time`, in seconds since 1970.
    pub at: u64,
    /// `acr`: authentication context class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acr: Option<String>,
    /// `amr`: authentication methods (RFC 8176).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub amr: Vec<String>,
    /// Claims requested by name for ID tokens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub id_token: Vec<String>,
    /// Claims requested by name for userinfo.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub userinfo: Vec<String>,
    /// Whether ID tokens carry `read_at`. It defaults to true for families stored before clients
    /// could request it: their clients may be gateways that depend on it, and other clients ignore
    /// it.
    #[serde(default = "default_read_at")]
    pub read_at: bool,
    /// Whether the authorization request had no `redirect_uri`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub redirect_omitted: bool,
}

fn default_read_at() -> bool {
    true
}

impl Authentication {
    /// Parses the details of a family; falls back to the default.
    pub fn read(details: &str) -> Self {
        serde_json::from_str(details).unwrap_or_default()
    }

    /// Selects the claims of the user for tokens of the client with these scopes.
    pub fn claim_selection<'a>(&'a self, client: &'a Client, scopes: &'a ScopeSet) -> ClaimSelection<'a> {
        ClaimSelection { scopes, names: &self.id_token, mappings: &client.mappings }
    }

    /// Serializes for the details of a family.
    pub fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: String,
    aud: &'a str,
    iat: u64,
    exp: u64,
    auth_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acr: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    amr: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<String>,
    at_hash: String,
    /// `read_at` as in access tokens, if the client requested it: gateways use it to match
    /// revocations.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_at: Option<u64>,
    /// With `read_at`, if the subject is pairwise: see [`subject::sealed_tags`].
    #[serde(skip_serializing_if = "Option::is_none")]
    revocation_tags: Option<String>,
    #[serde(flatten)]
    person: Map<String, serde_json::Value>,
}

/// Input of [`mint`]: one login at one client.
#[derive(Debug, Clone, Copy)]
pub struct Login<'a> {
    /// The client that receives the token.
    pub client: &'a Client,
    /// The user who logged in.
    pub person: &'a Person,
    /// How the user authenticated.
    pub authentication: &'a Authentication,
    /// The granted scopes.
    pub scopes: &'a ScopeSet,
    /// The session of the login.
    pub sid: Option<&'a str>,
    /// The `nonce` of the authorization request.
    pub nonce: Option<&'a str>,
    /// The access token issued with it, for `at_hash`.
    pub access_token: &'a str,
    /// When client and account were read, in log time.
    pub read_at: Timestamp,
}

/// Signs an ID token.
///
/// # Errors
/// [`OAuthFault`] when the signature fails.
pub fn mint(provider: &Provider, login: &Login<'_>) -> Result<String, OAuthFault> {
    let algorithm = login.client.id_token_algorithm;
    let includes_claims = login.client.claims_in_id_token;
    let none = ScopeSet::default();
    let scopes = if includes_claims { login.scopes } else { &none };
    let iat = login.person.issued_at(provider.now());
    let read_at = || login.read_at.as_millis();
    let names = &login.authentication.id_token;
    let selection = ClaimSelection { scopes, names, mappings: &login.client.mappings };
    let mut person = login.person.claims(selection);
    // These claims do not depend on `claims_in_id_token`: each is configured for its tokens.
    let selection = ClaimSelection { scopes: login.scopes, ..selection };
    login.person.add_mapped_claims(selection, ClaimTarget::Id, &mut person);
    let revocation_tags = if login.authentication.read_at && login.client.sector.is_some() {
        Some(provider.seal_tags(login.person.id(), login.client.id(), login.sid)?)
    } else {
        None
    };
    let claims = Claims {
        iss: provider.issuer().as_str(),
        sub: login.client.subject(provider.secrets(), login.person.id()),
        aud: login.client.id(),
        iat,
        exp: iat.saturating_add(provider.lifetimes().id_token.as_secs()),
        auth_time: login.authentication.at,
        nonce: login.nonce,
        acr: login.authentication.acr.as_deref(),
        amr: &login.authentication.amr,
        sid: login.sid.map(|sid| login.client.sid(provider.secrets(), sid)),
        at_hash: half_hash(algorithm, login.access_token),
        read_at: login.authentication.read_at.then(read_at),
        revocation_tags,
        person,
    };
    provider.sign(algorithm, TYP, &claims)
}

/// Left half of the digest that belongs to the algorithm (Core §3.1.3.6); Ed25519 uses SHA-512.
fn half_hash(algorithm: SigningAlgorithm, text: &str) -> String {
    let with = match algorithm {
        SigningAlgorithm::Es256 | SigningAlgorithm::Rs256 => &digest::SHA256,
        SigningAlgorithm::EdDsa => &digest::SHA512,
    };
    let whole = digest::digest(with, text.as_bytes());
    URL_SAFE_NO_PAD.encode(&whole.as_ref()[..with.output_len() / 2])
}

/// Claims of an ID token that returned as a hint (`id_token_hint`). It may have expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Id of the user.
    pub user_id: String,
    /// The client it was issued to.
    pub client_id: String,
    /// Id of the session it was issued in.
    pub sid: Option<String>,
    /// When it was issued.
    pub issued_at: Timestamp,
}

/// Reads a hint. `None`: it is not an ID token signed with a key that is still in the key ring.
pub fn read_hint(provider: &Provider, text: &str) -> Option<Hint> {
    provider.keys().verify(text, |signed| {
        let claims = signed.claims;
        let text = |name| claims.get(name).and_then(Value::as_str);
        let ours = signed.typ == Some(TYP) && text("iss") == Some(provider.issuer().as_str());
        let Number::Unsigned(issued_at) = claims.get("iat")?.as_number()? else { return None };
        // A logout token has the same issuer; only ID tokens have `auth_time` and no `events`.
        let id_token = claims.get("auth_time").is_some() && claims.get("events").is_none();
        (ours && id_token).then_some(())?;
        Some(Hint {
            user_id: subject::id_of(provider.secrets(), PairwiseKind::User, text("sub")?),
            client_id: text("aud")?.to_owned(),
            sid: text("sid").map(|sid| subject::id_of(provider.secrets(), PairwiseKind::Session, sid)),
            issued_at: Timestamp::from_secs(issued_at),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_an_access_token_is_that_of_the_standard() {
        // Access token and `at_hash` of OpenID Connect Core 1.0, appendices A.3 and A.4 (RS256).
        let token = "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y";
        assert_eq!(half_hash(SigningAlgorithm::Rs256, token), "77QmUPtjPfzWtF2AnpK9RQ");
        assert_eq!(half_hash(SigningAlgorithm::EdDsa, token).len(), 43);
    }

    #[test]
    fn a_family_of_before_asks_when_it_was_read() {
        let before = r#"{"at":7,"acr":"1","amr":["pwd"],"id_token":["name"]}"#;
        let read = Authentication::read(before);
        assert!(read.read_at && read.at == 7 && read.id_token == ["name"], "{read:?}");
    }

    #[test]
    fn what_a_family_remembers_is_read_back() {
        let authentication = Authentication {
            at: 7,
            acr: Some("1".into()),
            amr: vec!["pwd".into()],
            id_token: vec!["name".into()],
            userinfo: vec![],
            read_at: false,
            redirect_omitted: true,
        };
        assert_eq!(Authentication::read(&authentication.write()), authentication);
        let timed = Authentication { read_at: true, ..authentication };
        assert_eq!(Authentication::read(&timed.write()), timed);
        assert_eq!(Authentication::read(""), Authentication::default());
    }
}

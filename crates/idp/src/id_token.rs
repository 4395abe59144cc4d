//! ID tokens (OpenID Connect Core 1.0 §2): what a client is told about who logged in, and how.
//!
//! Owns: the claims, `at_hash`, and the reading of one that comes back as a hint. Does not own: the signature
//! ([`crate::keys`]).

use auth::json::{Number, Value};
use auth::time::Timestamp;
use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::{
    client::Client,
    keys::SigningAlgorithm,
    oauth::{error::OAuthFault, scope::ScopeSet},
    person::{Person, Told},
    provider::Provider,
};

/// The `typ` of the header; what everybody sends.
const TYP: &str = "JWT";

/// What clients ask for by name (Core §5.5) that go by the time of the log.
pub(crate) const READ_AT: &str = "read_at";

/// How a person proved who they are, and what the client asked to hear of it: what a family remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Authentication {
    /// `auth_time`, in seconds.
    pub at: u64,
    /// `acr`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acr: Option<String>,
    /// `amr` (RFC 8176).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub amr: Vec<String>,
    /// Claims asked for by name, for ID tokens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub id_token: Vec<String>,
    /// Claims asked for by name, for userinfo.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub userinfo: Vec<String>,
    /// Whether ID tokens say when what they tell was read. Families that were granted before anybody could ask for it do not say; their clients
    /// may be gateways that go by it, and others do not mind.
    #[serde(default = "asked_before")]
    pub read_at: bool,
    /// Whether the authorization request left its redirect URI out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub redirect_omitted: bool,
}

fn asked_before() -> bool {
    true
}

impl Authentication {
    /// From the details of a family.
    pub fn read(details: &str) -> Self {
        serde_json::from_str(details).unwrap_or_default()
    }

    /// What tokens tell of the person, with these scopes.
    pub fn told<'a>(&'a self, scopes: &'a ScopeSet) -> Told<'a> {
        Told { scopes, names: &self.id_token }
    }

    /// For the details of a family.
    pub fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
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
    sid: Option<&'a str>,
    at_hash: String,
    /// As in access tokens, for those who asked for it: gateways that log people in go by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_at: Option<u64>,
    #[serde(flatten)]
    person: Map<String, serde_json::Value>,
}

/// What an ID token tells of.
#[derive(Debug, Clone, Copy)]
pub struct Login<'a> {
    /// To whom it is told.
    pub client: &'a Client,
    /// Who logged in.
    pub person: &'a Person,
    /// How.
    pub authentication: &'a Authentication,
    /// What was granted.
    pub scopes: &'a ScopeSet,
    /// The session.
    pub sid: Option<&'a str>,
    /// Of the authorization request.
    pub nonce: Option<&'a str>,
    /// The access token that it comes with.
    pub access_token: &'a str,
    /// When what was granted was read, client and person, in the time of the log.
    pub read_at: Timestamp,
}

/// Signs an ID token.
pub fn mint(provider: &Provider, login: &Login<'_>) -> Result<String, OAuthFault> {
    let algorithm = login.client.id_token_algorithm;
    let told = login.client.claims_in_id_token;
    let none = ScopeSet::default();
    let scopes = if told { login.scopes } else { &none };
    let iat = login.person.issued_at(provider.now());
    let read_at = || login.read_at.as_millis();
    let claims = Claims {
        iss: provider.issuer().as_str(),
        sub: login.person.subject(),
        aud: login.client.id(),
        iat,
        exp: iat.saturating_add(provider.lifetimes().id_token.as_secs()),
        auth_time: login.authentication.at,
        nonce: login.nonce,
        acr: login.authentication.acr.as_deref(),
        amr: &login.authentication.amr,
        sid: login.sid,
        at_hash: half_hash(algorithm, login.access_token),
        read_at: login.authentication.read_at.then(read_at),
        person: login.person.claims(Told { scopes, names: &login.authentication.id_token }),
    };
    provider.sign(algorithm, TYP, &claims)
}

/// The left half of the digest that goes with the algorithm (Core §3.1.3.6); Ed25519 uses SHA-512.
fn half_hash(algorithm: SigningAlgorithm, text: &str) -> String {
    let with = match algorithm {
        SigningAlgorithm::Es256 | SigningAlgorithm::Rs256 => &digest::SHA256,
        SigningAlgorithm::EdDsa => &digest::SHA512,
    };
    let whole = digest::digest(with, text.as_bytes());
    URL_SAFE_NO_PAD.encode(&whole.as_ref()[..with.output_len() / 2])
}

/// What an ID token of ours says that came back as a hint. It may have expired long ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Who is meant.
    pub subject: String,
    /// The client it was made for.
    pub client_id: String,
    /// The session it was made in.
    pub sid: Option<String>,
    /// When it was made.
    pub issued_at: Timestamp,
}

/// Reads a hint; `None`: it is no ID token that we signed with a key we still know.
pub fn read_hint(provider: &Provider, text: &str) -> Option<Hint> {
    provider.keys().opened(text, |signed| {
        let claims = signed.claims;
        let text = |name| claims.get(name).and_then(Value::as_str);
        let ours = signed.typ == Some(TYP) && text("iss") == Some(provider.issuer().as_str());
        let Number::Unsigned(issued_at) = claims.get("iat")?.as_number()? else { return None };
        // a logout token has the same issuer and another type; only ID tokens carry this
        let id_token = claims.get("auth_time").is_some() && claims.get("events").is_none();
        (ours && id_token).then_some(())?;
        Some(Hint {
            subject: text("sub")?.to_owned(),
            client_id: text("aud")?.to_owned(),
            sid: text("sid").map(str::to_owned),
            issued_at: Timestamp::from_secs(issued_at),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_an_access_token_is_that_of_the_standard() {
        // The access token and at_hash of OpenID Connect Core 1.0, appendix A.3 and A.4 (RS256).
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
        let asked = Authentication { read_at: true, ..authentication };
        assert_eq!(Authentication::read(&asked.write()), asked);
        assert_eq!(Authentication::read(""), Authentication::default());
    }
}

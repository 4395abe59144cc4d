//! Login provider, as its client sees it (relying party).
//!
//! Owns: its endpoints, found from its metadata; exchanging a code and a refresh token; validating
//! its statements about a user; revoking its tokens and ending its session. Does not own: sessions,
//! browsers.
//!
//! A logout token must have the algorithm of the client's ID tokens (OpenID Connect Back-Channel
//! Logout 1.0 section 2.6). Only ID tokens show which one that is: until this process has seen one,
//! any configured algorithm is accepted.
//!
//! The metadata of an OpenID provider are fetched with its keys, and as often ([`KeyStore`]): a moved
//! endpoint is used without a restart. Those of `OpenShift` are fetched when they are first needed,
//! and again after an hour. While that fails, the last valid metadata stay in use.

mod client_proof;
pub(crate) mod messages;
mod metadata;
pub(crate) mod provider_fault;
mod tokens;
mod users;

use std::sync::Arc;
use std::time::Duration;

use auth::algorithm::AlgorithmSet;
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use credentials::authenticate::{IssuerMetadata, KeyStore};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_engine::clock::Clock;
use http_engine::config::ClientCredential;
use http_engine::http_client::{HttpClient, HttpResponse, SecretMethod, form_encoded};
use http_engine::url::Url;
use outage::{Outage, RECOVERY_PERIOD};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::config::{LoginKind, LoginProvider};
use crate::login_state::{AccountChoice, AccountRequest, AuthorizationRequest};
use crate::provider::client_proof::assertion_audience;
use crate::provider::messages::{
    bearer, binding, call_fault, encoded, invalid_answer, with_query, with_read_at,
};
use crate::provider::provider_fault::ProviderFault;

/// Metadata of `OpenShift` older than this are fetched again.
const METADATA_AGE: Duration = Duration::from_hours(1);
/// Pause after a failed fetch of metadata.
const METADATA_PAUSE: Duration = Duration::from_secs(1);
/// Claims about a token, not about its user.
const TOKEN_CLAIMS: [&str; 16] = [
    "iss",
    "aud",
    "exp",
    "iat",
    "nbf",
    "jti",
    "nonce",
    "at_hash",
    "c_hash",
    "s_hash",
    "auth_time",
    "acr",
    "amr",
    "typ",
    "session_state",
    "read_at",
];
/// Why a session ends when its provider refreshes it with an ID token of another subject.
const OTHER_SUBJECT: &str = "the answer is about another user than before";
/// Path of the user of a token on `OpenShift`.
const USER_PATH: &str = "/apis/user.openshift.io/v1/users/~";
/// Path at which an account with the permission deletes any token.
const ALL_TOKENS: &str = "/apis/oauth.openshift.io/v1/oauthaccesstokens/";
/// Path at which a token's user deletes it.
const OWN_TOKENS: &str = "/apis/oauth.openshift.io/v1/useroauthaccesstokens/";

/// The metadata that a provider publishes (OpenID Connect Discovery 1.0 §3, RFC 8414 §2).
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) issuer: String,
    pub(crate) authorization: Url,
    pub(crate) token: Url,
    pub(crate) userinfo: Option<Url>,
    pub(crate) end_session: Option<Url>,
    pub(crate) revocation: Option<Url>,
    /// Whether it sends `iss` in every authorization response (RFC 9207 §3).
    pub(crate) sends_iss: bool,
    /// Whether its ID tokens contain the log time `read_at` on request, as those of Postern's own
    /// provider do.
    pub(crate) supports_read_at: bool,
    /// Where it takes a client's secret.
    pub(crate) secret_method: SecretMethod,
    /// Whether it lets users choose an account (`prompt=select_account`).
    pub(crate) selects_account: bool,
}

/// The provider's answer about a user.
pub(crate) struct ProviderTokens {
    pub(crate) subject: String,
    pub(crate) sid: Option<String>,
    /// The claims, as a JSON object.
    pub(crate) claims: String,
    /// The answer of the userinfo endpoint, if it was called: another JSON object.
    pub(crate) more: Option<String>,
    /// Whether the provider confirmed the user now. Otherwise it issued tokens and then failed to
    /// identify their user.
    pub(crate) confirmed: bool,
    /// Whether the answer contains claims about the user, and not only confirms the grant.
    pub(crate) has_claims: bool,
    /// Lifetime of the access token, if the provider sent it.
    pub(crate) expires_in: Option<Duration>,
    pub(crate) access_token: Zeroizing<String>,
    pub(crate) refresh_token: Option<Zeroizing<String>>,
    pub(crate) id_token: Option<Zeroizing<String>>,
}

/// A provider with its HTTP client, keys and metadata.
pub(crate) struct LoginProviderClient {
    pub(crate) config: LoginProvider,
    /// Distinguishes it from another provider that had its name before.
    pub(crate) binding: String,
    /// Limit of concurrent code exchanges. It reserves the remaining requests for sessions, whose
    /// clients are authenticated.
    login_limit: Semaphore,
    outbound: HttpClient,
    keys: Option<Arc<KeyStore>>,
    clock: Arc<dyn Clock>,
    /// The metadata of an OpenID provider, with the document that they were last read from.
    published: Mutex<Option<PublishedMetadata>>,
    /// The metadata of `OpenShift`.
    metadata: tokio::sync::Mutex<CachedMetadata>,
    /// Algorithms that its ID tokens for us were signed with.
    id_token_algorithms: Mutex<AlgorithmSet>,
    outage: Arc<Outage>,
}

/// The kind of a token that a provider signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An OpenID Connect ID token.
    Id,
    /// A back-channel logout token.
    Logout,
}

/// Metadata that were read from a document of the key store.
struct PublishedMetadata {
    /// The last document, even if it cannot be used.
    document: Arc<IssuerMetadata>,
    good: Arc<Metadata>,
}

#[derive(Clone, Default)]
struct CachedMetadata {
    good: Option<(Arc<Metadata>, Instant)>,
    failed: Option<Instant>,
}

/// The response of a token endpoint.
struct Tokens {
    access_token: Zeroizing<String>,
    expires_in: Option<Duration>,
    refresh_token: Option<Zeroizing<String>>,
    id_token: Option<Zeroizing<String>>,
}

fn outage_of(name: &str) -> Arc<Outage> {
    let outage = Outage::new(format!("login provider {name}")).with_recovery_period(RECOVERY_PERIOD);
    Arc::new(outage.with_effect("logins fail; sessions last until their next renewal"))
}

impl LoginProviderClient {
    pub(crate) fn new(
        config: &LoginProvider,
        keys: Option<Arc<KeyStore>>,
        clock: Arc<dyn Clock>,
        control: Handle,
        earlier: Option<&Self>,
    ) -> Self {
        let outbound = HttpClient::new(&config.server, control);
        let binding = binding(config);
        let outage = earlier.map_or_else(|| outage_of(&config.name), |e| e.outage.clone());
        // Metadata that was valid before a reload stays the last valid one.
        let earlier = earlier.filter(|e| e.binding == binding);
        let held = earlier.and_then(|e| e.metadata.try_lock().ok().map(|held| held.clone()));
        if let Some((metadata, _)) = held.as_ref().and_then(|held| held.good.as_ref()) {
            outbound.set_secret_method(metadata.secret_method);
        }
        let signs_with = earlier.map_or(AlgorithmSet::EMPTY, |e| *e.id_token_algorithms.lock());
        Self {
            config: config.clone(),
            binding,
            login_limit: Semaphore::new((config.server.max_requests / 2).max(1)),
            outbound,
            keys,
            clock,
            published: Mutex::default(),
            metadata: tokio::sync::Mutex::new(held.unwrap_or_default()),
            id_token_algorithms: Mutex::new(signs_with),
            outage,
        }
    }

    /// The address for the browser to log in (RFC 6749 §4.1.1, with PKCE and a nonce).
    pub(crate) async fn authorization_url(
        &self,
        question: &AuthorizationRequest,
        redirect_uri: &str,
        account: AccountRequest<'_>,
    ) -> Result<String, ProviderFault> {
        let metadata = self.metadata().await?;
        let challenge = question.proofs.challenge();
        let mut parameters = vec![
            ("response_type", "code"),
            ("client_id", &self.config.client_id),
            ("redirect_uri", redirect_uri),
            ("scope", &self.config.scopes),
            ("state", &question.state),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        if matches!(self.config.kind, LoginKind::OpenId { .. }) {
            parameters.push(("nonce", &question.proofs.nonce));
        }
        if self.config.form_post {
            parameters.push(("response_mode", "form_post"));
        }
        let configured = || self.config.parameters.iter().map(|(name, value)| (&**name, &**value));
        let claims = if metadata.supports_read_at {
            with_read_at(configured().find(|(name, _)| *name == "claims").map(|(_, value)| value))
        } else {
            None
        };
        parameters.extend(configured().filter(|(name, _)| *name != "claims" || claims.is_none()));
        parameters.extend(claims.as_deref().map(|claims| ("claims", claims)));
        // Each provider of OpenID Connect knows `login` (Core 1.0 §15.1), but not `select_account`.
        let is_configured = parameters.iter().any(|(name, _)| *name == "prompt");
        if account.choice == AccountChoice::User
            && !is_configured
            && matches!(self.config.kind, LoginKind::OpenId { .. })
        {
            let prompt = if metadata.selects_account { "select_account" } else { "login" };
            parameters.push(("prompt", prompt));
        }
        if !parameters.iter().any(|(name, _)| *name == "login_hint") {
            parameters.extend(account.hint.map(|hint| ("login_hint", hint)));
        }
        Ok(with_query(&metadata.authorization, &parameters))
    }

    /// Whether this is the provider's own name, the `iss` of its ID tokens.
    pub(crate) fn has_issuer(&self, text: &str) -> bool {
        matches!(&self.config.kind, LoginKind::OpenId { issuer, .. } if **issuer == *text)
    }

    pub(crate) fn is_openshift(&self) -> bool {
        matches!(self.config.kind, LoginKind::OpenShift { .. })
    }

    /// The address for the browser to log out at the provider too (OpenID Connect RP-Initiated
    /// Logout 1.0 §2); `None`: there is none.
    pub(crate) async fn end_session_url(&self, id_token: Option<&str>, back: &str) -> Option<String> {
        let metadata = self.metadata().await.ok()?;
        let url = metadata.end_session.as_ref().filter(|_| self.config.ends_provider_session)?;
        let mut parameters = vec![("client_id", &*self.config.client_id), ("post_logout_redirect_uri", back)];
        parameters.extend(id_token.map(|token| ("id_token_hint", token)));
        Some(with_query(url, &parameters))
    }

    async fn get(
        &self,
        context: &'static str,
        url: &Url,
        token: Option<&str>,
    ) -> Result<HttpResponse, ProviderFault> {
        let mut request = Request::get(url.to_string());
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, bearer(token)?);
        }
        let request =
            request.body(Bytes::new()).map_err(|_| invalid_answer(context, "the request URL is invalid"))?;
        self.outbound.ask_anonymously(request).await.map_err(call_fault(context))
    }

    async fn post(
        &self,
        context: &'static str,
        url: &Url,
        form: &[(&str, &str)],
    ) -> Result<HttpResponse, ProviderFault> {
        let mut body = encoded(form);
        if *self.outbound.credential() == ClientCredential::None {
            // A client without a secret identifies itself in the form (RFC 6749 §3.2.1).
            body.push_str("&client_id=");
            body.push_str(&form_encoded(&self.config.client_id));
        }
        if let Some(key) = &self.config.client_key {
            let metadata = self.metadata().await?;
            let recipient = assertion_audience(&metadata, url);
            let (client, now) = (&self.config.client_id, self.clock.now().wall);
            let parameters = key.parameters(client, (&metadata.issuer, &recipient), now);
            let parameters =
                parameters.ok_or_else(|| invalid_answer(context, "the client key cannot sign"))?;
            for (name, value) in &parameters {
                body.push('&');
                body.push_str(name);
                body.push('=');
                body.push_str(&form_encoded(value));
            }
        }
        let request = Request::post(url.to_string())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Bytes::from(body.into_bytes()))
            .map_err(|_| invalid_answer(context, "the request URL is invalid"))?;
        self.outbound.ask(request).await.map_err(call_fault(context))
    }
}

/// Interprets the status of a token deletion.
fn deletion_result(context: &'static str, status: StatusCode) -> Result<(), ProviderFault> {
    match status {
        // 401 and 404: the token was deleted before.
        StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND => Ok(()),
        status if status.is_success() => Ok(()),
        StatusCode::FORBIDDEN => {
            let why = "neither the token's scopes nor our account's rights allow it; let the account `delete` \
                       `oauthaccesstokens`";
            Err(invalid_answer(context, why))
        }
        status => Err(invalid_answer(context, &format!("it answered {status}"))),
    }
}

/// The name of a token's object on `OpenShift`; the token cannot be derived from it.
fn openshift_name(token: &str) -> String {
    let secret = token.strip_prefix("sha256~").unwrap_or(token);
    format!("sha256~{}", URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, secret.as_bytes())))
}

/// Removes the parts of a user that only the API server needs: it has to fit into a cookie.
fn trimmed_user(claims: &str) -> String {
    let Ok(user) = serde_json::from_str::<serde_json::Value>(claims) else { return claims.to_owned() };
    let metadata = &user["metadata"];
    serde_json::json!({
        "kind": user["kind"],
        "metadata": { "name": metadata["name"], "uid": metadata["uid"] },
        "fullName": user["fullName"],
        "groups": user["groups"],
    })
    .to_string()
}

#[cfg(test)]
mod tests;

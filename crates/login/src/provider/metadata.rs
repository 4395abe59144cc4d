//! Metadata of a provider: where they come from, and what they must contain.

use std::sync::Arc;
use std::time::Duration;

use auth::algorithm::Algorithm;
use auth::json::Value;
use credentials::authenticate::{KeyStore, key_url};
use http::StatusCode;
use http_engine::http_client::SecretMethod;
use http_engine::url::Url;
use tokio::time::Instant;

use crate::config::LoginKind;
use crate::provider::messages::{below, invalid_answer, parse};
use crate::provider::provider_fault::ProviderFault;
use crate::provider::{
    CachedMetadata, LoginProviderClient, METADATA_AGE, METADATA_PAUSE, Metadata, PublishedMetadata, TokenKind,
};

/// What faults of the metadata are about.
const WHAT: &str = "metadata";

impl LoginProviderClient {
    /// Records the result of a request in the outage log.
    pub(super) fn record_outcome<T>(&self, outcome: Result<T, ProviderFault>) -> Result<T, ProviderFault> {
        match &outcome {
            Err(ProviderFault::Keys) => {}
            Err(fault) if fault.is_outage() => self.outage.failed(fault),
            Ok(_) | Err(_) => self.outage.succeeded(),
        }
        outcome
    }

    /// Records the algorithm of an ID token; refuses a logout token with another algorithm than
    /// those.
    pub(super) fn check_algorithm(&self, kind: TokenKind, algorithm: Algorithm) -> Result<(), ProviderFault> {
        let mut algorithms = self.id_token_algorithms.lock();
        match kind {
            TokenKind::Id => *algorithms = algorithms.with(algorithm),
            TokenKind::Logout if algorithms.is_empty() || algorithms.contains(algorithm) => {}
            TokenKind::Logout => return Err(ProviderFault::UnexpectedAlgorithm(algorithm)),
        }
        Ok(())
    }

    /// Maximum duration of a renewal: metadata, tokens, keys and userinfo, one after the other.
    pub(crate) fn max_renewal(&self) -> Duration {
        (self.config.server.timeout * 5).max(Duration::from_secs(30))
    }

    /// The metadata; fetched if there are none yet.
    pub(crate) async fn metadata(&self) -> Result<Arc<Metadata>, ProviderFault> {
        match (&self.config.kind, &self.keys) {
            (LoginKind::OpenId { issuer, .. }, Some(keys)) => self.published_metadata(issuer, keys).await,
            (LoginKind::OpenId { .. }, None) => Err(invalid_answer(WHAT, "this provider has no key store")),
            (LoginKind::OpenShift { api }, _) => self.openshift_metadata(api).await,
        }
    }

    /// The metadata that are refreshed with the keys.
    async fn published_metadata(
        &self,
        issuer: &str,
        keys: &KeyStore,
    ) -> Result<Arc<Metadata>, ProviderFault> {
        let document = match keys.metadata() {
            Some(document) => document,
            None => {
                // Waits for the fetch in progress, or for one more if the last is long enough ago.
                keys.renew(0, self.clock.now()).await;
                let why = || keys.last_error().unwrap_or_else(|| "they are not fetched yet".into());
                let missing = || invalid_answer(WHAT, &why());
                match keys.metadata() {
                    Some(document) => document,
                    None => return self.record_outcome(Err(missing())),
                }
            }
        };
        let mut published = self.published.lock();
        if let Some(known) = published.as_ref()
            && Arc::ptr_eq(&known.document, &document)
        {
            return Ok(known.good.clone());
        }
        let good = match self.record_outcome(self.read_metadata(document.document.root(), issuer)) {
            Ok(metadata) => Arc::new(metadata),
            Err(fault) => match published.as_ref() {
                Some(known) => {
                    let provider = &*self.config.name;
                    tracing::warn!(provider, %fault, "changed metadata cannot be used, keeping the last");
                    known.good.clone()
                }
                None => return Err(fault),
            },
        };
        *published = Some(PublishedMetadata { document, good: good.clone() });
        Ok(good)
    }

    async fn openshift_metadata(&self, api: &Url) -> Result<Arc<Metadata>, ProviderFault> {
        // Held during the fetch: concurrent callers wait for the same result.
        let mut held = self.metadata.lock().await;
        let rested = held.failed.is_none_or(|at| at.elapsed() >= METADATA_PAUSE);
        match &held.good {
            Some((metadata, at)) if at.elapsed() < METADATA_AGE || !rested => return Ok(metadata.clone()),
            None if !rested => {
                let why = "the last fetch failed a moment ago".to_owned();
                return Err(ProviderFault::InvalidAnswer { context: WHAT, why });
            }
            _ => {}
        }
        match self.record_outcome(self.fetch_openshift_metadata(api).await) {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                *held = CachedMetadata { good: Some((metadata.clone(), Instant::now())), failed: None };
                Ok(metadata)
            }
            Err(fault) => {
                held.failed = Some(Instant::now());
                match &held.good {
                    Some((metadata, _)) => {
                        tracing::debug!(provider = &*self.config.name, %fault, "metadata fetch failed, keeping the last");
                        Ok(metadata.clone())
                    }
                    None => Err(fault),
                }
            }
        }
    }

    async fn fetch_openshift_metadata(&self, api: &Url) -> Result<Metadata, ProviderFault> {
        let url = below(api, "/.well-known/oauth-authorization-server")?;
        let answer = self.get(WHAT, &url, None).await?;
        if answer.status != StatusCode::OK {
            return Err(invalid_answer(WHAT, &format!("it answered {}", answer.status)));
        }
        self.read_metadata(parse(WHAT, &answer)?.root(), &api.to_string())
    }

    /// Reads metadata of a provider at `base`, whose endpoints must be as well protected.
    fn read_metadata(&self, root: Value<'_>, base: &str) -> Result<Metadata, ProviderFault> {
        let text = |member| root.get(member).and_then(Value::as_str);
        let found = text("issuer").ok_or_else(|| invalid_answer(WHAT, "no string `issuer`"))?;
        let url = |member: &'static str| {
            text(member).map(|url| key_url(member, url, base).map_err(ProviderFault::Metadata)).transpose()
        };
        let needed = |member: &'static str| {
            url(member)?.ok_or_else(|| invalid_answer(WHAT, &format!("no string `{member}`")))
        };
        // Endpoints that ask for a certificate may be apart (RFC 8705 §5).
        let aliases = root.get("mtls_endpoint_aliases").filter(|_| self.config.tls_client_auth);
        let own = |member: &'static str| {
            let alias = aliases.and_then(|aliases| aliases.get(member)).and_then(Value::as_str);
            let alias = alias.map(|url| key_url(member, url, base).map_err(ProviderFault::Metadata));
            alias.transpose()?.map_or_else(|| url(member), |alias| Ok(Some(alias)))
        };
        let token = own("token_endpoint")?;
        let secret_method = secret_method(root);
        self.outbound.set_secret_method(secret_method);
        Ok(Metadata {
            issuer: found.to_owned(),
            authorization: needed("authorization_endpoint")?,
            token: token.map_or_else(|| needed("token_endpoint"), Ok)?,
            userinfo: own("userinfo_endpoint")?,
            end_session: url("end_session_endpoint")?,
            secret_method,
            revocation: own("revocation_endpoint")?,
            sends_iss: root.get("authorization_response_iss_parameter_supported").and_then(Value::as_bool)
                == Some(true),
            supports_read_at: root.get("claims_parameter_supported").and_then(Value::as_bool) == Some(true)
                && root
                    .get("claims_supported")
                    .and_then(Value::items)
                    .is_some_and(|mut names| names.any(|name| name.as_str() == Some("read_at"))),
            // Initiating User Registration via OpenID Connect 1.0 §4.
            selects_account: root
                .get("prompt_values_supported")
                .and_then(Value::items)
                .is_some_and(|mut values| values.any(|value| value.as_str() == Some("select_account"))),
        })
    }
}

/// How a client with a secret authenticates at the token endpoint (OpenID Connect Discovery §3). A
/// provider that says nothing takes `client_secret_basic`.
fn secret_method(metadata: Value<'_>) -> SecretMethod {
    let supported = metadata.get("token_endpoint_auth_methods_supported").and_then(Value::items);
    let methods: Vec<_> = supported.into_iter().flatten().filter_map(Value::as_str).collect();
    if methods.contains(&"client_secret_post") && !methods.contains(&"client_secret_basic") {
        SecretMethod::Post
    } else {
        SecretMethod::Basic
    }
}

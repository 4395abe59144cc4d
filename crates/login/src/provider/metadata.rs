//! Metadata of a provider: fetching, caching and checking it.

use std::sync::Arc;
use std::time::Duration;

use auth::algorithm::Algorithm;
use auth::json::Value;
use credentials::authenticate::{key_url, metadata_urls};
use http::StatusCode;
use http_engine::http_client::SecretMethod;
use http_engine::url::Url;
use tokio::time::Instant;

use crate::config::LoginKind;
use crate::provider::messages::{below, invalid_answer, parse};
use crate::provider::provider_fault::ProviderFault;
use crate::provider::{
    CachedMetadata, LoginProviderClient, METADATA_AGE, METADATA_PAUSE, Metadata, TokenKind,
};

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

    /// The metadata; fetched if it is missing or old.
    pub(crate) async fn metadata(&self) -> Result<Arc<Metadata>, ProviderFault> {
        // Held during the fetch: concurrent callers wait for the same result.
        let mut held = self.metadata.lock().await;
        let rested = held.failed.is_none_or(|at| at.elapsed() >= METADATA_PAUSE);
        match &held.good {
            Some((metadata, at)) if at.elapsed() < METADATA_AGE || !rested => return Ok(metadata.clone()),
            None if !rested => {
                let why = "the last fetch failed a moment ago".to_owned();
                return Err(ProviderFault::InvalidAnswer { context: "metadata", why });
            }
            _ => {}
        }
        match self.record_outcome(self.fetch_metadata().await) {
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

    pub(super) async fn fetch_metadata(&self) -> Result<Metadata, ProviderFault> {
        const WHAT: &str = "metadata";
        let (urls, issuer): (Vec<Url>, Option<&str>) = match &self.config.kind {
            LoginKind::OpenId { issuer, .. } => {
                (metadata_urls(issuer).map_err(ProviderFault::Metadata)?.into(), Some(issuer))
            }
            LoginKind::OpenShift { api } => {
                (vec![below(api, "/.well-known/oauth-authorization-server")?], None)
            }
        };
        let mut answer = None;
        for url in &urls {
            let found = self.get(WHAT, url, None).await?;
            let absent = found.status.is_client_error();
            answer = Some(found);
            // Only a client error such as 404 leads to the next address.
            if !absent {
                break;
            }
        }
        let answer = answer.ok_or_else(|| invalid_answer(WHAT, "no metadata address"))?;
        if answer.status != StatusCode::OK {
            return Err(invalid_answer(WHAT, &format!("it answered {}", answer.status)));
        }
        let document = parse(WHAT, &answer)?;
        let root = document.root();
        let text = |member| root.get(member).and_then(Value::as_str);
        let found = text("issuer").ok_or_else(|| invalid_answer(WHAT, "no string `issuer`"))?;
        if issuer.is_some_and(|issuer| issuer != found) {
            let why = format!(
                "the metadata is of issuer {found:?}; configure the issuer exactly as the provider names itself"
            );
            return Err(invalid_answer(WHAT, &why));
        }
        let base = match &self.config.kind {
            LoginKind::OpenId { issuer, .. } => issuer.to_string(),
            LoginKind::OpenShift { api } => api.to_string(),
        };
        let url = |member: &'static str| {
            text(member).map(|url| key_url(member, url, &base).map_err(ProviderFault::Metadata)).transpose()
        };
        let needed = |member: &'static str| {
            url(member)?.ok_or_else(|| invalid_answer(WHAT, &format!("no string `{member}`")))
        };
        // Endpoints that ask for a certificate may be apart (RFC 8705 §5).
        let aliases = root.get("mtls_endpoint_aliases").filter(|_| self.config.tls_client_auth);
        let own = |member: &'static str| {
            let alias = aliases.and_then(|aliases| aliases.get(member)).and_then(Value::as_str);
            let alias = alias.map(|url| key_url(member, url, &base).map_err(ProviderFault::Metadata));
            alias.transpose()?.map_or_else(|| url(member), |alias| Ok(Some(alias)))
        };
        let token = own("token_endpoint")?;
        self.outbound.set_secret_method(secret_method(root));
        Ok(Metadata {
            issuer: found.to_owned(),
            authorization: needed("authorization_endpoint")?,
            token: token.map_or_else(|| needed("token_endpoint"), Ok)?,
            userinfo: own("userinfo_endpoint")?,
            end_session: url("end_session_endpoint")?,
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

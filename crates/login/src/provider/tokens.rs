//! Tokens of a session: requesting, refreshing and revoking them.

use std::time::Duration;

use auth::json::{Number, Value};
use auth::time::Timestamp;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Request, StatusCode};
use http_engine::url::Url;

use crate::config::LoginKind;
use crate::login_state::LoginProofs;
use crate::provider::messages::{bearer, below, call_fault, invalid_answer, parse, sanitized};
use crate::provider::provider_fault::ProviderFault;
use crate::provider::{
    ALL_TOKENS, LoginProviderClient, Metadata, OWN_TOKENS, ProviderTokens, Tokens, deletion_result,
    openshift_name,
};
use crate::session::BrowserSession;

impl LoginProviderClient {
    /// Exchanges a code, and returns the user with the tokens.
    pub(crate) async fn exchange(
        &self,
        code: &str,
        redirect_uri: &str,
        proofs: &LoginProofs,
    ) -> Result<ProviderTokens, ProviderFault> {
        self.record_outcome(self.try_exchange(code, redirect_uri, proofs).await)
    }

    pub(super) async fn try_exchange(
        &self,
        code: &str,
        redirect_uri: &str,
        proofs: &LoginProofs,
    ) -> Result<ProviderTokens, ProviderFault> {
        let Ok(_place) = self.login_limit.try_acquire() else {
            return Err(invalid_answer("token endpoint", "too many logins at once; try again later"));
        };
        let metadata = self.metadata().await?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", &proofs.verifier),
        ];
        let tokens = self.tokens(&metadata, &form).await?;
        self.validate_tokens(&metadata, tokens, Some(&proofs.nonce), None).await
    }

    /// Asks the provider whether a session still holds, and for the user's current claims.
    pub(crate) async fn renew(
        &self,
        session: &BrowserSession,
        now: Timestamp,
    ) -> Result<ProviderTokens, ProviderFault> {
        match self.try_renew(session, now).await {
            // The provider issued tokens, and then failed to identify their user: this was recorded
            // already.
            Ok(tokens) if !tokens.confirmed => Ok(tokens),
            outcome => self.record_outcome(outcome),
        }
    }

    pub(super) async fn try_renew(
        &self,
        session: &BrowserSession,
        now: Timestamp,
    ) -> Result<ProviderTokens, ProviderFault> {
        let metadata = self.metadata().await?;
        if let Some(refresh_token) = &session.refresh_token {
            let form = [("grant_type", "refresh_token"), ("refresh_token", refresh_token.as_str())];
            let mut tokens = self.tokens(&metadata, &form).await?;
            // A provider that does not rotate the refresh token keeps the current one valid
            // (RFC 6749 §6).
            tokens.refresh_token = tokens.refresh_token.or_else(|| Some(refresh_token.clone()));
            let unconfirmed = ProviderTokens {
                subject: session.subject.clone(),
                sid: session.sid.clone(),
                claims: session.claims.clone(),
                more: session.more.clone(),
                confirmed: false,
                has_claims: false,
                expires_in: tokens.expires_in,
                access_token: tokens.access_token.clone(),
                refresh_token: tokens.refresh_token.clone(),
                id_token: session.id_token.clone(),
            };
            return match self
                .record_outcome(self.validate_tokens(&metadata, tokens, None, Some(session)).await)
            {
                // The grant is valid, and the old refresh token is used up: the new tokens must not
                // be lost.
                Err(fault) if !fault.is_final() => Ok(unconfirmed),
                Err(fault) => {
                    let unvalidated =
                        BrowserSession { refresh_token: unconfirmed.refresh_token, ..session.clone() };
                    // Tokens that fail validation must be revoked too.
                    let _ = self.revoke(&unvalidated).await;
                    Err(fault)
                }
                outcome => outcome,
            };
        }
        let ended = || ProviderFault::Refused("invalid_grant".to_owned());
        let access_token = session.access_token.clone().ok_or_else(ended)?;
        let left = Timestamp::from_millis(session.expires).since(now);
        if left.is_zero() || (metadata.userinfo.is_none() && !self.is_openshift()) {
            return Err(ended());
        }
        let tokens = Tokens { access_token, expires_in: Some(left), refresh_token: None, id_token: None };
        self.validate_tokens(&metadata, tokens, None, Some(session)).await
    }

    /// Sends a request to the token endpoint.
    pub(super) async fn tokens(
        &self,
        metadata: &Metadata,
        form: &[(&str, &str)],
    ) -> Result<Tokens, ProviderFault> {
        const WHAT: &str = "token endpoint";
        let answer = self.post(WHAT, &metadata.token, form).await?;
        let document = parse(WHAT, &answer)?;
        let root = document.root();
        let text = |member| root.get(member).and_then(Value::as_str);
        if answer.status != StatusCode::OK {
            let refused = answer.status.is_client_error().then(|| text("error")).flatten();
            return Err(match refused {
                Some(error) => ProviderFault::Refused(sanitized(error)),
                None => invalid_answer(WHAT, &format!("it answered {}", answer.status)),
            });
        }
        if !text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return Err(invalid_answer(WHAT, "the answer's `token_type` is not `Bearer`"));
        }
        let secret = |member| text(member).filter(|text| !text.is_empty()).map(|text| text.to_owned().into());
        let expires_in = match root.get("expires_in").and_then(Value::as_number) {
            Some(Number::Unsigned(seconds)) => Some(Duration::from_secs(seconds)),
            _ => None,
        };
        Ok(Tokens {
            access_token: secret("access_token")
                .ok_or_else(|| invalid_answer(WHAT, "the answer has no `access_token`"))?,
            expires_in,
            refresh_token: secret("refresh_token"),
            id_token: secret("id_token"),
        })
    }

    /// Revokes the tokens of a session at the provider (RFC 7009). Succeeds when the provider
    /// confirmed it, or there was nothing to revoke.
    pub(crate) async fn revoke(&self, session: &BrowserSession) -> Result<(), ProviderFault> {
        self.record_outcome(self.try_revoke(session).await)
    }

    pub(super) async fn try_revoke(&self, session: &BrowserSession) -> Result<(), ProviderFault> {
        const WHAT: &str = "revocation endpoint";
        if let LoginKind::OpenShift { api } = &self.config.kind {
            return match &session.access_token {
                Some(token) => self.delete(api, token).await,
                None => Ok(()),
            };
        }
        let metadata = self.metadata().await?;
        let Some(url) = &metadata.revocation else { return Ok(()) };
        let tokens = [(&session.refresh_token, "refresh_token"), (&session.access_token, "access_token")];
        for (token, hint) in tokens {
            let Some(token) = token else { continue };
            let answer = self.post(WHAT, url, &[("token", token), ("token_type_hint", hint)]).await?;
            if answer.status != StatusCode::OK {
                return Err(invalid_answer(WHAT, &format!("it answered {}", answer.status)));
            }
        }
        Ok(())
    }

    /// Deletes a token on `OpenShift`. Its user may, with the scope `user:full`. Most login tokens
    /// have less; then our own service account tries, which needs the permission.
    pub(super) async fn delete(&self, api: &Url, token: &str) -> Result<(), ProviderFault> {
        const WHAT: &str = "token deletion";
        let name = openshift_name(token);
        let own = format!("{OWN_TOKENS}{name}");
        match self.deleted(api, &own, token).await? {
            StatusCode::FORBIDDEN => {}
            status => return deletion_result(WHAT, status),
        }
        let account = self.outbound.client_secret().await.map_err(call_fault(WHAT))?;
        let Some(account) = account.filter(|_| self.config.client_id.starts_with("system:serviceaccount:"))
        else {
            return deletion_result(WHAT, StatusCode::FORBIDDEN);
        };
        deletion_result(WHAT, self.deleted(api, &format!("{ALL_TOKENS}{name}"), &account).await?)
    }

    pub(super) async fn deleted(
        &self,
        api: &Url,
        path: &str,
        token: &str,
    ) -> Result<StatusCode, ProviderFault> {
        const WHAT: &str = "token deletion";
        let request = Request::delete(below(api, path)?.to_string()).header(AUTHORIZATION, bearer(token)?);
        let request =
            request.body(Bytes::new()).map_err(|_| invalid_answer(WHAT, "the request URL is invalid"))?;
        Ok(self.outbound.ask_anonymously(request).await.map_err(call_fault(WHAT))?.status)
    }
}

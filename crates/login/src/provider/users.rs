//! Users: what a provider says of the user who signs in, by ID token, userinfo or the `OpenShift`
//! API.

use auth::json::Value;
use auth::time::Timestamp;
use auth::token::id_token::{self, ExpectedIdToken};
use auth::token::jwt;
use auth::token_error::TokenError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::authenticate::KeyRenewal;
use http::StatusCode;
use http_engine::clock::Now;
use http_engine::url::Url;

use crate::config::LoginKind;
use crate::provider::messages::{below, invalid_answer, parse};
use crate::provider::provider_fault::ProviderFault;
use crate::provider::{
    LoginProviderClient, Metadata, OTHER_SUBJECT, ProviderTokens, TOKEN_CLAIMS, TokenKind, Tokens, USER_PATH,
    trimmed_user,
};
use crate::session::BrowserSession;

impl LoginProviderClient {
    /// What tokens prove about a user; `before` is the session that they extend.
    pub(super) async fn validate_tokens(
        &self,
        metadata: &Metadata,
        tokens: Tokens,
        nonce: Option<&str>,
        before: Option<&BrowserSession>,
    ) -> Result<ProviderTokens, ProviderFault> {
        let mut validated = match &self.config.kind {
            LoginKind::OpenShift { api } => self.openshift_user(api, tokens).await?,
            LoginKind::OpenId { userinfo, .. } => {
                self.openid_user(metadata, *userinfo, tokens, nonce, before).await?
            }
        };
        if before.is_some_and(|before| before.subject != validated.subject) {
            return Err(ProviderFault::Identity(OTHER_SUBJECT.to_owned()));
        }
        validated.sid = validated.sid.or_else(|| before.and_then(|before| before.sid.clone()));
        crate::session::identity(&self.config, &validated.claims, validated.more.as_deref())
            .map_err(ProviderFault::Identity)?;
        Ok(validated)
    }

    pub(super) async fn openid_user(
        &self,
        metadata: &Metadata,
        userinfo: bool,
        tokens: Tokens,
        nonce: Option<&str>,
        before: Option<&BrowserSession>,
    ) -> Result<ProviderTokens, ProviderFault> {
        let (mut claims, subject, sid) = match (&tokens.id_token, before) {
            (Some(id_token), _) => {
                let verified = self.verified(id_token, nonce).await?;
                // Compared before any further request, because the user of the tokens is known
                // already (OpenID Connect Core 1.0 §12.2). Issuer and client were compared with
                // those of the session.
                if before.is_some_and(|before| before.subject != verified.1) {
                    return Err(ProviderFault::Identity(OTHER_SUBJECT.to_owned()));
                }
                verified
            }
            // A refresh need not return an ID token (OpenID Connect Core 1.0 §12.2).
            (None, Some(before)) => {
                let claims = serde_json::from_str(&before.claims).unwrap_or_default();
                (claims, before.subject.clone(), before.sid.clone())
            }
            (None, None) => {
                return Err(invalid_answer(
                    "token endpoint",
                    "the answer has no ID token; is `openid` among the scopes?",
                ));
            }
        };
        let userinfo_url = metadata.userinfo.as_ref().filter(|_| userinfo || tokens.id_token.is_none());
        let more = match userinfo_url {
            Some(url) => {
                let more = self.userinfo(url, &tokens.access_token).await?;
                if more.get("sub").and_then(serde_json::Value::as_str) != Some(&subject) {
                    let why = "its userinfo is about another user than its ID token";
                    return Err(ProviderFault::Identity(why.to_owned()));
                }
                Some(serde_json::Value::Object(more).to_string())
            }
            None => None,
        };
        for name in TOKEN_CLAIMS {
            claims.remove(name);
        }
        claims.remove("sid");
        let claims = serde_json::Value::Object(claims).to_string();
        let Tokens { access_token, expires_in, refresh_token, id_token } = tokens;
        let speaks = id_token.is_some() || more.is_some();
        let id_token = id_token.or_else(|| before.and_then(|before| before.id_token.clone()));
        let confirmed = true;
        Ok(ProviderTokens {
            subject,
            sid,
            claims,
            more,
            confirmed,
            has_claims: speaks,
            expires_in,
            access_token,
            refresh_token,
            id_token,
        })
    }

    /// The claims of a valid ID token.
    pub(super) async fn verified(
        &self,
        token: &str,
        nonce: Option<&str>,
    ) -> Result<(serde_json::Map<String, serde_json::Value>, String, Option<String>), ProviderFault> {
        let (subject, sid) = self
            .with_signed(TokenKind::Id, token, |signed, expected, now| {
                let token = id_token::id_token(signed, expected, nonce, now)?;
                Ok((token.subject.to_owned(), token.sid.map(str::to_owned)))
            })
            .await?;
        // The token was parsed strictly above; this parses the same text as a map.
        let payload = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
        let claims = payload.and_then(|payload| serde_json::from_slice(&payload).ok());
        Ok((claims.unwrap_or_default(), subject, sid))
    }

    /// Verifies this provider's signature of a token and passes it to `judge`; fetches newer keys
    /// if they may have changed.
    pub(crate) async fn with_signed<T>(
        &self,
        kind: TokenKind,
        token: &str,
        judge: impl Fn(jwt::SignedClaims<'_>, &ExpectedIdToken<'_>, Timestamp) -> Result<T, TokenError>,
    ) -> Result<T, ProviderFault> {
        let (LoginKind::OpenId { issuer, algorithms, .. }, Some(keys)) = (&self.config.kind, &self.keys)
        else {
            return Err(invalid_answer("ID token", "this provider has no ID tokens"));
        };
        let expected =
            ExpectedIdToken { issuer, client_id: &self.config.client_id, clock_skew: self.config.clock_skew };
        let unverified = jwt::parse(token.as_bytes()).map_err(ProviderFault::Token)?;
        let mut seen = 0;
        loop {
            let now: Now = self.clock.now();
            let error = match keys.current(now) {
                Some(held) => {
                    let signed = unverified.signed(*algorithms, &held.set);
                    match signed.and_then(|signed| judge(signed, &expected, now.wall)) {
                        Ok(result) => {
                            self.check_algorithm(kind, unverified.algorithm())?;
                            return Ok(result);
                        }
                        Err(error) if held.attempt > seen && unverified.may_pass_newer_keys(&error) => {
                            seen = held.attempt;
                            Some(error)
                        }
                        Err(error) => return Err(ProviderFault::Token(error)),
                    }
                }
                None => None,
            };
            match keys.renew(seen, now).await {
                KeyRenewal::Newer => {}
                KeyRenewal::Fresh => return Err(error.map_or(ProviderFault::Keys, ProviderFault::Token)),
                KeyRenewal::Failed { .. } => return Err(ProviderFault::Keys),
            }
        }
    }

    pub(super) async fn userinfo(
        &self,
        url: &Url,
        token: &str,
    ) -> Result<serde_json::Map<String, serde_json::Value>, ProviderFault> {
        const WHAT: &str = "userinfo endpoint";
        let answer = self.get(WHAT, url, Some(token)).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err(ProviderFault::Refused("invalid_grant".to_owned())),
            status => return Err(invalid_answer(WHAT, &format!("it answered {status}"))),
        }
        // Parsed twice: once strictly, to reject what another parser might read differently, once
        // as a map.
        if !parse(WHAT, &answer)?.root().is_object() {
            return Err(invalid_answer(WHAT, "the answer is not a JSON object"));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|_| invalid_answer(WHAT, "the answer is not a JSON object"))
    }

    /// The user of an `OpenShift` token.
    pub(super) async fn openshift_user(
        &self,
        api: &Url,
        tokens: Tokens,
    ) -> Result<ProviderTokens, ProviderFault> {
        const WHAT: &str = "user endpoint";
        let answer = self.get(WHAT, &below(api, USER_PATH)?, Some(&tokens.access_token)).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err(ProviderFault::Refused("invalid_grant".to_owned())),
            StatusCode::FORBIDDEN => {
                let why = "its token may not read its user; add `user:info` to the scopes".to_owned();
                return Err(ProviderFault::Identity(why));
            }
            status => return Err(invalid_answer(WHAT, &format!("it answered {status}"))),
        }
        let document = parse(WHAT, &answer)?;
        let name = document.root().get("metadata").and_then(|metadata| metadata.get("name"));
        let subject = name
            .and_then(Value::as_str)
            .ok_or_else(|| invalid_answer(WHAT, "the answer has no user name"))?;
        let claims =
            String::from_utf8(answer.body.to_vec()).map_err(|_| invalid_answer(WHAT, "it is not UTF-8"))?;
        let claims = trimmed_user(&claims);
        let Tokens { access_token, expires_in, refresh_token, .. } = tokens;
        Ok(ProviderTokens {
            subject: subject.to_owned(),
            sid: None,
            claims,
            more: None,
            confirmed: true,
            has_claims: true,
            expires_in,
            access_token,
            refresh_token,
            id_token: None,
        })
    }
}

//! Session lifecycle: begins and ends sessions.

use std::time::Duration;

use auth::time::Timestamp;
use credentials::cookies::Cookie;
use credentials::session_store::{SessionKey, StoreFault, StoredSession};

use super::provider::{LoginProviderClient, ProviderTokens};
use super::session::{BrowserSession, LONGEST_COOKIE, SealFault, SealedCookie, issued_of, store_key_of};
use super::session_search::SECRET_LENGTH;
use super::{Login, SessionRejected};
use crate::login_state::random_text;

/// Why no session begins.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeginFault {
    #[error(transparent)]
    Seal(#[from] SealFault),
    #[error(transparent)]
    Store(#[from] StoreFault),
    #[error("the provider ended the session during the login")]
    Ended,
}

impl Login {
    /// Begins a session of a user who was `sent` to the provider at that time; returns its
    /// `Set-Cookie`.
    pub(super) async fn begin(
        &self,
        origin: usize,
        provider: &LoginProviderClient,
        tokens: ProviderTokens,
        sent: Timestamp,
    ) -> Result<String, BeginFault> {
        let now = self.surroundings.clock.now().wall;
        let (fresh, expires) = self.refresh_times(tokens.expires_in, now);
        let issued = tokens.id_token.as_ref().and_then(|token| issued_of(token));
        let (issued, read_at) = issued.unwrap_or((now, None));
        let session = BrowserSession {
            id: random_text::<16>(&self.random).map_err(SealFault::from)?,
            provider: provider.config.name.to_string(),
            binding: provider.binding.clone(),
            access_token: self.kept_access_token(&tokens),
            subject: tokens.subject,
            sid: tokens.sid,
            claims: tokens.claims,
            more: tokens.more,
            began: now.as_millis(),
            issued: issued.as_millis(),
            read_at: read_at.map(Timestamp::as_millis),
            claims_obtained_at: now.as_millis(),
            renewals: 0,
            ends: now.plus(self.config.lifetime).as_millis(),
            fresh,
            expires,
            refresh_token: tokens.refresh_token,
            id_token: tokens.id_token,
        };
        // The provider may have sent a logout while its tokens were in transit. With a store, this
        // is checked after the session is stored, where a later logout finds it.
        let Some(store) = &self.store else {
            if self.shared.ended.is_revoked_at_start(&session.revocation_keys(), sent, issued) {
                self.revoke_tokens(provider, &session).await;
                return Err(BeginFault::Ended);
            }
            return match self.cookie_of(origin, &session, now) {
                Ok(cookie) => Ok(cookie),
                Err(fault) => {
                    self.revoke_tokens(provider, &session).await;
                    Err(fault.into())
                }
            };
        };
        let place = self.config.session_place(origin);
        let secret = random_text::<32>(&self.random).map_err(SealFault::from)?;
        debug_assert_eq!(secret.len(), SECRET_LENGTH);
        let tag = self.config.keys.newest().derive("session name", &[place.as_bytes(), secret.as_bytes()]);
        let name = format!("{secret}{tag}");
        let id = store_key_of(name.as_bytes());
        let marks = session.revocation_keys();
        let content = session.content(&self.config.keys, place, &id, &self.random)?;
        let ends = session.ends(&self.config);
        let (subject, sid, began) = (marks.subject, marks.sid, marks.began);
        let is_over = {
            let _not_during_a_logout = self.shared.session_locks.for_login(subject, sid).await;
            store.insert(StoredSession { id, subject, sid, began, ends, version: 0, content }).await?;
            self.shared.ended.is_revoked_at_start(&session.revocation_keys(), sent, issued)
        };
        if is_over {
            store.remove(id).await?;
            self.revoke_tokens(provider, &session).await;
            return Err(BeginFault::Ended);
        }
        Ok(Cookie::Session.set(self.config.cookie_reach(origin), &name, ends.since(now)))
    }

    /// The `Set-Cookie` that contains a session.
    pub(super) fn cookie_of(
        &self,
        origin: usize,
        session: &BrowserSession,
        now: Timestamp,
    ) -> Result<String, SealFault> {
        let reach = self.config.cookie_reach(origin);
        let place = SealedCookie {
            place: self.config.session_place(origin),
            // The attributes count too (RFC 6265 §6.1).
            longest: LONGEST_COOKIE - reach.domain.map_or(0, str::len),
        };
        let value = session.cookie(&self.config.keys, place, self.forwards.id_token, &self.random)?;
        let max_age: Duration = session.ends(&self.config).since(now);
        Ok(Cookie::Session.set(reach, &value, max_age))
    }

    /// Ends the session of a cookie, here and in the store. Returns its last content, so that its
    /// tokens can be revoked. `None`: there is no session.
    pub(super) async fn end(
        &self,
        origin: usize,
        cookie: &[u8],
    ) -> Result<Option<BrowserSession>, StoreFault> {
        let now = self.surroundings.clock.now().wall;
        let place = self.config.session_place(origin);
        let session = if let Some(store) = &self.store {
            if !self.can_be_session_name(origin, cookie) {
                return Ok(None);
            }
            let id = store_key_of(cookie);
            // A concurrent renewal is either in the returned content, or finds no session to
            // update.
            let Some(content) = store.remove(id).await? else { return Ok(None) };
            let session = BrowserSession::of_content(&self.config.keys, place, &id, &content);
            session.inspect(|session| self.mark_revoked(session, now))
        } else {
            let found = match self.find(origin, cookie, now).await {
                Ok(found) => found.session,
                Err(SessionRejected::Over | SessionRejected::Unavailable) => return Ok(None),
            };
            // Waits for a renewal in progress: its tokens are the ones to revoke.
            let renewals = &self.shared.renewals;
            let lock = renewals.lock(&found.id);
            let held = lock.lock().await;
            self.mark_revoked(&found, now);
            let session = renewals.successor(&found, now).unwrap_or(found);
            drop(held);
            renewals.unlock(&session.id, &lock);
            Some(session)
        };
        Ok(session)
    }

    /// Marks the session as revoked in this process.
    pub(super) fn mark_revoked(&self, session: &BrowserSession, now: Timestamp) {
        let until = self.facts_valid_until(session.ends(&self.config), now);
        self.shared.ended.revoke(session.revocation_keys().id, now, until);
    }

    /// Ends the session that a browser had before another user logged in with it.
    pub(super) async fn end_session_of_other_user(
        &self,
        origin: usize,
        cookie: Option<&[u8]>,
        now_of: &SessionKey,
    ) {
        let Some(cookie) = cookie else { return };
        let now = self.surroundings.clock.now().wall;
        let Ok(found) = self.find(origin, cookie, now).await else { return };
        if found.session.revocation_keys().subject == *now_of {
            // The session of another tab, whose requests belong to the same user.
            return;
        }
        if let Ok(Some(session)) = self.end(origin, cookie).await
            && let Some(provider) = self.provider_of(&session)
        {
            self.revoke_tokens(provider, &session).await;
        }
    }
}

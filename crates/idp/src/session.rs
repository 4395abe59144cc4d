//! Browsers: the cookies they carry, and the sessions behind them.
//!
//! Owns: [`Browser`], which is what a request's cookies say; beginning and ending a session; the proof in forms.
//! Does not own: passwords ([`crate::login`]), rows (the store).
//!
//! Two cookies. One names the browser: it is there before anybody logs in, and forms and sealed flows are bound to it, so that
//! no other site can send one. The other is the session's secret: a new one with each login, kept as a digest. Over TLS both
//! are `__Host-` cookies (RFC 6265bis §4.1.3.2): no other host can set them. An issuer on plain http is on loopback, where
//! browsers keep no such cookies; then they have plain names.

use std::net::IpAddr;

use auth::token::opaque::{self, OpaqueKind};
use axum::http::{
    HeaderMap, HeaderValue, Method,
    header::{COOKIE, SET_COOKIE, USER_AGENT},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use store::{
    StoreError, StoredDigest,
    sessions::{BeginSession, EndSession, SeeSession, SessionRow},
    users::UserRow,
};
use zeroize::Zeroizing;

use crate::login::{ACR, METHOD};
use crate::oauth::error::OAuthFault;
use crate::provider::Provider;
use crate::revocations;

/// Random bytes that name a browser.
const BROWSER: usize = 16;
const BROWSER_TEXT: usize = 22;
/// How often a session's last use is written down.
const SEEN_EVERY: std::time::Duration = std::time::Duration::from_mins(1);
/// Longest text kept of what a browser calls itself.
const MAX_AGENT: usize = 256;

/// Whom a request came from, as the server that took it knows: an extension of the request. Behind a proxy that is the address
/// the proxy says, if it is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller(pub IpAddr);

impl Default for Caller {
    fn default() -> Self {
        Self(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    }
}

/// How a browser comes by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// It said it.
    Known,
    /// It is told.
    Told,
    /// It has none, as far as can be seen: its cookies may have been left out.
    Unclear,
}

/// What a request says of the browser it came from.
#[derive(Debug)]
pub struct Browser {
    id: String,
    naming: Naming,
    secure: bool,
    session: Option<SessionRow>,
    /// The session was not used for too long: nobody is logged in by it, but it is there to be ended.
    rested: bool,
    digest: Option<StoredDigest>,
    agent: String,
    caller: Caller,
    /// The cookie of a session that began with this request.
    begun: Option<Zeroizing<String>>,
    ended: bool,
}

impl Browser {
    /// Reads the cookies and looks the session up. Nobody is logged in by one that rested for too long.
    ///
    /// Browsers send none along with a POST from another site (`SameSite=Lax`), but keep what they are answered: a browser is
    /// named in answer to a GET alone, or every open page of ours would be another browser's.
    pub async fn read(
        provider: &Provider,
        (method, headers): (&Method, &HeaderMap),
        caller: Caller,
    ) -> Result<Self, OAuthFault> {
        let secure = provider.issuer().as_str().starts_with("https:");
        let named = cookie(headers, names(secure).0)
            .filter(|id| id.len() == BROWSER_TEXT && URL_SAFE_NO_PAD.decode(id).is_ok());
        let naming = match named {
            Some(_) => Naming::Known,
            None if method.is_safe() => Naming::Told,
            None => Naming::Unclear,
        };
        let id = match named {
            Some(id) => id.to_owned(),
            None => draw_browser(provider)?,
        };
        let digest = cookie(headers, names(secure).1)
            .filter(|text| opaque::kind(text) == Some(OpaqueKind::Session))
            .map(|text| provider.secrets().digest(text));
        let now = provider.now();
        let session = match &digest {
            Some(digest) => provider.store().session(digest, now).await?,
            None => None,
        };
        let idle = provider.lifetimes().session_idle;
        let rested = session.as_ref().is_some_and(|session| now >= session.seen_at.plus(idle));
        if let Some(session) = session.as_ref().filter(|_| !rested)
            && now.since(session.seen_at) >= SEEN_EVERY.min(idle / 4)
        {
            provider.store().write(SeeSession { digest: session.digest, now }).await?;
        }
        let agent = headers.get(USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let agent = agent.chars().take(MAX_AGENT).collect();
        let (begun, ended) = (None, false);
        Ok(Self { id, naming, secure, session, rested, digest, agent, caller, begun, ended })
    }

    /// Its name: what flows are bound to.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The session, if somebody is logged in.
    pub fn session(&self) -> Option<&SessionRow> {
        self.session.as_ref().filter(|_| !self.rested)
    }

    /// The session that there is to be ended, also one that rested for too long: clients that took part in it have not heard of an end, and what
    /// outlives it goes on.
    pub fn to_end(&self) -> Option<&SessionRow> {
        self.session.as_ref()
    }

    /// Where the request came from.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// What a form of this browser carries.
    pub fn form_proof(&self, provider: &Provider) -> String {
        provider.secrets().form_proof(&self.id)
    }

    /// Whether a form came from a page that this browser was shown.
    pub fn is_own_form(&self, provider: &Provider, proof: Option<&str>) -> bool {
        let is_own = |proof| provider.secrets().is_form_proof(proof, &self.id);
        self.naming == Naming::Known && proof.is_some_and(is_own)
    }

    /// Logs a user in who has just proved who they are, as they were read for it. Somebody who was logged in as the same
    /// user keeps the session with a new cookie; anybody else's session in this browser ends. `false` when the account was
    /// closed or its password changed meanwhile.
    pub async fn begin(&mut self, provider: &Provider, user: &UserRow) -> Result<bool, OAuthFault> {
        let (session, token) = self.drawn(provider, user)?;
        let now = session.created_at;
        let revocation = self.session.as_ref().map(|old| {
            revocations::session(provider, (&old.user_id, &old.sid), "another user logged in", now)
        });
        let change = BeginSession {
            session: session.clone(),
            replaces: self.digest,
            revocation,
            deliver_until: Some(now.plus(revocations::DELIVERED_WITHIN)),
        };
        let Some(sid) = provider.store().write(change).await? else { return Ok(false) };
        self.enter(SessionRow { sid, ..session }, token);
        Ok(true)
    }

    /// A session of this user, which may begin in this browser.
    pub(crate) fn drawn(
        &self,
        provider: &Provider,
        user: &UserRow,
    ) -> Result<(SessionRow, Zeroizing<String>), OAuthFault> {
        let now = provider.now();
        let token = provider.draw_token(OpaqueKind::Session)?;
        let session = SessionRow {
            digest: provider.secrets().digest(&token),
            sid: provider.draw_id()?,
            user_id: user.id.clone(),
            authenticated_at: now,
            methods: METHOD.into(),
            acr: Some(ACR.into()),
            agent: self.agent.clone(),
            address: self.caller.0.to_string(),
            created_at: now,
            seen_at: now,
            expires_at: now.plus(provider.lifetimes().session),
            ended_at: None,
            read_at: user.read_at,
        };
        Ok((session, token))
    }

    /// The session is kept: it is this browser's.
    pub(crate) fn enter(&mut self, session: SessionRow, token: Zeroizing<String>) {
        tracing::info!(user = session.user_id, sid = session.sid, address = %self.caller.0, "logged in");
        self.digest = Some(session.digest);
        (self.session, self.rested) = (Some(session), false);
        self.begun = Some(token);
        self.ended = false;
    }

    /// Ends the session, rested or not, and tells those who took part in it.
    pub async fn end(&mut self, provider: &Provider, reason: &'static str) -> Result<(), OAuthFault> {
        if let Some(session) = self.session.take() {
            end(provider, &session.user_id, &session.sid, reason).await?;
        }
        self.digest = None;
        self.begun = None;
        self.ended = true;
        Ok(())
    }

    /// What the browser has to be told to keep.
    pub fn set_cookies(&self, headers: &mut HeaderMap) {
        let (browser, session) = names(self.secure);
        let attributes = if self.secure {
            "; Path=/; Secure; HttpOnly; SameSite=Lax"
        } else {
            "; Path=/; HttpOnly; SameSite=Lax"
        };
        let mut set = |text: Zeroizing<String>| {
            // names and values are letters, digits, - and _
            if let Ok(mut value) = HeaderValue::from_str(&text) {
                value.set_sensitive(true);
                headers.append(SET_COOKIE, value);
            }
        };
        if self.naming == Naming::Told {
            set(Zeroizing::new(format!("{browser}={}{attributes}; Max-Age=31536000", self.id)));
        }
        if let Some(token) = &self.begun {
            set(Zeroizing::new(format!("{session}={}{attributes}", &**token)));
        } else if self.ended {
            set(Zeroizing::new(format!("{session}={attributes}; Max-Age=0")));
        }
    }
}

/// Whether a session goes on.
pub async fn goes_on(provider: &Provider, sid: &str) -> Result<bool, StoreError> {
    let (now, idle) = (provider.now(), provider.lifetimes().session_idle);
    let session = provider.store().session_by_sid(sid).await?;
    Ok(session.is_some_and(|session| {
        session.ended_at.is_none() && now < session.expires_at && now < session.seen_at.plus(idle)
    }))
}

/// Ends one session of a user. `false` when it was over.
pub async fn end(
    provider: &Provider,
    user_id: &str,
    sid: &str,
    reason: &'static str,
) -> Result<bool, StoreError> {
    provider.store().write(ending(provider, user_id, sid, reason)).await
}

/// What ends one session.
pub fn ending(provider: &Provider, user_id: &str, sid: &str, reason: &'static str) -> EndSession {
    let now = provider.now();
    EndSession {
        sid: sid.to_owned(),
        user_id: user_id.to_owned(),
        revocation: revocations::session(provider, (user_id, sid), reason, now),
        deliver_until: Some(now.plus(revocations::DELIVERED_WITHIN)),
        now,
    }
}

fn draw_browser(provider: &Provider) -> Result<String, OAuthFault> {
    let mut bytes = [0; BROWSER];
    provider.entropy().fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Names of the browser's and of the session's cookie.
fn names(secure: bool) -> (&'static str, &'static str) {
    if secure {
        ("__Host-postern_browser", "__Host-postern_session")
    } else {
        ("postern_browser", "postern_session")
    }
}

/// The value of a cookie that was sent once. Two of one name are none: somebody put one there (RFC 6265 §8.6).
fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut found = lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(found, _)| *found == name)
        .map(|(_, value)| value);
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(lines: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(COOKIE, HeaderValue::from_static(line));
        }
        headers
    }

    #[test]
    fn a_cookie_counts_when_it_is_the_only_one_of_its_name() {
        for (lines, value) in [
            (&["a=1; b=2"][..], Some("2")),
            (&["a=1", "b=2"], Some("2")),
            (&["b=2;a=1"], Some("2")),
            (&["b=1; b=2"], None),
            (&["b=1", "b=2"], None),
            (&["bb=1; B=2"], None),
            (&[], None),
        ] {
            assert_eq!(cookie(&sent(lines), "b"), value, "{lines:?}");
        }
    }
}

//! Browser sessions: the cookies of a browser and the session behind them.
//!
//! Owns: [`Browser`], read from the cookies of a request; the begin and end of a session; the proof
//! in forms. Does not own: passwords ([`crate::login`]), rows (the store).
//!
//! There are two cookies. One holds a browser id; it exists before any login, and forms and sealed
//! authorization states are bound to it, so other sites cannot submit them. The other holds the
//! session secret: new at each login, stored as a digest.
//!
//! Over TLS both are `__Host-` cookies (RFC 6265bis §4.1.3.2), which no other host can set. An
//! issuer on plain HTTP is on loopback, where browsers refuse such cookies; then they have plain
//! names.

use std::net::IpAddr;

use auth::token::opaque::{self, OpaqueKind};
use axum::http::{
    HeaderMap, HeaderValue, Method,
    header::{COOKIE, SET_COOKIE, USER_AGENT},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use store::{
    StoreError, StoredDigest,
    audit::{AuditEntry, Audited, AuditedBy},
    sessions::{BeginSession, EndSession, SessionRow, TouchSession},
    users::UserRow,
};
use zeroize::Zeroizing;

use crate::audit_draft::Subject;
use crate::audit_trail;
use crate::client::Client;
use crate::login::{ACR, LoginOrigin, METHOD};
use crate::oauth::error::OAuthFault;
use crate::provider::Provider;
use crate::revocations;

/// Random bytes of a browser id.
const BROWSER_ID_BYTES: usize = 16;
const BROWSER_ID_LENGTH: usize = 22;
/// How often the last use of a session is written.
const LAST_USE_INTERVAL: std::time::Duration = std::time::Duration::from_mins(1);
/// Most characters stored of a `User-Agent`.
const MAX_AGENT: usize = 256;

/// Address of the client, set by the server as an extension of the request. Behind a trusted proxy
/// it is the address that the proxy reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller(pub IpAddr);

impl Default for Caller {
    fn default() -> Self {
        Self(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    }
}

/// Where the browser id of a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BrowserIdSource {
    /// The request has it in its cookie.
    Known,
    /// It is new and is set by the response.
    New,
    /// The request has none, but its cookies may have been withheld.
    Unknown,
}

/// Browser of a request, as its cookies identify it.
#[derive(Debug)]
pub struct Browser {
    id: String,
    id_source: BrowserIdSource,
    secure: bool,
    session: Option<SessionRow>,
    /// The session exceeded the idle timeout: it authenticates no user, but can still be ended.
    idle: bool,
    digest: Option<StoredDigest>,
    agent: String,
    caller: Caller,
    /// Cookie value of a session that began with this request.
    new_cookie: Option<Zeroizing<String>>,
    ended: bool,
}

impl Browser {
    /// Reads the cookies and looks up the session. An idle session authenticates no user.
    ///
    /// Browsers send no cookies with a POST from another site (`SameSite=Lax`), but store the
    /// cookies of its response. So only responses to safe methods set a browser id; otherwise such
    /// a POST would replace the id and invalidate every open page.
    ///
    /// # Errors
    /// [`OAuthFault`] when the store or the random source fails.
    pub async fn read(
        provider: &Provider,
        (method, headers): (&Method, &HeaderMap),
        caller: Caller,
    ) -> Result<Self, OAuthFault> {
        let secure = provider.issuer().as_str().starts_with("https:");
        let named = cookie(headers, cookie_names(secure).0)
            .filter(|id| id.len() == BROWSER_ID_LENGTH && URL_SAFE_NO_PAD.decode(id).is_ok());
        let naming = match named {
            Some(_) => BrowserIdSource::Known,
            None if method.is_safe() => BrowserIdSource::New,
            None => BrowserIdSource::Unknown,
        };
        let id = match named {
            Some(id) => id.to_owned(),
            None => draw_browser(provider)?,
        };
        let digest = cookie(headers, cookie_names(secure).1)
            .filter(|text| opaque::parse_kind(text) == Some(OpaqueKind::Session))
            .map(|text| provider.secrets().digest(text));
        let now = provider.now();
        let session = match &digest {
            Some(digest) => provider.store().session(digest, now).await?,
            None => None,
        };
        let idle = provider.lifetimes().session_idle;
        let rested = session.as_ref().is_some_and(|session| now >= session.last_used_at.plus(idle));
        if let Some(session) = session.as_ref().filter(|_| !rested)
            && now.since(session.last_used_at) >= LAST_USE_INTERVAL.min(idle / 4)
        {
            provider.store().write(TouchSession { digest: session.digest, now }).await?;
        }
        let agent = headers.get(USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let agent = agent.chars().take(MAX_AGENT).collect();
        let (begun, ended) = (None, false);
        Ok(Self {
            id,
            id_source: naming,
            secure,
            session,
            idle: rested,
            digest,
            agent,
            caller,
            new_cookie: begun,
            ended,
        })
    }

    /// The browser id, to which authorization states are bound.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The session, if a user is logged in.
    pub fn session(&self) -> Option<&SessionRow> {
        self.session.as_ref().filter(|_| !self.idle)
    }

    /// The session to be ended, even if it exceeded the idle timeout: its clients were not
    /// notified, and grants that outlive it are still valid.
    pub fn session_to_end(&self) -> Option<&SessionRow> {
        self.session.as_ref()
    }

    /// Address of the client.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// The proof for forms of this browser.
    pub fn form_proof(&self, provider: &Provider) -> String {
        provider.secrets().form_proof(&self.id)
    }

    /// Whether a form comes from a page that was shown to this browser.
    pub fn is_own_form(&self, provider: &Provider, proof: Option<&str>) -> bool {
        let is_own = |proof| provider.secrets().is_form_proof(proof, &self.id);
        self.id_source == BrowserIdSource::Known && proof.is_some_and(is_own)
    }

    /// Begins a session for a user who has just authenticated, as read during authentication. If
    /// the browser has a session of the same user, it continues with a new cookie; a session of
    /// another user ends. Returns `false` when the account was disabled or its password changed
    /// meanwhile.
    ///
    /// # Errors
    /// [`OAuthFault`] when the store or the random source fails.
    pub async fn begin(
        &mut self,
        provider: &Provider,
        user: &UserRow,
        origin: &LoginOrigin,
    ) -> Result<bool, OAuthFault> {
        let (session, token) = self.draw_session(provider, user)?;
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
        let entries = self.begin_entries(provider, (user, &session), origin).await?;
        let Some(sid) = provider.store().write(AuditedBy { change, entries }).await? else {
            return Ok(false);
        };
        self.attach(SessionRow { sid, ..session }, token);
        Ok(true)
    }

    /// The audit entries of a session that begins: of the sign-in, and of another user's session
    /// that ends with it.
    async fn begin_entries(
        &self,
        provider: &Provider,
        (user, session): (&UserRow, &SessionRow),
        origin: &LoginOrigin,
    ) -> Result<impl Fn(&Option<String>) -> Vec<AuditEntry> + Send + Sync + use<>, OAuthFault> {
        let other = self.session.as_ref().filter(|old| old.user_id != user.id);
        let ended = match other.filter(|_| provider.audit_events().logins) {
            Some(old) => {
                let owner = (&audit_trail::user(provider, &old.user_id).await?, &*old.sid);
                let reason = "another user logged in";
                Some(audit_trail::session_end(&user.id, owner, reason, None, session.created_at))
            }
            None => None,
        };
        let is_written = provider.audit_events().logins;
        let (user, drawn, at) = (Subject::of_user(user), session.sid.clone(), session.created_at);
        let origin = origin.clone();
        Ok(move |begun: &Option<String>| {
            let Some(sid) = begun.as_ref().filter(|_| is_written) else { return Vec::new() };
            let client = origin.client.as_ref();
            let login = audit_trail::login(&user, sid, (METHOD, origin.address), client, at);
            let login = if *sid == drawn { login } else { login.with("continues_session", true) };
            ended.clone().into_iter().chain([login.finish()]).collect()
        })
    }

    /// Draws a session of this user for this browser, with its secret; does not store it.
    pub(crate) fn draw_session(
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
            user_agent: self.agent.clone(),
            address: self.caller.0.to_string(),
            created_at: now,
            last_used_at: now,
            expires_at: now.plus(provider.lifetimes().session),
            ended_at: None,
            read_at: user.read_at,
        };
        Ok((session, token))
    }

    /// Attaches a stored session to this browser.
    pub(crate) fn attach(&mut self, session: SessionRow, token: Zeroizing<String>) {
        tracing::info!(user = session.user_id, sid = session.sid, address = %self.caller.0, "logged in");
        self.digest = Some(session.digest);
        (self.session, self.idle) = (Some(session), false);
        self.new_cookie = Some(token);
        self.ended = false;
    }

    /// Ends the session, idle or not, and notifies the clients that took part in it.
    ///
    /// # Errors
    /// [`OAuthFault`] when the store fails.
    pub async fn end(
        &mut self,
        provider: &Provider,
        client: Option<&Client>,
        reason: &'static str,
    ) -> Result<(), OAuthFault> {
        if let Some(session) = self.session.take() {
            let change = end_change(provider, &session.user_id, &session.sid, reason);
            if provider.audit_events().logins {
                let user = audit_trail::user(provider, &session.user_id).await?;
                let owner = (&user, &*session.sid);
                let entry = audit_trail::session_end(&session.user_id, owner, reason, client, change.now);
                provider.store().write(Audited { change, entry }).await?;
            } else {
                provider.store().write(change).await?;
            }
        }
        self.digest = None;
        self.new_cookie = None;
        self.ended = true;
        Ok(())
    }

    /// Adds the `Set-Cookie` fields of the response.
    pub fn set_cookies(&self, headers: &mut HeaderMap) {
        let (browser, session) = cookie_names(self.secure);
        let attributes = if self.secure {
            "; Path=/; Secure; HttpOnly; SameSite=Lax"
        } else {
            "; Path=/; HttpOnly; SameSite=Lax"
        };
        let mut set = |text: Zeroizing<String>| {
            // Names and values contain only letters, digits, `-` and `_`.
            if let Ok(mut value) = HeaderValue::from_str(&text) {
                value.set_sensitive(true);
                headers.append(SET_COOKIE, value);
            }
        };
        if self.id_source == BrowserIdSource::New {
            set(Zeroizing::new(format!("{browser}={}{attributes}; Max-Age=31536000", self.id)));
        }
        if let Some(token) = &self.new_cookie {
            set(Zeroizing::new(format!("{session}={}{attributes}", &**token)));
        } else if self.ended {
            set(Zeroizing::new(format!("{session}={attributes}; Max-Age=0")));
        }
    }
}

/// Whether a session is valid: neither ended, expired nor idle for too long.
///
/// # Errors
/// [`StoreError`] when the read fails.
pub async fn is_valid(provider: &Provider, sid: &str) -> Result<bool, StoreError> {
    let (now, idle) = (provider.now(), provider.lifetimes().session_idle);
    let session = provider.store().session_by_sid(sid).await?;
    Ok(session.is_some_and(|session| {
        session.ended_at.is_none() && now < session.expires_at && now < session.last_used_at.plus(idle)
    }))
}

/// The change that ends one session.
pub fn end_change(provider: &Provider, user_id: &str, sid: &str, reason: &'static str) -> EndSession {
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
    let mut bytes = [0; BROWSER_ID_BYTES];
    provider.entropy().fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Names of the browser cookie and of the session cookie.
fn cookie_names(secure: bool) -> (&'static str, &'static str) {
    if secure {
        ("__Host-postern_browser", "__Host-postern_session")
    } else {
        ("postern_browser", "postern_session")
    }
}

/// Value of a cookie that occurs exactly once. If it occurs twice, one may come from an attacker,
/// so neither is used (RFC 6265 §8.6).
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

//! Session administration: list and end users' sessions.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::json;
use store::sessions::SessionRow;

use super::paging::{Listed, Part};
use super::{Admin, AdminFault, Page, UtcTime};
use crate::session;

/// Login session of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct SessionView {
    /// Session id, the `sid` of tokens.
    pub sid: String,
    /// Id of the user.
    pub user_id: String,
    /// When the user authenticated.
    pub authenticated_at: UtcTime,
    /// Authentication methods (`amr`, RFC 8176), separated by spaces.
    pub methods: String,
    /// The browser's `User-Agent` at login.
    pub agent: String,
    /// Address of the browser at login.
    pub address: String,
    /// When the session began.
    pub created_at: UtcTime,
    /// When it was last used, with a precision of about one minute.
    pub seen_at: UtcTime,
    /// When it expires, even if it is in use.
    pub expires_at: UtcTime,
    /// When it was ended; absent if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<UtcTime>,
}

impl From<SessionRow> for SessionView {
    fn from(session: SessionRow) -> Self {
        Self {
            sid: session.sid,
            user_id: session.user_id,
            authenticated_at: UtcTime(session.authenticated_at),
            methods: session.methods,
            agent: session.user_agent,
            address: session.address,
            created_at: UtcTime(session.created_at),
            seen_at: UtcTime(session.last_used_at),
            expires_at: UtcTime(session.expires_at),
            ended_at: session.ended_at.map(UtcTime),
        }
    }
}

impl Listed for SessionView {
    fn position(&self) -> String {
        self.sid.clone()
    }

    fn searched(&self) -> Vec<Cow<'_, str>> {
        [&self.sid, &self.user_id, &self.address, &self.agent].map(Cow::from).into()
    }
}

/// Query parameters of the list of sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListSessions {
    /// Only sessions after this `sid`.
    pub after: Option<String>,
    /// Most entries to return: 1 to 500; default 100.
    pub limit: Option<u32>,
    /// Only sessions with this text, in any case, in the `sid`, the user id, the address or the
    /// browser. A page of a search looks at 10 000 of them at most, so it may be short although more
    /// follow.
    pub search: Option<String>,
    /// Only sessions of this user: id, name or email address.
    pub user: Option<String>,
}

impl Admin<'_> {
    /// Lists sessions that have not ended, ordered by `sid`.
    ///
    /// # Errors
    /// [`AdminFault`] when the limit is out of range, there is no such user or the store fails.
    pub async fn sessions(&self, list: &ListSessions) -> Result<Page<SessionView>, AdminFault> {
        let (store, now) = (self.provider.store(), self.now());
        let user = self.optional_user_id(list.user.as_deref()).await?;
        let (user, part) = (
            user.as_deref(),
            Part { search: list.search.as_deref(), limit: list.limit, after: list.after.as_deref() },
        );
        part.read(move |after: String, count| async move {
            let sessions = store.sessions(user, &after, count, now).await?;
            Ok(sessions.into_iter().map(SessionView::from).collect())
        })
        .await
    }

    /// Returns one session, ended or not.
    ///
    /// # Errors
    /// [`AdminFault::NotFound`] when there is no such session.
    pub async fn session(&self, sid: &str) -> Result<SessionView, AdminFault> {
        Ok(self.session_row(sid).await?.into())
    }

    /// Ends a session, revokes what was granted in it and notifies its clients.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such session or the store fails.
    pub async fn end_session(&self, sid: &str) -> Result<(), AdminFault> {
        let session = self.session_row(sid).await?;
        let change =
            session::end_change(self.provider, &session.user_id, sid, "session ended by an operator");
        let entry = self.entry("session.end", format!("session:{sid}"), &json!({ "user": session.user_id }));
        // Ending an ended session has no effect.
        self.write(change, entry).await?;
        Ok(())
    }

    async fn session_row(&self, sid: &str) -> Result<SessionRow, AdminFault> {
        let session = self.provider.store().session_by_sid(sid).await?;
        session.ok_or_else(|| AdminFault::not_found("session", sid))
    }
}

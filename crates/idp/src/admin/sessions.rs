//! Session administration: list and end users' sessions.

use serde::{Deserialize, Serialize};
use serde_json::json;
use store::sessions::SessionRow;

use super::{Admin, AdminFault, Page, UtcTime, paging};
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

/// Query parameters of the list of sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListSessions {
    /// Only sessions after this `sid`.
    pub after: Option<String>,
    /// Most entries to return: 1 to 500; default 100.
    pub limit: Option<u32>,
    /// Only sessions of the user with this id.
    pub user: Option<String>,
}

impl Admin<'_> {
    /// Lists sessions that have not ended, ordered by `sid`.
    ///
    /// # Errors
    /// [`AdminFault`] when the limit is out of range or the store fails.
    pub async fn sessions(&self, list: &ListSessions) -> Result<Page<SessionView>, AdminFault> {
        let limit = paging::limit(list.limit)?;
        let after = list.after.as_deref().unwrap_or_default();
        let store = self.provider.store();
        let sessions = store.sessions(list.user.as_deref(), after, limit + 1, self.now()).await?;
        let views = sessions.into_iter().map(SessionView::from).collect();
        Ok(Page::cut(views, limit, |session: &SessionView| session.sid.clone()))
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

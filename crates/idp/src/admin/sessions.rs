//! Sessions: who is logged in, and where.

use serde::{Deserialize, Serialize};
use serde_json::json;
use store::sessions::SessionRow;

use super::{Admin, AdminFault, Page, paging, seconds};
use crate::session;

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct SessionView {
    /// Its name, the `sid` of tokens.
    pub sid: String,
    /// Whose.
    pub user_id: String,
    /// When they proved who they are, in seconds since 1970.
    pub authenticated_at: u64,
    /// How (`amr`, RFC 8176), separated by spaces.
    pub methods: String,
    /// The browser, as it calls itself.
    pub agent: String,
    /// Where it came from.
    pub address: String,
    /// When it began.
    pub created_at: u64,
    /// When it was last used, to the minute or so.
    pub seen_at: u64,
    /// When it ends whatever happens.
    pub expires_at: u64,
    /// Since when it is over; absent: it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
}

impl From<SessionRow> for SessionView {
    fn from(session: SessionRow) -> Self {
        Self {
            sid: session.sid,
            user_id: session.user_id,
            authenticated_at: seconds(session.authenticated_at),
            methods: session.methods,
            agent: session.agent,
            address: session.address,
            created_at: seconds(session.created_at),
            seen_at: seconds(session.seen_at),
            expires_at: seconds(session.expires_at),
            ended_at: session.ended_at.map(seconds),
        }
    }
}

/// Which sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListSessions {
    /// Those after this `sid`.
    pub after: Option<String>,
    /// At most so many: 1 to 500, 100 when absent.
    pub limit: Option<u32>,
    /// Only those of this user, by id.
    pub user: Option<String>,
}

impl Admin<'_> {
    /// Sessions that are not over, in the order of their `sid`.
    pub async fn sessions(&self, list: &ListSessions) -> Result<Page<SessionView>, AdminFault> {
        let limit = paging::limit(list.limit)?;
        let after = list.after.as_deref().unwrap_or_default();
        let store = self.provider.store();
        let sessions = store.sessions(list.user.as_deref(), after, limit + 1, self.now()).await?;
        let views = sessions.into_iter().map(SessionView::from).collect();
        Ok(Page::cut(views, limit, |session: &SessionView| session.sid.clone()))
    }

    /// One session, over or not.
    pub async fn session(&self, sid: &str) -> Result<SessionView, AdminFault> {
        Ok(self.session_row(sid).await?.into())
    }

    /// Ends a session with what was granted in it; clients that took part are told.
    pub async fn end_session(&self, sid: &str) -> Result<(), AdminFault> {
        let session = self.session_row(sid).await?;
        let change = session::ending(self.provider, &session.user_id, sid, "session ended by an operator");
        let entry = self.entry("session.end", format!("session:{sid}"), &json!({ "user": session.user_id }));
        // one that is over stays so
        self.write(change, entry).await?;
        Ok(())
    }

    async fn session_row(&self, sid: &str) -> Result<SessionRow, AdminFault> {
        let found = self.provider.store().session_by_sid(sid).await?;
        found.ok_or_else(|| AdminFault::no("session", sid))
    }
}

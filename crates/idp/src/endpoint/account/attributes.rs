//! The attributes of a user on the account page: those that the user may see, and the form that
//! changes those that the user may change.

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use store::audit::Audited;
use store::sessions::SessionRow;
use store::users::{ChangeUser, UserRow};

use super::{Problem, begin_account_form, page, redirect_done};
use crate::attributes::{Attribute, AttributeType, UserAccess};
use crate::audit_draft::{AuditDraft, Subject};
use crate::oauth::error::OAuthFault;
use crate::oauth::form::Form;
use crate::pages::{AttributeField, AttributeInput};
use crate::provider::Provider;
use crate::revocations;

/// Attempts to apply a change while others change the same account.
const MAX_ATTEMPTS: usize = 3;
/// Prefix of the names of form fields.
const FIELD: &str = "attribute.";

/// A field of the page with the texts that it shows.
pub(super) struct Field<'p> {
    attribute: &'p Attribute,
    label: &'p str,
    name: String,
    value: String,
}

/// The attributes that the user may see, in the language of the page.
pub(super) fn fields<'p>(provider: &'p Provider, user: &UserRow, language: &str) -> Vec<Field<'p>> {
    let record: Map<String, Value> = serde_json::from_str(&user.claims).unwrap_or_default();
    let field = |attribute: &'p Attribute| Field {
        attribute,
        label: attribute.label(language),
        name: format!("{FIELD}{}", attribute.name),
        value: attribute.shown(&record),
    };
    provider.clients().defaults().attributes.shown_to_user().map(field).collect()
}

impl Field<'_> {
    pub(super) fn view(&self) -> AttributeField<'_> {
        AttributeField {
            label: self.label,
            name: &self.name,
            value: &self.value,
            input: match (self.attribute.user, self.attribute.kind) {
                (UserAccess::Edit, AttributeType::String) if self.attribute.values.is_empty() => {
                    AttributeInput::Text
                }
                (UserAccess::Edit, AttributeType::String) => AttributeInput::Choice(&self.attribute.values),
                (UserAccess::Edit, AttributeType::Integer) => AttributeInput::Number,
                (UserAccess::Edit, AttributeType::Boolean) => AttributeInput::YesNo,
                (UserAccess::Edit, AttributeType::StringList) => AttributeInput::List,
                (UserAccess::View | UserAccess::None, AttributeType::Boolean) => AttributeInput::YesNoShown,
                (UserAccess::View | UserAccess::None, _) => AttributeInput::Shown,
            },
        }
    }
}

/// Handles the form with the attributes.
pub(super) async fn change(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (visit, form, session) = match begin_account_form(&provider, request).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    match try_change(&provider, &session, &form).await {
        Ok(None) => redirect_done(&visit, "attributes"),
        Ok(Some(name)) => page(&visit, None, Some(Problem::Attribute(name))).await,
        Err(fault) => visit.failed(&fault),
    }
}

/// Changes the attributes that the form contains. Returns the name of a field whose value is not
/// permitted; then nothing is changed.
async fn try_change(
    provider: &Provider,
    session: &SessionRow,
    form: &Form,
) -> Result<Option<String>, OAuthFault> {
    for _ in 0..MAX_ATTEMPTS {
        let user = provider.store().user(&session.user_id).await?.ok_or(OAuthFault::LoginFailed)?;
        let mut record: Map<String, Value> = serde_json::from_str(&user.claims).unwrap_or_default();
        let mut changed = Vec::new();
        for attribute in provider.clients().defaults().attributes.iter() {
            let field = format!("{FIELD}{}", attribute.name);
            let text = form.get(&field).unwrap_or_default();
            let same = !form.contains(&field) || text.trim() == attribute.shown(&record);
            if attribute.user != UserAccess::Edit || same {
                continue;
            }
            match attribute.entered(text) {
                Ok(Some(value)) => record.insert(attribute.name.clone(), value),
                Ok(None) => record.remove(&attribute.name),
                Err(_) => return Ok(Some(field)),
            };
            changed.push(&*attribute.name);
        }
        if changed.is_empty() || write(provider, user, record, &changed).await? {
            return Ok(None);
        }
    }
    Err(OAuthFault::LoginFailed)
}

/// Writes the record. `false`: the account was changed meanwhile.
async fn write(
    provider: &Provider,
    user: UserRow,
    record: Map<String, Value>,
    changed: &[&str],
) -> Result<bool, OAuthFault> {
    let now = provider.now();
    let id = user.id.clone();
    let draft = AuditDraft::by_user(&Subject::of_user(&user), "user.change", format!("user:{id}"), now);
    let change = ChangeUser {
        name: user.name.clone(),
        email: user.email.clone(),
        email_verified_at: user.email_verified_at,
        claims: Value::Object(record).to_string(),
        revocation: revocations::user_changed(provider, &id, "account changed", now),
        now,
        from: user,
    };
    let entry = draft.with("changed", json!(changed)).finish();
    let done = provider.store().write(Audited { change, entry }).await?;
    provider.logins().forget(&id);
    Ok(done)
}

//! Administration request, parsed strictly: everything that the operation does not take is refused.

use std::{fmt, sync::Arc};

use axum::{
    body::Bytes,
    extract::{FromRequestParts as _, Query, RawPathParams, Request},
    http::{HeaderMap, Uri, header::CONTENT_TYPE},
};
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::{
    OperationInput,
    access::{self, Right},
};
use crate::{
    admin::{Admin, AdminFault},
    endpoint::form,
    provider::Provider,
};

/// An authorized request.
pub(super) struct Call {
    provider: Arc<Provider>,
    actor: String,
    path: Vec<(String, String)>,
    uri: Uri,
    body: Bytes,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("actor", &self.actor).finish_non_exhaustive()
    }
}

impl Call {
    /// Authorizes the request before reading anything else of it.
    pub(super) async fn read(
        provider: &Arc<Provider>,
        request: Request,
        right: Right,
        takes: OperationInput,
    ) -> Result<Self, AdminFault> {
        let (mut parts, body) = request.into_parts();
        let actor = access::authorize(provider, &parts.headers, right).await?;
        let path = RawPathParams::from_request_parts(&mut parts, &()).await;
        let path = path.map_err(|_| AdminFault::refused("path", "it is not percent-encoded utf-8"))?;
        let path: Vec<_> = path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        without_nul(&path, parts.uri.query().unwrap_or_default())?;
        if takes != OperationInput::Query && parts.uri.query().is_some() {
            return Err(AdminFault::refused("query", "the operation takes no query parameters"));
        }
        if takes == OperationInput::Body && !declares_json(&parts.headers) {
            return Err(AdminFault::ContentTypeNotJson);
        }
        let body = form::read_body(body).await?;
        if takes != OperationInput::Body && !body.is_empty() {
            return Err(AdminFault::refused("body", "the operation takes no body"));
        }
        Ok(Self { provider: provider.clone(), actor, path, uri: parts.uri, body })
    }

    /// The operations, on behalf of the request's actor.
    pub(super) fn admin(&self) -> Admin<'_> {
        Admin::new(&self.provider, self.actor.as_str())
    }

    /// The value of a path parameter.
    pub(super) fn path_parameter(&self, name: &str) -> &str {
        self.path.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The id of the user whom a path parameter names: by id, name or email address.
    pub(super) async fn user(&self, parameter: &str) -> Result<String, AdminFault> {
        self.admin().user_id(self.path_parameter(parameter)).await
    }

    /// The id of the client that a path parameter names: by id or display name.
    pub(super) async fn client(&self, parameter: &str) -> Result<String, AdminFault> {
        self.admin().client_id(self.path_parameter(parameter)).await
    }

    /// Parses the query parameters.
    pub(super) fn query<T: DeserializeOwned>(&self) -> Result<T, AdminFault> {
        match Query::try_from_uri(&self.uri) {
            Ok(Query(query)) => Ok(query),
            Err(error) => Err(AdminFault::refused("query", error.body_text())),
        }
    }

    /// Parses the JSON body.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, AdminFault> {
        serde_json::from_slice(&self.body).map_err(|error| match error.classify() {
            Category::Data => AdminFault::refused("body", error.to_string()),
            _ => AdminFault::InvalidJson(error.to_string()),
        })
    }
}

/// Refuses NUL characters: no stored text contains one, and PostgreSQL accepts none in a query.
fn without_nul(path: &[(String, String)], query: &str) -> Result<(), AdminFault> {
    let in_path = path.iter().find(|(_, value)| value.contains('\0')).map(|(name, _)| name.as_str());
    let escaped = query.split('&').find(|pair| pair.contains("%00"));
    match in_path.or(escaped.map(|pair| pair.split('=').next().unwrap_or_default())) {
        Some(name) => Err(AdminFault::refused(name, "it contains a NUL character: remove it")),
        None => Ok(()),
    }
}

/// Whether there is exactly one content type and it is JSON, optionally with `charset=utf-8`.
fn declares_json(headers: &HeaderMap) -> bool {
    let mut fields = headers.get_all(CONTENT_TYPE).iter();
    let (Some(only), None) = (fields.next(), fields.next()) else { return false };
    let Ok(text) = only.to_str() else { return false };
    let mut pieces = text.split(';').map(str::trim);
    let json = pieces.next().is_some_and(|t| t.eq_ignore_ascii_case("application/json"));
    json && pieces.all(|p| p.eq_ignore_ascii_case("charset=utf-8"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn json_is_declared_once() {
        let declared = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_TYPE, HeaderValue::from_static(value));
            }
            declares_json(&headers)
        };
        assert!(declared(&["application/json"]) && declared(&["Application/JSON; charset=UTF-8"]));
        for bad in [
            &[][..],
            &["application/json", "application/json"],
            &["text/json"],
            &["application/json; charset=latin-1"],
            &["application/x-www-form-urlencoded"],
        ] {
            assert!(!declared(bad), "{bad:?}");
        }
    }
}

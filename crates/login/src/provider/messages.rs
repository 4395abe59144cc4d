//! Parts of requests to a provider, and of its answers.

use auth::json::Document;
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use http_engine::http_client::{CallError, HttpResponse, form_encoded};
use http_engine::url::Url;

use crate::config::{LoginKind, LoginProvider};
use crate::provider::provider_fault::ProviderFault;

/// Distinguishes providers of one name: a digest of address and client ID.
pub(super) fn binding(config: &LoginProvider) -> String {
    let place = match &config.kind {
        LoginKind::OpenId { issuer, .. } => issuer.to_string(),
        LoginKind::OpenShift { api } => api.to_string(),
    };
    let text = format!("{place}\n{}", config.client_id);
    URL_SAFE_NO_PAD.encode(&digest::digest(&digest::SHA256, text.as_bytes()).as_ref()[..9])
}

pub(super) fn call_fault(context: &'static str) -> impl Fn(CallError) -> ProviderFault {
    move |fault| ProviderFault::Call { context, fault }
}

pub(super) fn invalid_answer(context: &'static str, why: &str) -> ProviderFault {
    ProviderFault::InvalidAnswer { context, why: why.to_owned() }
}

pub(super) fn parse(context: &'static str, answer: &HttpResponse) -> Result<Document, ProviderFault> {
    Document::parse(answer.body.to_vec()).map_err(|error| {
        invalid_answer(context, &format!("it answered {} with what is {error}", answer.status))
    })
}

pub(super) fn bearer(token: &str) -> Result<HeaderValue, ProviderFault> {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| {
        invalid_answer("token endpoint", "its access token has characters that a header cannot carry")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// A text from another party, sanitized for a log.
pub(crate) fn sanitized(text: &str) -> String {
    text.chars().filter(|c| matches!(c, ' '..='~')).take(100).collect()
}

pub(super) fn encoded(parameters: &[(&str, &str)]) -> String {
    let pairs =
        parameters.iter().map(|(name, value)| format!("{}={}", *form_encoded(name), *form_encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

pub(super) fn with_query(url: &Url, parameters: &[(&str, &str)]) -> String {
    let between = if url.target().contains('?') { '&' } else { '?' };
    format!("{url}{between}{}", encoded(parameters))
}

/// The `claims` parameter (Core §5.5.1) that requests `read_at` in ID tokens, in addition to what
/// is `configured`. `None`: the configured value is not a JSON object of that form, and is sent
/// unchanged.
pub(super) fn with_read_at(configured: Option<&str>) -> Option<String> {
    use serde_json::{Map, Value};
    let mut claims: Map<String, Value> = match configured {
        Some(text) => serde_json::from_str(text).ok()?,
        None => Map::new(),
    };
    let id_token = claims.entry("id_token").or_insert_with(|| Value::Object(Map::new()));
    if id_token.is_null() {
        *id_token = Value::Object(Map::new());
    }
    id_token.as_object_mut()?.entry("read_at").or_insert(Value::Null);
    serde_json::to_string(&claims).ok()
}

pub(super) fn below(base: &Url, path: &str) -> Result<Url, ProviderFault> {
    let text = format!("{}{path}", base.to_string().trim_end_matches('/'));
    Url::parse(&text).map_err(|fault| invalid_answer("address", &fault.to_string()))
}

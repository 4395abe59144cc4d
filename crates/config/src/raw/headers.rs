//! Tables of `request_headers`, `response_headers` and `security_headers`: changes of the headers
//! that pass through, for all routes or for one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::{FieldName, Timespan};

/// Changes of request headers on their way to the upstream. A header that is set or removed is
/// first removed, in any spelling, from the client's request and from what authorizers answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RequestHeaders {
    /// Headers by name that replace those of the client and of authorizers. A header whose value is not known, such as an
    /// e-mail address that the caller does not have, is not sent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, HeaderText>,
    /// Headers by name that are sent in addition to those.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add: BTreeMap<String, HeaderText>,
    /// Names of headers of the client and of authorizers that are not sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<FieldName>,
}

/// Changes of response headers on their way to the client. Responses of the gateway itself, such as
/// a 403, keep their own headers; what is set or added applies to them as far as they do not have
/// it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResponseHeaders {
    /// Headers by name that replace those of the upstream.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, HeaderText>,
    /// Headers by name that are sent in addition to those of the upstream.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add: BTreeMap<String, HeaderText>,
    /// Names of headers of the upstream that are not sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<FieldName>,
}

/// Value of a header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HeaderText {
    /// Text with placeholders: `{user}` (the subject if there is no user name),
    /// `{preferred_username}`, `{subject}`, `{issuer}`, `{email}`, `{client}`, `{groups}`,
    /// `{scopes}`, `{claims.PATH}`, `{access_token}` (of the session, or the bearer token of the
    /// request), `{id_token}` (of the session) and `{client_address}`. `{{` and `}}` are braces.
    Text(String),
    /// Text with the content of a file.
    File(HeaderFile),
}

/// Value of a header with the content of a file, such as a key for the upstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderFile {
    /// File with one line of printable ASCII. It is read again when it changes.
    pub file: PathBuf,
    /// Text with placeholders, of which `{file}` is the content of the file.
    #[serde(default = "file_only")]
    pub text: String,
}

fn file_only() -> String {
    "{file}".into()
}

/// Security headers of responses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SecurityHeadersChoice {
    /// `true`: the defaults. `false`: none, where `[security_headers]` sets them for all routes.
    Default(bool),
    /// These.
    Table(SecurityHeaders),
}

/// Security headers of responses. A header that the upstream sends itself is kept. An empty text
/// leaves a header out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SecurityHeaders {
    /// How long browsers use only `https` for this host (`Strict-Transport-Security`, RFC 6797), or
    /// `"0s"` for browsers to forget it. Sent in responses to `https` requests only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hsts: Option<Timespan>,
    /// Whether that includes all hosts below this one.
    pub hsts_subdomains: bool,
    /// `Content-Security-Policy`. Default: none, because each application needs its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_security_policy: Option<String>,
    /// `X-Frame-Options`.
    pub frame_options: String,
    /// `X-Content-Type-Options`.
    pub content_type_options: String,
    /// `Referrer-Policy`.
    pub referrer_policy: String,
    /// `Permissions-Policy`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions_policy: Option<String>,
    /// `Cross-Origin-Opener-Policy`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_origin_opener_policy: Option<String>,
}

impl Default for SecurityHeaders {
    fn default() -> Self {
        Self {
            hsts: Some(super::default::secs::<31_536_000>()),
            hsts_subdomains: false,
            content_security_policy: None,
            frame_options: "SAMEORIGIN".into(),
            content_type_options: "nosniff".into(),
            referrer_policy: "strict-origin-when-cross-origin".into(),
            permissions_policy: None,
            cross_origin_opener_policy: None,
        }
    }
}

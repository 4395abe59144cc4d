//! Local reply: a response that the gateway generates itself, and its wire format.
//!
//! Owns: status, fields and body as values, and their HTTP/1 form. Does not own: why it is sent
//! (the gateway's table of refusals, the login's pages).

use std::borrow::Cow;

use crate::field_edits::FieldEdits;
use crate::http1::writing::{put_decimal, put_field, put_status_line};
use crate::labels::Outcome;

/// A response that the gateway generates itself.
#[derive(Debug)]
pub struct LocalReply {
    /// HTTP status code.
    pub status: u16,
    /// Stable code for logs and metrics; also in the body of [`LocalReply::from_code`].
    pub code: &'static str,
    /// How the request is counted.
    pub outcome: Outcome,
    /// Fields besides the framing fields.
    pub fields: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    /// Body of the response.
    pub body: Cow<'static, [u8]>,
    /// Whether the connection closes after it, because nothing more can be read.
    pub close: bool,
}

impl LocalReply {
    /// A response whose body is its code as plain text.
    pub fn from_code(status: u16, code: &'static str, outcome: Outcome) -> Self {
        Self {
            status,
            code,
            outcome,
            fields: vec![
                ("content-type".into(), "text/plain; charset=utf-8".into()),
                ("cache-control".into(), "no-store".into()),
                ("x-content-type-options".into(), "nosniff".into()),
            ],
            body: Cow::Owned(format!("{code}\n").into_bytes()),
            close: false,
        }
    }

    /// A 200 response with a document of the gateway, such as its key set.
    pub fn document(content_type: &'static str, cache: &'static str, body: Vec<u8>) -> Self {
        Self {
            status: 200,
            code: "local",
            outcome: Outcome::Local,
            fields: vec![
                ("content-type".into(), content_type.into()),
                ("cache-control".into(), cache.into()),
                ("x-content-type-options".into(), "nosniff".into()),
            ],
            body: body.into(),
            close: false,
        }
    }

    /// The fields as they are sent, with this value of `Set-Cookie` and the edits that apply to the
    /// request. A response with a session cookie must not be cached, so `Cache-Control` becomes
    /// `no-store` (RFC 9111 §5.2.2.5).
    pub fn sent_fields<'a>(
        &'a self,
        cookie: Option<&'a str>,
        edits: Option<&'a FieldEdits>,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let kept = move |name: &str| cookie.is_none() || !name.eq_ignore_ascii_case("cache-control");
        let own = self.fields.iter().filter(move |(name, _)| kept(name));
        let session = cookie.map(|cookie| [("set-cookie", cookie), ("cache-control", "no-store")]);
        let has = |name: &str| self.fields.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        let edited = edits.into_iter().flat_map(move |edits| edits.for_local_reply(has));
        own.map(|(name, value)| (&**name, &**value)).chain(session.into_iter().flatten()).chain(edited)
    }

    /// Appends the HTTP/1.1 form. `head`: omit the body, as for a HEAD request. `connection` is the
    /// value of that field if one is needed; `cookie` and `edits` are those of [`Self::sent_fields`].
    pub fn put_http1(
        &self,
        out: &mut Vec<u8>,
        head: bool,
        connection: Option<&str>,
        cookie: Option<&str>,
        edits: Option<&FieldEdits>,
    ) {
        put_status_line(out, self.status);
        for (name, value) in self.sent_fields(cookie, edits) {
            put_field(out, name, value.as_bytes());
        }
        // These have no body, and must not (204) or need not (304) state a length (RFC 9110 §8.6).
        if !matches!(self.status, 204 | 304) {
            out.extend_from_slice(b"content-length: ");
            put_decimal(out, self.body.len() as u64);
            out.extend_from_slice(b"\r\n");
        }
        if let Some(connection) = connection {
            put_field(out, "connection", connection.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if !head {
            out.extend_from_slice(&self.body);
        }
    }
}

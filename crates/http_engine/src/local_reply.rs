//! An answer of the process's own, and its wire form.
//!
//! Owns: status, fields and body as values, and how HTTP/1 writes them. Does not own: why it is given (the gateway's table of
//! refusals, the login's pages).

use std::borrow::Cow;

use crate::http1::writing::{put_decimal, put_field, put_status_line};
use crate::labels::Outcome;

/// An answer of the gateway's own.
#[derive(Debug)]
pub struct LocalReply {
    /// HTTP status.
    pub status: u16,
    /// Stable word for logs and metrics; also in the body.
    pub code: &'static str,
    /// How the request counts.
    pub outcome: Outcome,
    /// Fields beside the framing ones.
    pub fields: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    /// The body.
    pub body: Cow<'static, [u8]>,
    /// Nothing more can be read from the connection after this.
    pub close: bool,
}

impl LocalReply {
    /// An answer that is its status.
    pub fn plain(status: u16, code: &'static str, outcome: Outcome) -> Self {
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

    /// A document of the gateway's own, such as its key set.
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

    /// Fields as they are sent, with this value of `Set-Cookie`. An answer with somebody's session in it is kept by nobody, whatever it says
    /// besides (RFC 9111 §5.2.2.5).
    pub fn sent_fields<'a>(&'a self, cookie: Option<&'a str>) -> impl Iterator<Item = (&'a str, &'a str)> {
        let kept = move |name: &str| cookie.is_none() || !name.eq_ignore_ascii_case("cache-control");
        let own = self.fields.iter().filter(move |(name, _)| kept(name));
        let session = cookie.map(|cookie| [("set-cookie", cookie), ("cache-control", "no-store")]);
        own.map(|(name, value)| (&**name, &**value)).chain(session.into_iter().flatten())
    }

    /// Appends the HTTP/1.1 form. `head` leaves the body out, as HEAD wants it; `connection` is the value of
    /// that field, if one is needed, and `cookie` that of `Set-Cookie`.
    pub fn put_http1(&self, out: &mut Vec<u8>, head: bool, connection: Option<&str>, cookie: Option<&str>) {
        put_status_line(out, self.status);
        for (name, value) in self.sent_fields(cookie) {
            put_field(out, name, value.as_bytes());
        }
        out.extend_from_slice(b"content-length: ");
        put_decimal(out, self.body.len() as u64);
        out.extend_from_slice(b"\r\n");
        if let Some(connection) = connection {
            put_field(out, "connection", connection.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if !head {
            out.extend_from_slice(&self.body);
        }
    }
}

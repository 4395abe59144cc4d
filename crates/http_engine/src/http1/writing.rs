//! HTTP/1 serialization: lines of a head, chunks, and the framing of a response for its client.
//!
//! Owns: the bytes. Does not own: when they are sent ([`super::connection`]), which fields are
//! sent.

use auth::request::Field;

use crate::head::Framing;
use crate::http_stream::{BodyLength, NominatedFields, ResponseView};

/// Appends `name: value` and CRLF.
pub fn put_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a decimal number.
pub fn put_decimal(out: &mut Vec<u8>, n: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut n = n;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(n % 10).unwrap_or(0);
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a chunk (RFC 9112 §7.1), or nothing if `data` is empty.
pub(crate) fn put_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return; // an empty chunk would end the body
    }
    let mut digits = [0; 16];
    let mut at = digits.len();
    let mut n = data.len();
    while n > 0 {
        at -= 1;
        digits[at] = b"0123456789abcdef"[n & 15];
        n >>= 4;
    }
    out.reserve(data.len() + 24);
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Appends a status line with the registered reason phrase.
pub(crate) fn put_status_line(out: &mut Vec<u8>, status: u16) {
    if status == 200 {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    put_decimal(out, u64::from(status));
    out.push(b' ');
    let reason = http::StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    out.extend_from_slice(reason.unwrap_or("").as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the status line and the forwarded fields of a response, without framing fields and the
/// final empty line.
pub fn put_response(out: &mut Vec<u8>, response: &ResponseView<'_>) {
    put_status_line(out, response.status);
    match response.forwarded {
        Some(lines) => out.extend_from_slice(lines),
        None => put_forwarded(out, response.fields),
    }
}

/// Appends the lines with those fields of a response that are forwarded.
pub(crate) fn put_forwarded(out: &mut Vec<u8>, fields: &[Field<'_>]) {
    for field in NominatedFields::from_fields(fields).forwarded(fields) {
        put_field(out, field.name, field.value);
    }
}

/// The framing of a response. `unknown`: the framing of a body of unknown length, which depends on
/// the codings that the client understands.
pub fn response_framing(status: u16, body: BodyLength, head_request: bool, unknown: Framing) -> Framing {
    if head_request || matches!(status, 100..=199 | 204 | 304) {
        return Framing::Length(0);
    }
    match body {
        BodyLength::Known(n) => Framing::Length(n),
        BodyLength::Unknown => unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_chunks_are_written_as_they_are_read() {
        let mut out = Vec::new();
        put_decimal(&mut out, 0);
        out.push(b' ');
        put_decimal(&mut out, u64::MAX);
        assert_eq!(out, b"0 18446744073709551615");
        let mut out = Vec::new();
        put_chunk(&mut out, &[b'x'; 26]);
        put_chunk(&mut out, b"");
        assert!(out.starts_with(b"1a\r\nxx") && out.ends_with(b"xx\r\n"));
    }

    #[test]
    fn status_lines_carry_the_registered_phrase() {
        let mut out = Vec::new();
        put_status_line(&mut out, 200);
        put_status_line(&mut out, 429);
        put_status_line(&mut out, 799);
        assert_eq!(out, b"HTTP/1.1 200 OK\r\nHTTP/1.1 429 Too Many Requests\r\nHTTP/1.1 799 \r\n");
    }
}

//! gRPC over HTTP/2, as far as one unary method needs it (the protocol's `PROTOCOL-HTTP2`
//! document).
//!
//! Owns: the prefix of a message, status trailers, the caller's deadline. Compressed messages are
//! refused, as a server may that did not offer any compression.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};

/// gRPC status codes that this service sends.
pub(crate) const OK: i32 = 0;
pub(crate) const INVALID_ARGUMENT: i32 = 3;
pub(crate) const DEADLINE_EXCEEDED: i32 = 4;
pub(crate) const PERMISSION_DENIED: i32 = 7;
pub(crate) const UNIMPLEMENTED: i32 = 12;
pub(crate) const UNAVAILABLE: i32 = 14;
pub(crate) const UNAUTHENTICATED: i32 = 16;

/// Bytes before a message: the compression flag and the length.
const PREFIX: usize = 5;

/// Whether a content type is that of gRPC with protocol buffers.
pub(crate) fn is_grpc(content_type: &[u8]) -> bool {
    content_type == b"application/grpc"
        || content_type.starts_with(b"application/grpc+proto")
        || content_type.starts_with(b"application/grpc;")
}

/// Why a body does not contain exactly one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FramingError {
    /// The body is shorter or longer than the message.
    Length,
    /// The message is compressed.
    Compressed,
}

/// Extracts the only message of a complete body.
pub(crate) fn message(body: &Bytes) -> Result<Bytes, FramingError> {
    let [compressed, a, b, c, d, ..] = **body else { return Err(FramingError::Length) };
    if compressed != 0 {
        return Err(FramingError::Compressed);
    }
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if body.len() - PREFIX != length {
        return Err(FramingError::Length);
    }
    Ok(body.slice(PREFIX..))
}

/// Adds the prefix to a message.
pub(crate) fn framed(message: &Bytes) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX + message.len());
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put_slice(message);
    out.freeze()
}

/// The trailers of a response.
pub(crate) fn trailers(status: i32, text: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(2);
    trailers.insert("grpc-status", HeaderValue::from(status));
    if !text.is_empty() {
        trailers.insert("grpc-message", HeaderValue::from_static(text));
    }
    trailers
}

/// Parses the value of `grpc-timeout`: up to eight digits and a unit.
pub(crate) fn timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let n = digits
        .iter()
        .try_fold(0_u64, |n, digit| digit.is_ascii_digit().then(|| n * 10 + u64::from(digit - b'0')))?;
    Some(match unit {
        b'H' => Duration::from_secs(n * 3600),
        b'M' => Duration::from_secs(n * 60),
        b'S' => Duration::from_secs(n),
        b'm' => Duration::from_millis(n),
        b'u' => Duration::from_micros(n),
        b'n' => Duration::from_nanos(n),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_whole_message() {
        let whole = framed(&Bytes::from_static(b"abc"));
        assert_eq!(&*whole, b"\0\0\0\0\x03abc");
        assert_eq!(message(&whole).unwrap(), "abc");
        assert_eq!(message(&framed(&Bytes::new())).unwrap(), "");
        for (body, fault) in [
            (&b""[..], FramingError::Length),
            (b"\0\0\0\0", FramingError::Length),
            (b"\0\0\0\0\x04abc", FramingError::Length),
            (b"\0\0\0\0\x02abc", FramingError::Length),
            (b"\0\xff\xff\xff\xffabc", FramingError::Length),
            (b"\x01\0\0\0\x03abc", FramingError::Compressed),
        ] {
            assert_eq!(message(&Bytes::from_static(body)), Err(fault), "{body:?}");
        }
    }

    #[test]
    fn timeouts_are_digits_and_a_unit() {
        assert_eq!(timeout(b"200m"), Some(Duration::from_millis(200)));
        assert_eq!(timeout(b"5S"), Some(Duration::from_secs(5)));
        assert_eq!(timeout(b"99999999H"), Some(Duration::from_hours(99_999_999)));
        for bad in ["", "S", "5", "5s ", "-5S", "123456789S", "5x"] {
            assert_eq!(timeout(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn content_types() {
        for (text, grpc) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/json", false),
            ("application/grpc+json", false),
        ] {
            assert_eq!(is_grpc(text.as_bytes()), grpc, "{text}");
        }
    }
}

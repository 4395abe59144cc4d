//! HTTP stream: one side of an exchange, independent of its protocol.
//!
//! The gateway connects a downstream and an upstream exchange. Each side is an [`HttpStream`]: a
//! body that can be read, and a body that can be written. The relay moves data between the two and
//! knows no chunks, frames or sockets. After a protocol switch a side is a raw byte stream, and the
//! same relay serves the tunnel.

use std::io;
use std::task::{Context, Poll};

use arrayvec::ArrayVec;
use auth::request::Field;
use http::HeaderMap;

use crate::chunked::ChunkFault;
use crate::head::{ConnectionOption, HeadFault, MAX_NOMINATED, connection_options};

/// The next part of a body.
pub enum Fill<'a> {
    /// At least one byte. Data that is not consumed is returned again.
    Data(&'a [u8]),
    /// The end, with the trailer section if there was one.
    End(Option<Box<HeaderMap>>),
}

/// One side of an exchange.
pub trait HttpStream {
    /// The next data of the body being read.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<Fill<'_>, HttpStreamError>>;
    /// Consumes `n` bytes of the last fill.
    fn consume(&mut self, n: usize);
    /// Accepts up to `data.len()` bytes of the body being written; may hold them back until a
    /// flush.
    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, HttpStreamError>>;
    /// Ends the body being written.
    fn finish(&mut self, trailers: Option<Box<HeaderMap>>) -> Result<(), HttpStreamError>;
    /// Sends the data that was held back.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpStreamError>>;
    /// Returns unused buffers while the exchange is idle.
    fn release_buffers(&mut self);
    /// Treats both directions as raw bytes until either side closes (after 101, RFC 9110 §7.8).
    fn switch_protocol(&mut self);
}

/// The client's side of an exchange.
pub trait Downstream {
    /// Type of the stream with this side's bodies.
    type Leg: HttpStream;
    /// Whether the end of the client may be noticed a tick late. Most responses come sooner, and then
    /// nobody has to look for it. Not for streams: a client may reset them and open others much faster.
    const IS_WATCHED_LATER: bool = false;
    /// The stream with this side's bodies.
    fn stream(&mut self) -> &mut Self::Leg;
    /// Sends an interim response (RFC 9110 §15.2).
    fn send_interim(&mut self, response: &ResponseView<'_>) -> Result<(), HttpStreamError>;
    /// Sends the head of the final response, with additional fields of the gateway.
    fn send_head(&mut self, response: &ResponseView<'_>, own: &[AddedField]) -> Result<(), HttpStreamError>;
    /// Forgets what the connection remembers of its requests: this one takes long.
    fn forget(&mut self) {}
    /// Ready when the client has ended its side while the gateway is to send.
    fn poll_client_end(&mut self, cx: &mut Context<'_>) -> Poll<ClientEnd>;

    /// Whether the client has reset the connection, so that it can receive nothing.
    fn is_broken(&self) -> bool;
}

/// How a client ended its side of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientEnd {
    /// It sends no more data. Only a write can show whether it still reads.
    Finished,
    /// The connection or stream is broken: written data does not arrive.
    Broken,
}

/// A field that the gateway adds to a response.
pub type AddedField = (&'static str, Vec<u8>);

/// The upstream's side of an exchange.
pub trait UpstreamStream: HttpStream {
    /// Forgets what the connection remembers of its responses: this exchange takes long.
    fn forget(&mut self) {}
    /// Passes the next response head, interim or final, to `f`.
    fn poll_response<R>(
        &mut self,
        cx: &mut Context<'_>,
        f: impl FnOnce(&ResponseView<'_>) -> R,
    ) -> Poll<Result<R, HttpStreamError>>;
}

/// A response head from the upstream, for the client's codec to write.
pub struct ResponseView<'a> {
    /// Status code of the response.
    pub status: u16,
    /// Fields as received, hop-by-hop fields included. The writer skips those (see
    /// [`is_forwarded`]).
    pub fields: &'a [Field<'a>],
    /// The lines with those of the fields that are forwarded, where they are known.
    pub forwarded: Option<&'a [u8]>,
    /// Length of the body that follows.
    pub body: BodyLength,
}

/// Length of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// Known in advance; 0: no body.
    Known(u64),
    /// Not known before the end of the body.
    Unknown,
}

/// Why one side of an exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpStreamError {
    /// A socket error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer closed within a message.
    #[error("connection closed within a message")]
    Truncated,
    /// The peer closed before the first byte of an expected message.
    #[error("connection closed before the response")]
    Closed,
    /// The peer's head is invalid.
    #[error("{0}")]
    Head(#[from] HeadFault),
    /// The peer's chunked coding is invalid.
    #[error("{0}")]
    Chunk(#[from] ChunkFault),
    /// The body is larger than allowed.
    #[error("body larger than allowed")]
    TooLarge,
    /// An HTTP/2 stream or connection error.
    #[error("{0}")]
    Http2(#[from] h2::Error),
    /// The peer sent something that the protocol does not allow at this point.
    #[error("{0}")]
    Protocol(&'static str),
}

/// Whether a response field is forwarded to the client. Hop-by-hop fields are not, and neither are
/// framing fields, which the writer generates.
pub fn is_forwarded(name: &str) -> bool {
    match name.len() {
        2 => !name.eq_ignore_ascii_case("te"),
        7 => !name.eq_ignore_ascii_case("upgrade"),
        10 => !(name.eq_ignore_ascii_case("connection") || name.eq_ignore_ascii_case("keep-alive")),
        14 => !name.eq_ignore_ascii_case("content-length"),
        16 => !name.eq_ignore_ascii_case("proxy-connection"),
        17 => !name.eq_ignore_ascii_case("transfer-encoding"),
        18 => !name.eq_ignore_ascii_case("proxy-authenticate"),
        25 => !name.eq_ignore_ascii_case("proxy-authentication-info"),
        _ => true,
    }
}

/// Names of the fields that `Connection` nominates as hop-by-hop (RFC 9110 §7.6.1). The caller
/// decides which names may be nominated.
pub struct NominatedFields<'a>(ArrayVec<&'a [u8], MAX_NOMINATED>);

impl<'a> NominatedFields<'a> {
    /// No nominated fields.
    pub const fn none() -> Self {
        Self(ArrayVec::new_const())
    }

    /// Fields nominated in a head. The parser refuses a head that nominates more than the maximum.
    pub fn from_fields(fields: &[Field<'a>]) -> Self {
        let connection =
            fields.iter().filter(|f| f.name.len() == 10 && f.name.eq_ignore_ascii_case("connection"));
        let names = connection.flat_map(|f| connection_options(f.value)).filter_map(|option| match option {
            ConnectionOption::Field(name) => Some(name),
            ConnectionOption::Close | ConnectionOption::KeepAlive | ConnectionOption::Upgrade => None,
        });
        Self(names.take(MAX_NOMINATED).collect())
    }

    /// Whether the field with this name is nominated.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|nominated| nominated.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Those response fields that are forwarded to the client.
    pub fn forwarded<'f>(&self, fields: &'f [Field<'a>]) -> impl Iterator<Item = &'f Field<'a>> {
        fields.iter().filter(|field| is_forwarded(field.name) && !self.contains(field.name))
    }
}

//! One side of an exchange, whatever protocol it speaks.
//!
//! A gateway holds two conversations at once. Each is a [`Leg`]: a body that can be read, and a body that
//! can be written. The relay moves bytes between two legs and knows nothing of chunks, frames or sockets.
//! After a protocol switch a leg is a raw byte stream, and the same relay is the tunnel.

use std::io;
use std::task::{Context, Poll};

use arrayvec::ArrayVec;
use auth::request::Field;
use http::HeaderMap;

use crate::chunked::ChunkFault;
use crate::head::{ConnectionOption, HeadFault, MAX_NOMINATED, connection_options};

/// What a body has to give.
pub enum Fill<'a> {
    /// At least one byte. What is not consumed is given again.
    Data(&'a [u8]),
    /// The end, with the trailer section when there was one.
    End(Option<Box<HeaderMap>>),
}

/// One side of an exchange.
pub trait HttpStream {
    /// The next bytes of the body being read.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<Fill<'_>, HttpStreamError>>;
    /// Takes `n` bytes of the last fill.
    fn consume(&mut self, n: usize);
    /// Accepts up to `data.len()` bytes of the body being written; may hold them back until a flush.
    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, HttpStreamError>>;
    /// Ends the body being written.
    fn finish(&mut self, trailers: Option<Box<HeaderMap>>) -> Result<(), HttpStreamError>;
    /// Sends what is held back.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpStreamError>>;
    /// Gives memory back while nothing moves.
    fn rest(&mut self);
    /// From now on both directions are raw bytes until either side closes (after 101, RFC 9110 §7.8).
    fn switch_protocol(&mut self);
}

/// The client's side.
pub trait Downstream {
    /// The bodies of this side.
    type Leg: HttpStream;
    /// The bodies of this side.
    fn leg(&mut self) -> &mut Self::Leg;
    /// Sends an interim response (RFC 9110 §15.2).
    fn inform(&mut self, response: &ResponseView<'_>) -> Result<(), HttpStreamError>;
    /// Starts the final response, with further fields of our own.
    fn respond(&mut self, response: &ResponseView<'_>, own: &[OwnField]) -> Result<(), HttpStreamError>;
    /// Ready when the client has ended its side although it is our turn to speak.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<ClientEnd>;

    /// Whether a client that sends no more is known to be gone altogether: it has reset the connection.
    fn is_broken(&self) -> bool;
}

/// How a client ended its side of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientEnd {
    /// It sends no more. Whether it still reads, nobody can tell until something is written.
    Finished,
    /// The connection or stream is broken: nothing that is written arrives.
    Broken,
}

/// A field that the gateway adds to a response.
pub type OwnField = (&'static str, Vec<u8>);

/// The upstream's side.
pub trait UpstreamStream: HttpStream {
    /// The next response head, interim or final, shown to `f`.
    fn poll_response<R>(
        &mut self,
        cx: &mut Context<'_>,
        f: impl FnOnce(&ResponseView<'_>) -> R,
    ) -> Poll<Result<R, HttpStreamError>>;
}

/// A response head in passing: what the upstream said, for the client's codec to write.
pub struct ResponseView<'a> {
    /// Status code.
    pub status: u16,
    /// Fields as received, the hop's own among them: the writer skips those (see [`passes_downstream`]).
    pub fields: &'a [Field<'a>],
    /// Length of the body to come.
    pub body: BodyLength,
}

/// How long a body is going to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// Known; 0 is none.
    Known(u64),
    /// Known only when it ends.
    Unknown,
}

/// Why a leg failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpStreamError {
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer closed in the middle of a message.
    #[error("connection closed in the middle of a message")]
    Truncated,
    /// The peer closed before the first byte of the message that was due.
    #[error("connection closed before a response")]
    Closed,
    /// The peer's head is outside the grammar.
    #[error("{0}")]
    Head(#[from] HeadFault),
    /// The peer's chunked coding is outside the grammar.
    #[error("{0}")]
    Chunk(#[from] ChunkFault),
    /// The body is larger than it may be.
    #[error("body larger than allowed")]
    TooLarge,
    /// An HTTP/2 stream or connection error.
    #[error("{0}")]
    Http2(#[from] h2::Error),
    /// The peer sent what its protocol does not allow at this point.
    #[error("{0}")]
    Protocol(&'static str),
}

/// Whether a response field passes on to the client: not when it speaks of the hop behind us, nor when it
/// frames the body, which the writer does anew.
pub fn passes_downstream(name: &str) -> bool {
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

/// The names of the fields that are for this hop because a `Connection` field says so (RFC 9110 §7.6.1); whether it may is the caller's
/// question.
pub struct Nominated<'a>(ArrayVec<&'a [u8], MAX_NOMINATED>);

impl<'a> Nominated<'a> {
    /// Nothing is nominated.
    pub const fn none() -> Self {
        Self(ArrayVec::new_const())
    }

    /// By the fields of a head; one that nominates more is refused where it is read.
    pub fn by(fields: &[Field<'a>]) -> Self {
        let connection =
            fields.iter().filter(|f| f.name.len() == 10 && f.name.eq_ignore_ascii_case("connection"));
        let names = connection.flat_map(|f| connection_options(f.value)).filter_map(|option| match option {
            ConnectionOption::Field(name) => Some(name),
            ConnectionOption::Close | ConnectionOption::KeepAlive | ConnectionOption::Upgrade => None,
        });
        Self(names.take(MAX_NOMINATED).collect())
    }

    /// Whether a field of this name is for this hop only.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|nominated| nominated.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// The response fields that pass on to the client, of all that there are.
    pub fn passing<'f>(&self, fields: &'f [Field<'a>]) -> impl Iterator<Item = &'f Field<'a>> {
        fields.iter().filter(|field| passes_downstream(field.name) && !self.has(field.name))
    }
}

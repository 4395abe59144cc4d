//! Reflecting upstream: shows a client, or a test, exactly what arrived.
//!
//! It reports names, order, letter case and repetition of header fields as received. Therefore it
//! parses the request itself and does not use a library that normalizes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::digest;
use http_engine::head::HeadFault;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::message::{self, Body, Head, ParseError, RequestLines};
use super::reflection::{BodyFacts, ConnectionFacts, Reflection, json};
use crate::cmd::echo::behaviours;

/// Size limit, in bytes, of a body that is shown as text.
const TEXT: usize = 64 * 1024;
/// Size limit of a request head, in bytes.
const HEAD: usize = 256 * 1024;

/// State that all connections share.
#[derive(Debug, Clone)]
pub(super) struct ReflectState {
    pub(super) delay: Duration,
    /// Whether each request is printed as a line of JSON on standard output.
    pub(super) log: bool,
    /// Page for browsers.
    page: Option<Arc<str>>,
    connections: Arc<AtomicU64>,
}

impl ReflectState {
    pub(super) fn new(delay: Duration, log: bool, page: Option<String>) -> Self {
        Self { delay, log, page: page.map(Into::into), connections: Arc::new(AtomicU64::new(0)) }
    }
}

/// Bytes that are received but not consumed yet.
pub(super) struct ReceiveBuffer {
    bytes: Vec<u8>,
}

impl ReceiveBuffer {
    /// A buffer with bytes that were received already.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Consumes the received part of a body.
    pub(super) fn take_body(&mut self, body: &mut Body) -> Result<(), ParseError> {
        let taken = body.take(&self.bytes, |_| ())?;
        self.bytes.drain(..taken);
        Ok(())
    }

    /// Reads more bytes. Returns `false` at the end of the stream.
    pub(super) async fn fill<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> std::io::Result<bool> {
        Ok(stream.read_buf(&mut self.bytes).await? > 0)
    }

    /// Bytes that arrived after a request that switched protocols.
    pub(super) fn into_rest(self) -> Vec<u8> {
        self.bytes
    }
}

/// Serves one connection until it ends.
pub(super) async fn connection<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    mirror: &ReflectState,
    (peer, local): (String, String),
) -> std::io::Result<()> {
    let number = mirror.connections.fetch_add(1, Ordering::Relaxed) + 1;
    let mut facts = ConnectionFacts { peer, local, number, request: 0 };
    let mut inbox = ReceiveBuffer::new(Vec::with_capacity(16 * 1024));
    loop {
        let (head, lines) = match next_head(&mut stream, &mut inbox).await? {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return Ok(()),
            Err(bad) => return refuse(&mut stream, bad).await,
        };
        facts.request += 1;
        if behaviours::is_upgrade(&lines) {
            note(
                mirror,
                &reflection(
                    &lines,
                    BodyFacts::of(0, &[], digest::Context::new(&digest::SHA256)),
                    &[],
                    &facts,
                ),
            );
            return behaviours::upgrade(stream, inbox.into_rest(), &lines).await;
        }
        let (close, head_only) = (head.close, head.bodiless);
        let (body, trailers) = match read_body(&mut stream, &mut inbox, head).await? {
            Ok(read) => read,
            Err(bad) => return refuse(&mut stream, bad).await,
        };
        let reflection = reflection(&lines, body, &trailers, &facts);
        note(mirror, &reflection);
        if !mirror.delay.is_zero() {
            tokio::time::sleep(mirror.delay).await;
        }
        let page = mirror.page.as_deref().filter(|_| behaviours::is_for_browser(&lines));
        let stay = behaviours::answer(&mut stream, &lines, &reflection, (page, head_only)).await?;
        if close || !stay {
            return stream.shutdown().await;
        }
    }
}

pub(super) type Parsed = Result<Option<(Head, RequestLines)>, ParseError>;

pub(super) async fn next_head<S: AsyncRead + Unpin>(
    stream: &mut S,
    inbox: &mut ReceiveBuffer,
) -> std::io::Result<Parsed> {
    loop {
        if !inbox.bytes.is_empty() {
            match message::head_with_lines(&inbox.bytes) {
                Ok(None) if inbox.bytes.len() > HEAD => return Ok(Err(HeadFault::TooLarge.into())),
                Ok(None) => {}
                Ok(Some((head, lines))) => {
                    inbox.bytes.drain(..head.length);
                    return Ok(Ok(Some((head, lines))));
                }
                Err(bad) => return Ok(Err(bad)),
            }
        }
        if !inbox.fill(stream).await? {
            return Ok(Ok(None));
        }
    }
}

type Received = Result<(BodyFacts, Vec<(String, Vec<u8>)>), ParseError>;

async fn read_body<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    inbox: &mut ReceiveBuffer,
    mut head: Head,
) -> std::io::Result<Received> {
    let (mut bytes, mut text, mut hash) = (0, Vec::new(), digest::Context::new(&digest::SHA256));
    if head.expects && !head.body.is_done() && inbox.bytes.is_empty() {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    loop {
        let taken = head.body.take(&inbox.bytes, |part| {
            bytes += part.len() as u64;
            hash.update(part);
            if text.len() <= TEXT {
                text.extend_from_slice(part);
            }
        });
        match taken {
            Ok(taken) => drop(inbox.bytes.drain(..taken)),
            Err(bad) => return Ok(Err(bad)),
        }
        if head.body.is_done() {
            return Ok(Ok((BodyFacts::of(bytes, &text, hash), head.body.trailers().to_vec())));
        }
        if !inbox.fill(stream).await? {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

impl BodyFacts {
    fn of(bytes: u64, text: &[u8], hash: digest::Context) -> Self {
        let sha256 = config::hex(hash.finish().as_ref());
        let text = (text.len() <= TEXT).then(|| String::from_utf8(text.into()).ok()).flatten();
        Self { bytes, sha256, text }
    }
}

fn reflection(
    lines: &RequestLines,
    body: BodyFacts,
    trailers: &[(String, Vec<u8>)],
    connection: &ConnectionFacts,
) -> Reflection {
    Reflection {
        method: lines.method.clone(),
        target: lines.target.clone(),
        version: lines.version,
        headers: readable(&lines.fields),
        body,
        trailers: readable(trailers),
        connection: connection.clone(),
    }
}

fn readable(fields: &[(String, Vec<u8>)]) -> Vec<(String, String)> {
    let latin1 = |bytes: &[u8]| bytes.iter().map(|b| char::from(*b)).collect();
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map_or_else(|_| latin1(bytes), str::to_owned);
    fields.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

fn note(mirror: &ReflectState, reflection: &Reflection) {
    if mirror.log {
        anstream::println!("{}", json(reflection));
    }
}

pub(super) async fn refuse<S: AsyncWrite + Unpin>(stream: &mut S, bad: ParseError) -> std::io::Result<()> {
    let text = format!("{bad}\n");
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all((head + &text).as_bytes()).await?;
    stream.shutdown().await
}

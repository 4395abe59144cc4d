//! Behaviours of the reflecting upstream: streams, early hints, upgrades, failures.

use std::time::Duration;

use config::parse_duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::message::{self, RequestLines};
use super::reflection::Reflection;
use super::response::plain;
use super::websocket;

/// Help text of the special paths. All other requests are reflected.
pub(super) const HELP: &str = "\
With --reflect, some requests have a special response:
  /events?count=N&interval=D  server-sent events
  /early-hints                103, then the reflection
  /status/CODE                a response with that status
  /bytes/N                    N bytes
  /chunked/N                  N bytes in chunks, with a trailer
  /slow?delay=D               the reflection, after D
  /close                      no response: the connection closes
  Upgrade: websocket          sends back what it receives, on any path
  Upgrade: echo               the same without frames";

/// Answers one request. A `page` replaces the reflection. Returns `false` if the connection must end.
pub(super) async fn answer<S: AsyncWrite + Unpin>(
    stream: &mut S,
    lines: &RequestLines,
    reflection: &Reflection,
    (page, head_only): (Option<&str>, bool),
) -> std::io::Result<bool> {
    let delay = |name: &str| lines.parameter(name).and_then(|d| parse_duration(d).ok());
    let path = lines.path();
    let number = |prefix: &str| path.strip_prefix(prefix).and_then(|n| n.parse::<usize>().ok());
    if path == "/close" {
        return Ok(false);
    }
    if path == "/events" {
        let count = lines.parameter("count").and_then(|n| n.parse().ok()).unwrap_or(3);
        let interval = delay("interval").unwrap_or(Duration::from_millis(100));
        return events(stream, count, interval, head_only).await;
    }
    if let Some(bytes) = number("/chunked/") {
        return chunked(stream, bytes, head_only).await;
    }
    if let Some(bytes) = number("/bytes/") {
        return plain(stream, "200 OK", "application/octet-stream", &vec![b'x'; bytes], head_only).await;
    }
    if let Some(status) = number("/status/").filter(|s| (200..=599).contains(s)) {
        // Responses 204 and 304 have no body, and no length of one.
        let text = if matches!(status, 204 | 304) { String::new() } else { format!("{status}\n") };
        return plain(stream, &format!("{status} Asked For"), "text/plain", text.as_bytes(), head_only).await;
    }
    if path == "/early-hints" {
        stream
            .write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload; as=style\r\n\r\n")
            .await?;
        stream.flush().await?;
    }
    if let Some(delay) = delay("delay").filter(|_| path == "/slow") {
        tokio::time::sleep(delay).await;
    }
    if let Some(page) = page {
        return plain(stream, "200 OK", "text/html; charset=utf-8", page.as_bytes(), head_only).await;
    }
    plain(stream, "200 OK", "application/json", reflection.pretty().as_bytes(), head_only).await
}

/// Whether a browser navigates to a page: no other client asks for HTML.
pub(super) fn is_for_browser(lines: &RequestLines) -> bool {
    let accepts = lines.field("accept").unwrap_or_default();
    matches!(&*lines.method, "GET" | "HEAD") && accepts.windows(9).any(|part| part == b"text/html")
}

async fn chunked<S: AsyncWrite + Unpin>(
    stream: &mut S,
    bytes: usize,
    head_only: bool,
) -> std::io::Result<bool> {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
        Transfer-Encoding: chunked\r\nTrailer: X-Count\r\n\r\n";
    stream.write_all(HEAD).await?;
    if head_only {
        return Ok(true);
    }
    let mut left = bytes;
    while left > 0 {
        let size = left.min(8192);
        let mut chunk = format!("{size:x}\r\n").into_bytes();
        chunk.resize(chunk.len() + size, b'x');
        chunk.extend_from_slice(b"\r\n");
        stream.write_all(&chunk).await?;
        left -= size;
    }
    stream.write_all(format!("0\r\nX-Count: {bytes}\r\n\r\n").as_bytes()).await?;
    Ok(true)
}

async fn events<S: AsyncWrite + Unpin>(
    stream: &mut S,
    count: u64,
    interval: Duration,
    head_only: bool,
) -> std::io::Result<bool> {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
        Transfer-Encoding: chunked\r\n\r\n";
    stream.write_all(HEAD).await?;
    if head_only {
        return Ok(true);
    }
    for number in 1..=count {
        if number > 1 {
            tokio::time::sleep(interval).await;
        }
        let event = format!("id: {number}\ndata: event {number}\n\n");
        stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await?;
        stream.flush().await?;
    }
    stream.write_all(b"0\r\n\r\n").await?;
    Ok(true)
}

/// Whether the client asks for a protocol that this upstream supports.
pub(super) fn is_upgrade(lines: &RequestLines) -> bool {
    let wants = lines.field("connection").is_some_and(|c| message::has_option(c, b"upgrade"));
    let known = |p: &[u8]| p.eq_ignore_ascii_case(b"websocket") || p.eq_ignore_ascii_case(b"echo");
    wants && lines.field("upgrade").is_some_and(known)
}

/// Switches protocols and sends back all bytes until the client ends.
pub(super) async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    early: Vec<u8>,
    lines: &RequestLines,
) -> std::io::Result<()> {
    if lines.field("upgrade").is_some_and(|p| p.eq_ignore_ascii_case(b"echo")) {
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
            .await?;
        stream.write_all(&early).await?;
        let (mut from, mut to) = tokio::io::split(stream);
        tokio::io::copy(&mut from, &mut to).await?;
        return to.shutdown().await;
    }
    websocket::upgrade(stream, early, lines.field("sec-websocket-key"), None).await
}

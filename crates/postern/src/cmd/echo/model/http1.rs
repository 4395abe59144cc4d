//! Streams over HTTP/1.1: server-sent events in chunks, and WebSockets.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use super::parameters::{InvalidParameter, PushShape, StreamShape};
use super::{TEXT, event_content, is_stream, wait_for_event};
use crate::cmd::echo::behaviours;
use crate::cmd::echo::message::RequestLines;
use crate::cmd::echo::reflect::{ReceiveBuffer, next_head, refuse};
use crate::cmd::echo::response::plain;
use crate::cmd::echo::websocket::{self, Push};

/// Serves one connection, whose first bytes are `ahead`, until it ends.
pub(super) async fn connection<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    ahead: Vec<u8>,
) -> io::Result<()> {
    let mut inbox = ReceiveBuffer::new(ahead);
    loop {
        let (mut head, lines) = match next_head(&mut stream, &mut inbox).await? {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return Ok(()),
            Err(bad) => return refuse(&mut stream, bad).await,
        };
        if behaviours::is_upgrade(&lines) {
            return upgrade(stream, inbox.into_rest(), &lines).await;
        }
        while !head.body.is_done() {
            match inbox.take_body(&mut head.body) {
                Ok(()) if head.body.is_done() => {}
                Ok(()) if inbox.fill(&mut stream).await? => {}
                Ok(()) => return Ok(()),
                Err(bad) => return refuse(&mut stream, bad).await,
            }
        }
        answer(&mut stream, &lines, head.bodiless).await?;
        if head.close {
            return stream.shutdown().await;
        }
    }
}

async fn answer<S: AsyncWrite + Unpin>(
    stream: &mut S,
    lines: &RequestLines,
    head_only: bool,
) -> io::Result<()> {
    if !is_stream(lines.path()) {
        return plain(stream, "200 OK", "text/plain", TEXT.as_bytes(), head_only).await.map(drop);
    }
    if lines.field("content-type").is_some_and(|kind| kind.starts_with(b"application/grpc")) {
        let text = b"gRPC needs HTTP/2\n";
        return plain(stream, "400 Bad Request", "text/plain", text, head_only).await.map(drop);
    }
    match StreamShape::of_target(&lines.target) {
        Ok(shape) => events(stream, &shape, head_only).await,
        Err(invalid) => bad_request(stream, &invalid, head_only).await,
    }
}

async fn bad_request<S: AsyncWrite + Unpin>(
    stream: &mut S,
    invalid: &InvalidParameter,
    head_only: bool,
) -> io::Result<()> {
    let text = format!("{invalid}\n");
    plain(stream, "400 Bad Request", "text/plain", text.as_bytes(), head_only).await.map(drop)
}

async fn events<S: AsyncWrite + Unpin>(
    stream: &mut S,
    shape: &StreamShape,
    head_only: bool,
) -> io::Result<()> {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
        Transfer-Encoding: chunked\r\n\r\n";
    let begun = Instant::now();
    stream.write_all(HEAD).await?;
    if head_only {
        return Ok(());
    }
    for number in 1..=shape.events {
        stream.flush().await?;
        wait_for_event(begun, shape, number).await;
        let event = format!("data: {}\n\n", event_content(number, shape.size));
        let end = if number == shape.events { "0\r\n\r\n" } else { "" };
        stream.write_all(format!("{:x}\r\n{event}\r\n{end}", event.len()).as_bytes()).await?;
    }
    stream.flush().await
}

/// Switches to a WebSocket that sends back what it receives, and messages of its own.
async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    early: Vec<u8>,
    lines: &RequestLines,
) -> io::Result<()> {
    let shape = match PushShape::of_target(&lines.target) {
        Ok(shape) => shape,
        Err(invalid) => {
            bad_request(&mut stream, &invalid, false).await?;
            return stream.shutdown().await;
        }
    };
    let push = shape.every.map(|every| Push { every, content: event_content(0, shape.size).into_bytes() });
    websocket::upgrade(stream, early, lines.field("sec-websocket-key"), push).await
}

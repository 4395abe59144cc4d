//! Streams over HTTP/2: server-sent events, and gRPC messages of a server-streaming method.

use std::future::poll_fn;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream, server};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::parameters::{InvalidParameter, StreamShape};
use super::{TEXT, event_content, is_stream, wait_for_event};

/// Field of the status of a call (gRPC over HTTP/2).
const GRPC_STATUS: &str = "grpc-status";
/// Status `INVALID_ARGUMENT`.
const INVALID_ARGUMENT: u16 = 3;

/// Serves one connection until it ends.
pub(super) async fn connection<S: AsyncRead + AsyncWrite + Unpin>(io: S) -> Result<(), h2::Error> {
    let mut connection = server::handshake(io).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        // An error ends its stream only: the client may have reset it.
        tokio::task::spawn_local(async move { answer(request, respond).await.ok() });
    }
    Ok(())
}

async fn answer(request: Request<RecvStream>, respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
    }
    let kind = head.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let form = if kind.starts_with(b"application/grpc") { Form::Grpc } else { Form::ServerSentEvents };
    if !is_stream(head.uri.path()) {
        return text(respond, StatusCode::OK, TEXT.to_owned());
    }
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    match (StreamShape::of_target(target), form) {
        (Ok(shape), form) => events(respond, &shape, form).await,
        (Err(invalid), Form::ServerSentEvents) => {
            text(respond, StatusCode::BAD_REQUEST, format!("{invalid}\n"))
        }
        (Err(invalid), Form::Grpc) => invalid_argument(respond, &invalid),
    }
}

/// Form of the events.
#[derive(Clone, Copy)]
enum Form {
    ServerSentEvents,
    Grpc,
}

impl Form {
    /// The bytes of an event.
    fn event(self, number: u64, size: usize) -> Bytes {
        let content = event_content(number, size);
        match self {
            Self::ServerSentEvents => format!("data: {content}\n\n").into(),
            Self::Grpc => {
                // A message with one field of bytes, number 1.
                let mut message = BytesMut::new();
                message.put_u8(0x0a);
                let mut rest = content.len();
                while rest >= 0x80 {
                    message.put_u8(0x80 | u8::try_from(rest & 0x7f).unwrap_or(0x7f));
                    rest >>= 7;
                }
                message.put_u8(u8::try_from(rest).unwrap_or(0x7f));
                message.put_slice(content.as_bytes());
                let mut framed = BytesMut::with_capacity(5 + message.len());
                framed.put_u8(0);
                framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
                framed.put(message);
                framed.freeze()
            }
        }
    }
}

fn head(status: StatusCode, kind: &'static str) -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = status;
    head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    head
}

fn text(mut respond: SendResponse<Bytes>, status: StatusCode, text: String) -> Result<(), h2::Error> {
    respond.send_response(head(status, "text/plain"), false)?.send_data(text.into(), true)
}

/// A response of trailers only: the call is not answered.
fn invalid_argument(mut respond: SendResponse<Bytes>, invalid: &InvalidParameter) -> Result<(), h2::Error> {
    let mut head = head(StatusCode::OK, "application/grpc");
    head.headers_mut().insert(GRPC_STATUS, INVALID_ARGUMENT.into());
    // The message is percent-encoded; a target has visible ASCII only.
    if let Ok(message) = HeaderValue::from_str(&invalid.to_string().replace('%', "%25")) {
        head.headers_mut().insert("grpc-message", message);
    }
    respond.send_response(head, true).map(drop)
}

async fn events(mut respond: SendResponse<Bytes>, shape: &StreamShape, form: Form) -> Result<(), h2::Error> {
    let kind = match form {
        Form::ServerSentEvents => "text/event-stream",
        Form::Grpc => "application/grpc",
    };
    let begun = Instant::now();
    let mut stream = respond.send_response(head(StatusCode::OK, kind), false)?;
    for number in 1..=shape.events {
        wait_for_event(begun, shape, number).await;
        let end = number == shape.events && matches!(form, Form::ServerSentEvents);
        send(&mut stream, form.event(number, shape.size), end).await?;
    }
    if matches!(form, Form::Grpc) {
        let status = HeaderMap::from_iter([(
            http::HeaderName::from_static(GRPC_STATUS),
            HeaderValue::from_static("0"),
        )]);
        stream.send_trailers(status)?;
    }
    Ok(())
}

/// Sends `data` when flow control allows it, so that a slow client does not make the server keep
/// its events.
async fn send(stream: &mut SendStream<Bytes>, data: Bytes, end: bool) -> Result<(), h2::Error> {
    stream.reserve_capacity(data.len());
    while stream.capacity() < data.len() {
        match poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(more) => more.map(drop)?,
            None => return Err(h2::Reason::CANCEL.into()),
        }
    }
    stream.send_data(data, end)
}

#[cfg(test)]
mod tests {
    use super::Form;

    #[test]
    fn messages_have_their_length_in_front() {
        assert_eq!(&Form::Grpc.event(1, 4)[..], b"\0\0\0\0\x06\x0a\x041 xx");
        let long = Form::Grpc.event(1, 300);
        assert_eq!(&long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
        assert_eq!(long.len(), 5 + 303);
        assert_eq!(&Form::ServerSentEvents.event(1, 4)[..], b"data: 1 xx\n\n");
    }
}

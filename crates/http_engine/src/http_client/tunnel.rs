//! Tunnels through an HTTP proxy: CONNECT (RFC 9110 section 9.3.6).

use std::io;

use http::HeaderValue;
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::io::Stream;

/// Maximum size of the head of a proxy's response, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// Why a proxy opened no tunnel.
#[derive(Debug, thiserror::Error)]
pub(super) enum TunnelError {
    /// The connection to the proxy failed or ended.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The proxy wants credentials, or other ones.
    #[error("it requires credentials (407); write them into the proxy's URL")]
    Credentials,
    /// The proxy refused with this status code.
    #[error("it refused to connect, with status {0}")]
    Refused(u16),
    /// The proxy's response is not HTTP/1.
    #[error("its response is not HTTP/1; check that it is an HTTP proxy")]
    NotHttp,
}

/// Has the proxy at the other end of `stream` connect to `target` (host and port). Returns the
/// stream to the target.
pub(super) async fn open(
    mut stream: Stream,
    target: &str,
    authorization: Option<&HeaderValue>,
) -> Result<Stream, TunnelError> {
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(value) = authorization {
        head.extend_from_slice(b"Proxy-Authorization: ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    stream.write_all(&head).await?;
    stream.flush().await?;
    let mut response = Vec::with_capacity(1024);
    let end = loop {
        if stream.read_buf(&mut response).await? == 0 {
            let ended = io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection");
            return Err(ended.into());
        }
        if let Some(at) = memmem::find(&response, b"\r\n\r\n") {
            break at + 4;
        }
        if response.len() > MAX_HEAD {
            return Err(TunnelError::NotHttp);
        }
    };
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut parsed = httparse::Response::new(&mut fields);
    match (parsed.parse(&response[..end]), parsed.code) {
        (Ok(httparse::Status::Complete(_)), Some(200..=299)) => Ok(stream.replay(response.split_off(end))),
        (Ok(httparse::Status::Complete(_)), Some(407)) => Err(TunnelError::Credentials),
        (Ok(httparse::Status::Complete(_)), Some(status)) => Err(TunnelError::Refused(status)),
        _ => Err(TunnelError::NotHttp),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    /// What a proxy received, and what came of its response.
    async fn opened(response: &[u8]) -> (String, Result<String, String>) {
        let (mut proxy, ours) = UnixStream::pair().unwrap();
        proxy.write_all(response).await.unwrap();
        proxy.shutdown().await.unwrap();
        let authorization = HeaderValue::from_static("Basic eDp5");
        let tunnel = open(Stream::Unix(ours), "target.example:443", Some(&authorization)).await;
        let outcome = match tunnel {
            Ok(mut tunnel) => {
                let mut rest = String::new();
                tunnel.read_to_string(&mut rest).await.unwrap();
                Ok(rest)
            }
            Err(error) => Err(error.to_string()),
        };
        let mut received = String::new();
        proxy.read_to_string(&mut received).await.unwrap();
        (received, outcome)
    }

    #[tokio::test]
    async fn the_proxy_is_told_the_target_and_what_follows_its_response_is_kept() {
        let (received, outcome) = opened(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nearly").await;
        assert_eq!(
            received,
            "CONNECT target.example:443 HTTP/1.1\r\nHost: target.example:443\r\n\
             Proxy-Authorization: Basic eDp5\r\n\r\n"
        );
        assert_eq!(outcome.as_deref(), Ok("early"));
        assert_eq!(opened(b"HTTP/1.0 204 Fine\r\n\r\n").await.1.as_deref(), Ok(""));
    }

    #[tokio::test]
    async fn whatever_else_a_proxy_answers_is_an_error() {
        for (response, error) in [
            (&b"HTTP/1.1 407 Who\r\n\r\n"[..], "credentials (407)"),
            (b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno", "status 403"),
            (b"HTTP/1.1 302 There\r\nLocation: https://x/\r\n\r\n", "status 302"),
            (b"HTTP/1.1 100 Continue\r\n\r\n", "status 100"),
            (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP/1"),
            (b"HTTP/1.1 200 OK\r\n", "closed the connection"),
            (b"", "closed the connection"),
        ] {
            let refused = opened(response).await.1.unwrap_err();
            assert!(refused.contains(error), "{refused}");
        }
        let endless = [&b"HTTP/1.1 200 OK\r\n"[..], &b"a: b\r\n".repeat(5000)].concat();
        assert!(opened(&endless[..20_000]).await.1.unwrap_err().contains("not HTTP/1"));
    }
}

//! Test server: a small HTTP server that responds, stalls, resets or sends invalid bytes, as the
//! test requires.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// What the server does with a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Responds with this status and a short body.
    Status(u16),
    /// Responds with 200 after a time.
    After(Duration),
    /// Sends exactly these bytes.
    Raw(&'static [u8]),
    /// Sends these bytes and closes.
    Last(&'static [u8]),
    /// Sends these parts, each after a time: of a response over HTTP/1.1 all bytes, over HTTP/2
    /// the content of a response with status 200.
    Parts(&'static [(u64, &'static [u8])]),
    /// The same as a gRPC call that ends with this status.
    Grpc(&'static [(u64, &'static [u8])], &'static str),
    /// Never responds.
    Silence,
    /// Resets the connection (or stream).
    Reset,
    /// Closes without a response.
    Close,
}

/// A request as the server received it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenRequest {
    pub(crate) number: u64,
    pub(crate) head: String,
    pub(crate) body: usize,
}

type Behaviour = dyn Fn(&SeenRequest) -> Reply + Send + Sync;

/// Counters of the server.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) tokens: Mutex<BTreeMap<String, u64>>,
    pub(crate) last: Mutex<SeenRequest>,
}

impl Counts {
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    fn note(&self, head: String, token: Option<String>, body: usize) -> SeenRequest {
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(token) = token {
            *self.tokens.lock().unwrap().entry(token).or_default() += 1;
        }
        let seen = SeenRequest { number, head, body };
        *self.last.lock().unwrap() = seen.clone();
        seen
    }
}

/// A server on its own thread, until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) counts: Arc<Counts>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

/// Protocol of the connections, with or without TLS.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerProtocol {
    Http1,
    Http2,
    Tls1,
    Tls2,
}

impl Server {
    pub(crate) fn start(behaviour: impl Fn(&SeenRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self::speaking(ServerProtocol::Http1, behaviour)
    }

    pub(crate) fn speaking(
        speaks: ServerProtocol,
        behaviour: impl Fn(&SeenRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let counts = Arc::new(Counts::default());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let shared = (Arc::new(behaviour) as Arc<Behaviour>, Arc::clone(&counts));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = accept(listener, speaks, shared) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address: told.recv().unwrap(), counts, _stop: stop }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/path?query", self.address)
    }

    pub(crate) fn tls_url(&self) -> String {
        format!("https://{}/path?query", self.address)
    }
}

type Shared = (Arc<Behaviour>, Arc<Counts>);

async fn accept(listener: TcpListener, speaks: ServerProtocol, shared: Shared) {
    let acceptor = TlsAcceptor::from(Arc::new(tls_config(speaks)));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        shared.1.connections.fetch_add(1, Ordering::SeqCst);
        let (shared, acceptor) = (shared.clone(), acceptor.clone());
        tokio::spawn(async move {
            // The test provokes connection errors, so the result is ignored.
            let _ = match speaks {
                ServerProtocol::Http1 => http1(stream, shared).await,
                ServerProtocol::Http2 => http2(stream, shared).await,
                ServerProtocol::Tls1 => http1(Box::new(acceptor.accept(stream).await.unwrap()), shared).await,
                ServerProtocol::Tls2 => http2(acceptor.accept(stream).await.unwrap(), shared).await,
            };
        });
    }
}

fn tls_config(speaks: ServerProtocol) -> ServerConfig {
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let chain: Vec<CertificateDer<'static>> = vec![made.cert.der().clone()];
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
    let name: &[u8] =
        if matches!(speaks, ServerProtocol::Http2 | ServerProtocol::Tls2) { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![name.to_vec()];
    config
}

/// How a stream ends, for streams where that can be chosen.
trait Abort {
    fn reset_on_drop(&self);
    /// Sends the last bytes together with the FIN. Even if this thread is delayed, no request then
    /// meets a connection that closes later.
    fn hold_until_end(&self);
}

impl Abort for TcpStream {
    fn reset_on_drop(&self) {
        // Closing with a linger time of zero sends RST instead of FIN.
        socket2::SockRef::from(self).set_linger(Some(Duration::ZERO)).unwrap();
    }

    fn hold_until_end(&self) {
        socket2::SockRef::from(self).set_tcp_cork(true).unwrap();
    }
}

impl<T: AsyncRead> Abort for Box<T> {
    fn reset_on_drop(&self) {}
    fn hold_until_end(&self) {}
}

async fn http1<S: AsyncRead + AsyncWrite + Abort + Unpin>(
    mut stream: S,
    (behave, counts): Shared,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let head = String::from_utf8(buffer.drain(..end).collect()).unwrap().to_ascii_lowercase();
        let field = |name: &str| {
            head.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
        };
        let length = field("content-length:").map_or(0, |value| value.parse().unwrap());
        while buffer.len() < length {
            stream.read_buf(&mut buffer).await?;
        }
        buffer.drain(..length);
        let token = field("authorization: bearer ");
        let close = field("connection:").is_some_and(|value| value == "close");
        let reply = behave(&counts.note(head.clone(), token, length));
        match reply {
            Reply::Status(status) => stream.write_all(response(status).as_bytes()).await?,
            Reply::After(time) => {
                tokio::time::sleep(time).await;
                stream.write_all(response(200).as_bytes()).await?;
            }
            Reply::Raw(bytes) => stream.write_all(bytes).await?,
            Reply::Parts(parts) => {
                for (ms, bytes) in parts {
                    tokio::time::sleep(Duration::from_millis(*ms)).await;
                    stream.write_all(bytes).await?;
                    stream.flush().await?;
                }
            }
            Reply::Grpc(..) => panic!("gRPC needs HTTP/2"),
            Reply::Last(bytes) => {
                stream.hold_until_end();
                stream.write_all(bytes).await?;
                return stream.shutdown().await;
            }
            Reply::Silence => std::future::pending().await,
            Reply::Reset => {
                stream.reset_on_drop();
                return Ok(());
            }
            Reply::Close => return Ok(()),
        }
        if close {
            return Ok(());
        }
    }
}

fn response(status: u16) -> String {
    format!("HTTP/1.1 {status} Some Reason\r\nserver: test\r\ncontent-length: 5\r\n\r\nhello")
}

async fn http2<S: AsyncRead + AsyncWrite + Unpin>(stream: S, (behave, counts): Shared) -> io::Result<()> {
    let mut connection = h2::server::handshake(stream).await.map_err(io::Error::other)?;
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = accepted.map_err(io::Error::other)?;
        let (behave, counts) = (Arc::clone(&behave), Arc::clone(&counts));
        let (head, mut body) = request.into_parts();
        let token = head
            .headers
            .get("authorization")
            .map(|value| value.to_str().unwrap()["Bearer ".len()..].to_owned());
        if matches!(behave(&SeenRequest::default()), Reply::Close) {
            counts.note(String::new(), None, 0);
            connection.graceful_shutdown();
            respond.send_reset(h2::Reason::REFUSED_STREAM);
            continue;
        }
        tokio::spawn(async move {
            let mut length = 0;
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                length += data.len();
                body.flow_control().release_capacity(data.len()).unwrap();
            }
            let seen = counts.note(format!("{} {}", head.method, head.uri), token, length);
            let status = match behave(&seen) {
                Reply::Status(status) => status,
                Reply::After(time) => {
                    tokio::time::sleep(time).await;
                    200
                }
                Reply::Silence => std::future::pending().await,
                Reply::Parts(parts) => return send_parts(&mut respond, parts, None).await,
                Reply::Grpc(parts, status) => return send_parts(&mut respond, parts, Some(status)).await,
                _ => {
                    respond.send_reset(h2::Reason::INTERNAL_ERROR);
                    return;
                }
            };
            let answer = http::Response::builder().status(status).body(()).unwrap();
            // The client may have timed out by now.
            if let Ok(mut stream) = respond.send_response(answer, false) {
                let _ = stream.send_data(Bytes::from_static(b"hello"), true);
            }
        });
    }
    Ok(())
}

/// Sends a response in parts, which ends with the status of a gRPC call if there is one.
async fn send_parts(
    respond: &mut h2::server::SendResponse<Bytes>,
    parts: &'static [(u64, &'static [u8])],
    grpc: Option<&'static str>,
) {
    let answer = http::Response::builder().status(200).body(()).unwrap();
    let Ok(mut stream) = respond.send_response(answer, false) else { return };
    for (ms, bytes) in parts {
        tokio::time::sleep(Duration::from_millis(*ms)).await;
        let _ = stream.send_data(Bytes::from_static(bytes), false);
    }
    let _ = match grpc {
        None => stream.send_data(Bytes::new(), true),
        Some(status) => {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", http::HeaderValue::from_static(status));
            trailers.insert("grpc-message", http::HeaderValue::from_static("as asked"));
            stream.send_trailers(trailers)
        }
    };
}

//! An issuer on loopback that counts its requests, and can be paused, failing, or gone.

use std::collections::HashMap;
use std::sync::Arc;

use auth::token::jws::{Signer, SigningAlgorithm, public_jwks};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// OpenID discovery.
pub(crate) const OPENID: &str = "/.well-known/openid-configuration";
/// RFC 8414 metadata.
pub(crate) const OAUTH: &str = "/.well-known/oauth-authorization-server";
/// Path of the key set.
pub(crate) const JWKS: &str = "/jwks";

#[derive(Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) fields: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(body: &Value) -> Self {
        Self {
            status: 200,
            fields: "content-type: application/json\r\n".into(),
            body: body.to_string().into(),
        }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self { status, fields: String::new(), body: Vec::new() }
    }
}

#[derive(Default)]
struct Hits {
    requests: HashMap<String, usize>,
    connections: usize,
}

struct State {
    replies: Mutex<HashMap<String, Reply>>,
    hits: watch::Sender<Hits>,
    held: watch::Sender<bool>,
    gone: Mutex<bool>,
}

/// A running issuer; ends with the test's runtime.
pub(crate) struct TestIssuer {
    url: String,
    state: Arc<State>,
}

impl TestIssuer {
    /// An issuer that serves nothing yet.
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    pub(crate) async fn start_with(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let state = Arc::new(State {
            replies: Mutex::default(),
            hits: watch::Sender::default(),
            held: watch::Sender::new(false),
            gone: Mutex::new(false),
        });
        let shared = state.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                shared.hits.send_modify(|hits| hits.connections += 1);
                if *shared.gone.lock() {
                    continue;
                }
                let (state, tls) = (shared.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => answer(stream, &state).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                answer(stream, &state).await;
                            }
                        }
                    }
                });
            }
        });
        Self { url, state }
    }

    /// Serves discovery and these keys.
    pub(crate) async fn with_keys(signers: &[&Signer]) -> Self {
        let issuer = Self::start().await;
        issuer.discoverable();
        issuer.publish(signers);
        issuer
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn serve(&self, path: &str, reply: Reply) {
        self.state.replies.lock().insert(path.to_owned(), reply);
    }

    pub(crate) fn discoverable(&self) {
        let metadata = json!({ "issuer": self.url, "jwks_uri": format!("{}{JWKS}", self.url) });
        self.serve(OPENID, Reply::json(&metadata));
    }

    pub(crate) fn publish(&self, signers: &[&Signer]) {
        self.serve(JWKS, Reply::json(&public_jwks(signers.iter().copied())));
    }

    /// Number of requests for a path so far.
    pub(crate) fn hits(&self, path: &str) -> usize {
        self.state.hits.borrow().requests.get(path).copied().unwrap_or(0)
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.hits.borrow().connections
    }

    /// Returns once this many requests for a path have arrived.
    pub(crate) async fn reached(&self, path: &str, hits: usize) {
        let mut seen = self.state.hits.subscribe();
        let enough = |all: &Hits| all.requests.get(path).copied().unwrap_or(0) >= hits;
        seen.wait_for(enough).await.unwrap();
    }

    /// Counts requests, but answers them only after [`TestIssuer::release`].
    pub(crate) fn hold(&self) {
        self.state.held.send_replace(true);
    }

    pub(crate) fn release(&self) {
        self.state.held.send_replace(false);
    }

    /// Sets whether connections are closed without an answer.
    pub(crate) fn set_gone(&self, gone: bool) {
        *self.state.gone.lock() = gone;
    }
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, state: &State) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let path = String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().to_owned();
    state.hits.send_modify(|hits| *hits.requests.entry(path.clone()).or_default() += 1);
    state.held.subscribe().wait_for(|held| !held).await.unwrap();
    let reply = state.replies.lock().get(&path).cloned().unwrap_or_else(|| Reply::status(404));
    let length = reply.body.len();
    let Reply { status, fields, body } = reply;
    let head =
        format!("HTTP/1.1 {status} X\r\n{fields}content-length: {length}\r\nconnection: close\r\n\r\n");
    // The other side may have closed the connection.
    let _ = stream.write_all(&[head.into_bytes(), body].concat()).await;
    let _ = stream.shutdown().await;
}

pub(crate) fn signer() -> Signer {
    Signer::generate(SigningAlgorithm::Es256).unwrap()
}

/// A token of `issuer` for the audience `gateway`, expiring at the far end of the tests' time;
/// `extra` members replace the default ones.
pub(crate) fn token(signer: &Signer, issuer: &str, subject: &str, extra: &Value) -> Vec<u8> {
    token_with_header(signer, &[("typ", "JWT")], issuer, subject, extra)
}

pub(crate) fn token_with_header(
    signer: &Signer,
    header: &[(&str, &str)],
    issuer: &str,
    subject: &str,
    extra: &Value,
) -> Vec<u8> {
    let mut claims = json!({ "iss": issuer, "sub": subject, "aud": "gateway", "exp": 2_000_000 });
    for (name, value) in extra.as_object().unwrap() {
        claims[name] = value.clone();
    }
    signer.sign(header, &claims).unwrap().into_bytes()
}

//! Requests of the process through an HTTP proxy: what the proxy and the server receive.
//!
//! `target.example` has no address, so only a proxy can reach it.

use std::sync::Arc;

use auth::time::Timestamp;
use bytes::Bytes;
use http::Request;
use http_engine::config::ServerConfig;
use http_engine::http_client::{CallError, ClientOptions, HttpClient, HttpVersion};
use http_engine::outbound_proxy::{NoProxy, OutboundProxies, Proxy};
use http_engine::test_support::files::{Folder, TestCa, certificate_params};
use http_engine::tls::policy::TlsPolicy;
use http_engine::tls::{self, CertificateFiles, ClientCertificates, Protocols, TrustAnchors};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio_rustls::TlsAcceptor;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const HTTP1: Protocols = Protocols { http1: true, http2: false };
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// A certificate authority, and servers and clients that use it.
struct Tls {
    folder: Folder,
    authority: TestCa,
}

impl Tls {
    fn new() -> Self {
        Self { folder: Folder::new(), authority: TestCa::new() }
    }

    fn acceptor(&self, name: &str) -> TlsAcceptor {
        let (certificate, key) = self.authority.files(&self.folder, name, &certificate_params(name));
        let files = CertificateFiles { certificate: &certificate, key: &key };
        tls::server_config(&[files], ClientCertificates::Ignored, &TlsPolicy::default(), HTTP1, NOW)
            .unwrap()
            .config
            .into()
    }

    fn client(&self) -> Arc<rustls::ClientConfig> {
        let ca = self.folder.write("ca.crt", &self.authority.pem);
        tls::client_config(&TrustAnchors::from_file(&ca).unwrap(), None, HTTP1, NOW).unwrap().config
    }
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn accept(listener: &TcpListener) -> TcpStream {
    listener.accept().await.unwrap().0
}

/// Reads one request head.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut head).await.unwrap() > 0, "{}", String::from_utf8_lossy(&head));
    }
    String::from_utf8(head).unwrap()
}

/// Reads one request head and sends a response.
async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), response: &[u8]) -> String {
    let head = head(stream).await;
    stream.write_all(response).await.unwrap();
    head
}

fn client(
    proxy: Proxy,
    exceptions: &str,
    tls: Option<Arc<rustls::ClientConfig>>,
    version: HttpVersion,
) -> HttpClient {
    let proxies = OutboundProxies::new(Some(proxy.clone()), Some(proxy), NoProxy::parse(exceptions));
    let options = ClientOptions { version, ..ClientOptions::default() };
    HttpClient::with_options(&ServerConfig::anonymous(tls, proxies), options, Handle::current())
}

async fn get(client: &HttpClient, url: &str) -> Result<Bytes, CallError> {
    let request = Request::get(url).body(Bytes::new()).unwrap();
    client.send(request).await.map(|answer| answer.body)
}

#[tokio::test]
async fn a_proxy_receives_requests_for_http_urls_in_absolute_form() {
    let (listener, port) = listener().await;
    let proxy = Proxy::parse(&format!("http://me:pass@127.0.0.1:{port}")).unwrap();
    let client = client(proxy, "", None, HttpVersion::Negotiated);
    let serve = async {
        let mut stream = accept(&listener).await;
        (exchange(&mut stream, ANSWER).await, exchange(&mut stream, ANSWER).await)
    };
    let ask = async {
        assert_eq!(get(&client, "http://target.example/keys?v=1").await.unwrap(), "ok");
        // Over the same connection.
        assert_eq!(get(&client, "http://target.example/again").await.unwrap(), "ok");
    };
    let ((first, second), ()) = tokio::join!(serve, ask);
    assert!(first.starts_with("GET http://target.example/keys?v=1 HTTP/1.1\r\n"), "{first}");
    assert!(first.contains("proxy-authorization: Basic bWU6cGFzcw==\r\n"), "{first}");
    assert!(first.contains("host: target.example\r\n"), "{first}");
    assert!(second.starts_with("GET http://target.example/again HTTP/1.1\r\n"), "{second}");
}

#[tokio::test]
async fn requests_for_https_urls_pass_a_tunnel_that_the_proxy_cannot_read() {
    let (tls, (listener, port)) = (Tls::new(), listener().await);
    let acceptor = tls.acceptor("target.example");
    let proxy = Proxy::parse(&format!("me:pass@127.0.0.1:{port}")).unwrap();
    let client = client(proxy, "", Some(tls.client()), HttpVersion::Negotiated);
    let serve = async {
        let mut stream = accept(&listener).await;
        let connect = exchange(&mut stream, CONNECTED).await;
        let mut inner = acceptor.accept(stream).await.unwrap();
        (connect, exchange(&mut inner, ANSWER).await)
    };
    let ((connect, request), answer) = tokio::join!(serve, get(&client, "https://target.example:8443/keys"));
    assert_eq!(answer.unwrap(), "ok");
    assert_eq!(
        connect,
        "CONNECT target.example:8443 HTTP/1.1\r\nHost: target.example:8443\r\n\
         Proxy-Authorization: Basic bWU6cGFzcw==\r\n\r\n"
    );
    assert!(request.starts_with("GET /keys HTTP/1.1\r\n"), "{request}");
    assert!(!request.to_ascii_lowercase().contains("proxy-"), "the server does not learn it: {request}");
}

#[tokio::test]
async fn the_certificate_is_that_of_the_server_and_not_of_the_proxy() {
    let (tls, (listener, port)) = (Tls::new(), listener().await);
    let acceptor = tls.acceptor("proxy.example");
    let proxy = Proxy::parse(&format!("http://127.0.0.1:{port}")).unwrap();
    let client = client(proxy, "", Some(tls.client()), HttpVersion::Http1);
    let serve = async {
        let mut stream = accept(&listener).await;
        exchange(&mut stream, CONNECTED).await;
        assert!(acceptor.accept(stream).await.is_err());
    };
    let ((), refused) = tokio::join!(serve, get(&client, "https://target.example/"));
    assert!(matches!(refused, Err(CallError::Tls(_))), "{refused:?}");
}

#[tokio::test]
async fn an_https_proxy_is_verified_before_it_learns_the_target() {
    let (tls, stranger, (listener, port)) = (Tls::new(), Tls::new(), listener().await);
    let url = format!("https://localhost:{port}");
    let trusted = Proxy::parse(&url).unwrap().with_tls(tls.client(), 1);
    let acceptor = tls.acceptor("localhost");
    let plain = client(trusted, "", None, HttpVersion::Http1);
    let serve = async {
        let mut stream = acceptor.accept(accept(&listener).await).await.unwrap();
        exchange(&mut stream, ANSWER).await
    };
    let (request, answer) = tokio::join!(serve, get(&plain, "http://target.example/"));
    assert!(answer.is_ok() && request.starts_with("GET http://target.example/ "), "{request}");

    let distrusted = Proxy::parse(&url).unwrap().with_tls(stranger.client(), 2);
    let client = client(distrusted, "", None, HttpVersion::Http1);
    let serve = async { assert!(acceptor.accept(accept(&listener).await).await.is_err()) };
    let ((), refused) = tokio::join!(serve, get(&client, "http://target.example/"));
    assert!(refused.unwrap_err().to_string().contains(&format!("the proxy {url}: ")));
}

#[tokio::test]
async fn http2_without_tls_passes_a_tunnel_too() {
    let (listener, port) = listener().await;
    let proxy = Proxy::parse(&format!("http://127.0.0.1:{port}")).unwrap();
    let client = client(proxy, "", None, HttpVersion::Http2);
    let serve = async {
        let mut stream = accept(&listener).await;
        let connect = exchange(&mut stream, CONNECTED).await;
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.unwrap();
        (connect, preface)
    };
    let ((connect, preface), _) = tokio::join!(serve, get(&client, "http://target.example/"));
    assert!(connect.starts_with("CONNECT target.example:80 HTTP/1.1\r\n"), "{connect}");
    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
}

#[tokio::test]
async fn exceptions_and_this_machine_are_reached_directly_and_without_the_credentials() {
    let (listener, port) = listener().await;
    // Nobody listens at the proxy's port.
    let proxy = || Proxy::parse("http://me:pass@127.0.0.1:1").unwrap();
    let direct = client(proxy(), "", None, HttpVersion::Http1);
    let url = format!("http://127.0.0.1:{port}/x");
    let serve = async { exchange(&mut accept(&listener).await, ANSWER).await };
    let (request, answer) = tokio::join!(serve, get(&direct, &url));
    assert!(answer.is_ok() && request.starts_with("GET /x HTTP/1.1\r\n"), "{request}");
    assert!(!request.to_ascii_lowercase().contains("proxy-"), "{request}");
    let excepted = client(proxy(), "target.example", None, HttpVersion::Http1);
    let refused = get(&excepted, "http://target.example/").await.unwrap_err().to_string();
    assert!(!refused.contains("proxy"), "the name is looked up here: {refused}");
}

#[tokio::test]
async fn errors_name_the_proxy_and_the_target_but_no_password() {
    let (tls, (listener, port)) = (Tls::new(), listener().await);
    let at = |port| {
        let proxy = Proxy::parse(&format!("http://me:hunter2@127.0.0.1:{port}")).unwrap();
        client(proxy, "", Some(tls.client()), HttpVersion::Http1)
    };
    let (client, nobody) = (at(port), at(1));
    let shown = format!("http://127.0.0.1:{port}");
    for (target, response, message) in [
        ("https://target.example/", "HTTP/1.1 403 Forbidden\r\n\r\n", "status 403"),
        ("https://target.example/", "HTTP/1.1 407 Who\r\n\r\n", "requires credentials (407)"),
        ("https://target.example/", "\x15\x03\x01\r\n\r\n", "not HTTP/1"),
        (
            "http://target.example/",
            "HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n",
            "requires credentials (407)",
        ),
    ] {
        let serve = async { exchange(&mut accept(&listener).await, response.as_bytes()).await };
        let (_, refused) = tokio::join!(serve, get(&client, target));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(message) && refused.contains(&format!("the proxy {shown}")), "{refused}");
        assert!(target.starts_with("http:") || refused.contains("target.example:443"), "{refused}");
        assert!(!refused.contains("hunter2") && !refused.contains("aHVudGVy"), "{refused}");
    }
    let refused = get(&nobody, "https://target.example/").await.unwrap_err().to_string();
    assert!(refused.contains("the proxy http://127.0.0.1:1: ") && refused.contains("refused"), "{refused}");
    assert!(!refused.contains("hunter2"), "{refused}");
}

#[tokio::test]
async fn another_status_of_a_forwarding_proxy_is_the_response() {
    let (listener, port) = listener().await;
    let proxy = Proxy::parse(&format!("http://127.0.0.1:{port}")).unwrap();
    let client = client(proxy, "", None, HttpVersion::Http1);
    let response = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";
    let serve = async { exchange(&mut accept(&listener).await, response).await };
    let request = Request::get("http://target.example/").body(Bytes::new()).unwrap();
    let (_, answer) = tokio::join!(serve, client.send(request));
    assert_eq!(answer.unwrap().status, 503);
}

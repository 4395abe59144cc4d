//! TLS towards pods, and which listener a connection over TLS is for.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use controller::settings::Settings;
use dataplane::certificates::Authority;
use dataplane::harness::Upstream;
use gateway::config::{ForwardedSource, TrustedProxies};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::ingress::{quoted, secret};
use crate::objects::{Cluster, get, manifest_of_service};

/// A client that a pod knows.
type Client = (CertificateDer<'static>, &'static str);

/// A pod with a certificate of `authority` for `name`, which answers with the name of the client whose
/// certificate it is shown.
fn pod(authority: &Authority, name: &str, clients: Vec<Client>) -> SocketAddr {
    let (certificate, key) = authority.issue(&[name], name);
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).expect("an authority");
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated();
    let config = ServerConfig::builder().with_client_cert_verifier(verifier.build().expect("a verifier"));
    let config = config.with_single_cert(vec![certificate.der().clone()], key).expect("a certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let connection = ServerConnection::new(config.clone()).expect("a connection");
            let mut stream = StreamOwned::new(connection, socket);
            if stream.read(&mut [0; 8192]).is_err() {
                continue;
            }
            let shown = stream.conn.peer_certificates().and_then(|chain| chain.first());
            let known = clients.iter().find(|(der, _)| Some(der) == shown);
            let body = known.map_or("nobody", |(_, name)| name);
            let length = body.len();
            let response =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
            let _ = stream.write_all(response.as_bytes()).and_then(|()| stream.flush());
        }
    });
    address
}

/// A Secret with a certificate that the pods know by `name`.
fn client(authority: &Authority, name: &'static str) -> (String, Client) {
    let (certificate, key) = authority.issue(&[name], name);
    let (chain, key) = (STANDARD.encode(certificate.pem()), STANDARD.encode(key.serialize_pem()));
    let secret =
        format!("kind: Secret\nmetadata: {{name: {name}}}\ndata: {{tls.crt: {chain}, tls.key: {key}}}");
    (secret, (certificate.der().clone(), name))
}

/// The Gateways `gw` on port 80 and `other` on port 443, and a route of both to the service `app` with
/// TLS of these names.
fn cluster(authority: &Authority, pod: SocketAddr, validation: &str) -> Cluster {
    let mut cluster = Cluster::start();
    cluster.apply(&gateway("gw", 80, ""));
    cluster.apply(&gateway("other", 443, ""));
    cluster.apply(&manifest_of_service("app", pod));
    cluster.apply(&format!(
        "kind: ConfigMap\nmetadata: {{name: ca}}\ndata: {{ca.crt: {}}}",
        quoted(&authority.pem())
    ));
    cluster.apply(
        "
kind: HTTPRoute
metadata: {name: app}
spec:
  parentRefs: [{name: gw}, {name: other}]
  rules: [{backendRefs: [{name: app, port: 80}]}]
---
kind: AccessPolicy
metadata: {name: open}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: app}]
  defaults: {public: true}
",
    );
    cluster.apply(&tls_policy(validation));
    cluster
}

fn gateway(name: &str, port: u16, secret: &str) -> String {
    let tls = match secret {
        "" => String::new(),
        secret => format!("  tls: {{backend: {{clientCertificateRef: {{name: {secret}}}}}}}\n"),
    };
    format!(
        "kind: Gateway
metadata: {{name: {name}}}
spec:
  gatewayClassName: postern
  listeners: [{{name: http, port: {port}, protocol: HTTP}}]
{tls}"
    )
}

fn tls_policy(validation: &str) -> String {
    format!(
        "kind: BackendTLSPolicy
metadata: {{name: app}}
spec:
  targetRefs: [{{group: '', kind: Service, name: app}}]
  validation: {{caCertificateRefs: [{{group: '', kind: ConfigMap, name: ca}}], {validation}}}"
    )
}

#[test]
fn the_names_of_a_policy_count_instead_of_its_host() {
    let authority = Authority::new("pods");
    let pod = pod(&authority, "app.pods.test", Vec::new());
    let mut cluster = cluster(&authority, pod, "hostname: app.pods.test");
    let names = |list: &str| format!("hostname: sni.test, subjectAltNames: [{list}]");
    for (validation, is_valid) in [
        ("hostname: app.pods.test".to_owned(), true),
        ("hostname: sni.test".to_owned(), false),
        (names("{type: Hostname, hostname: app.pods.test}"), true),
        (names("{type: Hostname, hostname: '*.pods.test'}"), true),
        (names("{type: Hostname, hostname: sni.test}"), false),
        (names("{type: URI, uri: 'spiffe://pods.test/app'}"), false),
        (
            names("{type: URI, uri: 'spiffe://pods.test/app'}, {type: Hostname, hostname: app.pods.test}"),
            true,
        ),
    ] {
        cluster.apply(&tls_policy(&validation));
        assert_eq!(cluster.publish(), "");
        let response = cluster.get("app.test", "/", "");
        let expected = if is_valid { 200 } else { 502 };
        assert!(
            response.status == expected || !is_valid && response.status == 503,
            "{validation}: {}",
            response.text()
        );
    }
}

#[test]
fn each_gateway_shows_its_own_certificate_and_its_renewal() {
    let authority = Authority::new("pods");
    let (first, known_first) = client(&authority, "first");
    let (second, known_second) = client(&authority, "second");
    let (renewed, (der, _)) = client(&authority, "first");
    let clients = vec![known_first, known_second, (der, "renewed")];
    let mut cluster = cluster(&authority, pod(&authority, "app.test", clients), "hostname: app.test");
    let seen = |cluster: &Cluster| {
        let other = get(cluster.secure(), "app.test", "/", "");
        [cluster.get("app.test", "/", ""), other].map(|response| {
            if response.status == 200 { response.text() } else { response.status.to_string() }
        })
    };
    cluster.publish();
    assert_eq!(seen(&cluster), ["nobody", "nobody"]);
    cluster.apply(&first);
    cluster.apply(&second);
    cluster.apply(&gateway("gw", 80, "first"));
    assert_eq!(cluster.publish(), "");
    assert_eq!(seen(&cluster), ["first", "nobody"]);
    cluster.apply(&gateway("other", 443, "second"));
    cluster.publish();
    assert_eq!(seen(&cluster), ["first", "second"]);
    cluster.apply(&renewed);
    cluster.publish();
    assert_eq!(seen(&cluster), ["renewed", "second"]);
    cluster.remove("Secret", "first");
    cluster.publish();
    assert_eq!(seen(&cluster), ["500", "second"], "not without the certificate");
    cluster.apply(&gateway("gw", 80, ""));
    cluster.publish();
    assert_eq!(seen(&cluster), ["nobody", "second"]);
}

/// The status of a request for `host` over a connection that was opened for `app.test`.
fn over_app_test(cluster: &Cluster, authority: &Authority, host: &str) -> u16 {
    let mut stream = authority.connect(cluster.secure(), &[b"http/1.1"], None);
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the certificate is trusted");
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    let text = String::from_utf8_lossy(&response).into_owned();
    text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// A Gateway `gw` with these listeners on port 443, each with its hostname in YAML, and a route of all of
/// them that is open to everybody.
fn listeners(cluster: &mut Cluster, listeners: &[(&str, &str)]) {
    let https = listeners.iter().map(|(name, hostname)| {
        format!(
            "\n  - {{name: {name}, port: 443, protocol: HTTPS{hostname}, tls: {{certificateRefs: [{{name: cert}}]}}}}"
        )
    });
    let https: String = https.collect();
    cluster.apply(&format!(
        "kind: Gateway
metadata: {{name: gw}}
spec:
  gatewayClassName: postern
  listeners:
  - {{name: http, port: 80, protocol: HTTP}}{https}
---
kind: HTTPRoute
metadata: {{name: app}}
spec:
  parentRefs: [{{name: gw}}]
  rules: [{{backendRefs: [{{name: app, port: 80}}]}}]
---
kind: AccessPolicy
metadata: {{name: open}}
spec:
  targetRefs: [{{group: gateway.networking.k8s.io, kind: HTTPRoute, name: app}}]
  defaults: {{public: true}}"
    ));
    cluster.publish();
}

const APP: (&str, &str) = ("app", ", hostname: app.test");
const WILD: (&str, &str) = ("wild", ", hostname: '*.wild.test'");
const ANY: (&str, &str) = ("any", "");

#[test]
fn a_request_for_the_host_of_another_listener_is_misdirected() {
    let (pod, authority) = (Upstream::start(), Authority::new("listeners"));
    let mut cluster = Cluster::start();
    cluster.apply(&secret("cert", &authority, "app.test"));
    cluster.apply(&manifest_of_service("app", pod.address));
    listeners(&mut cluster, &[APP, WILD]);
    let status = |cluster: &Cluster, host: &str| over_app_test(cluster, &authority, host);
    assert_eq!(status(&cluster, "app.test"), 200);
    assert_eq!(status(&cluster, "App.test:443"), 200, "the same host");
    assert_eq!(status(&cluster, "a.wild.test"), 421);
    assert_eq!(status(&cluster, "other.test"), 404, "no listener takes it");
    assert_eq!(cluster.get("a.wild.test", "/", "").status, 200, "without TLS there is no other connection");
    // With a listener for any host, that one takes the rest.
    listeners(&mut cluster, &[APP, WILD, ANY]);
    assert_eq!(status(&cluster, "other.test"), 421);
    // Hosts of one listener share its connections.
    listeners(&mut cluster, &[ANY]);
    assert_eq!((status(&cluster, "other.test"), status(&cluster, "app.test")), (200, 200));
}

#[test]
fn a_connection_of_a_trusted_proxy_is_for_all_hosts() {
    let (pod, authority) = (Upstream::start(), Authority::new("listeners"));
    let networks = vec!["127.0.0.0/8".parse().expect("a network")];
    let proxies = TrustedProxies { networks, source: ForwardedSource::Forwarded };
    let controller = Settings::new("postern.dev/gateway-controller");
    let mut cluster = Cluster::with_proxies(controller, Some(proxies));
    cluster.apply(&secret("cert", &authority, "app.test"));
    cluster.apply(&manifest_of_service("app", pod.address));
    listeners(&mut cluster, &[APP, WILD]);
    assert_eq!(over_app_test(&cluster, &authority, "a.wild.test"), 200);
}

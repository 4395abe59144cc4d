//! An Ingress and a Route of OpenShift, served by the listeners of a Gateway.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use controller::names::NamespacedName;
use controller::settings::Settings;
use dataplane::certificates::Authority;
use dataplane::harness::Upstream;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::objects::{Cluster, manifest_of_service};

/// A Gateway with an HTTP and an HTTPS listener that serves Ingresses and Routes, and a service `app`
/// with this pod.
fn cluster(pod: SocketAddr) -> Cluster {
    let mut cluster = Cluster::with(Settings {
        ingress_gateway: Some(NamespacedName::new("team", "gw")),
        ..Settings::new("postern.dev/gateway-controller")
    });
    cluster.apply(&secret("gw", &Authority::new("listener"), "other.test"));
    cluster.apply(
        "
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: postern
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: gw}]}}
---
kind: IngressClass
metadata: {name: postern}
spec: {controller: postern.dev/gateway-controller}
",
    );
    cluster.apply(&manifest_of_service("app", pod));
    cluster
}

/// A Secret with a certificate for a host.
pub(crate) fn secret(name: &str, authority: &Authority, host: &str) -> String {
    let (certificate, key) = authority.issue(&[host], host);
    let (certificate, key) = (STANDARD.encode(certificate.pem()), STANDARD.encode(key.serialize_pem()));
    format!("kind: Secret\nmetadata: {{name: {name}}}\ndata: {{tls.crt: {certificate}, tls.key: {key}}}")
}

/// A text of several lines as a value of YAML.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\n', "\\n"))
}

fn policy(group: &str, kind: &str) -> String {
    format!(
        "kind: AccessPolicy
metadata: {{name: developers}}
spec:
  targetRefs: [{{group: {group}, kind: {kind}, name: app}}]
  defaults: {{allow: [{{groups: {{any: [dev]}}}}]}}"
    )
}

/// Status and the rest of a response over HTTPS. The certificate for `app.test` must be one of
/// `authority`.
pub(crate) fn get_secure(
    cluster: &Cluster,
    authority: &Authority,
    path: &str,
    fields: &str,
) -> (u16, String) {
    let mut stream = authority.connect(cluster.secure(), &[b"http/1.1"], None);
    let request = format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n{fields}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the certificate is trusted");
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    let text = String::from_utf8_lossy(&response).into_owned();
    let status = text.get(9..12).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{text}")), text)
}

#[test]
fn an_ingress_is_served_with_its_certificate_under_a_policy() {
    let pod = Upstream::start();
    let mut cluster = cluster(pod.address);
    let authority = Authority::new("team");
    cluster.apply(&secret("app", &authority, "app.test"));
    cluster.apply(
        "
kind: Ingress
metadata: {name: app}
spec:
  ingressClassName: postern
  tls: [{hosts: [app.test], secretName: app}]
  rules:
  - host: app.test
    http: {paths: [{path: /app/, pathType: Prefix, backend: {service: {name: app, port: {name: http}}}}]}
---
kind: Ingress
metadata: {name: rest}
spec: {ingressClassName: postern, defaultBackend: {service: {name: app, port: {number: 80}}}}
",
    );
    assert_eq!(cluster.publish(), "");
    let plain = cluster.get("app.test", "/app/x?y=z", "");
    assert_eq!((plain.status, plain.value("location")), (308, Some("https://app.test/app/x?y=z")));
    let (status, text) = get_secure(&cluster, &authority, "/app/x", "");
    assert!(status == 403 && text.contains("no_policy"), "{text}");
    cluster.apply(&policy("networking.k8s.io", "Ingress"));
    assert_eq!(cluster.publish(), "");
    assert_eq!(get_secure(&cluster, &authority, "/app/x", "").0, 401);
    let bearer = cluster.bearer();
    let (status, text) = get_secure(&cluster, &authority, "/app/x", &bearer);
    assert_eq!(status, 200, "{text}");
    assert_eq!(pod.only().line(), "GET /app/x HTTP/1.1");
    assert_eq!(get_secure(&cluster, &authority, "/app", &bearer).0, 200, "a slash at the end says nothing");
    // All paths of the host are the Ingress's own: no broader one has them.
    assert_eq!(get_secure(&cluster, &authority, "/apps", &bearer).0, 404);
    assert_eq!(cluster.get("app.test", "/apps", "").status, 404);
    assert_eq!(cluster.get("any.test", "/apps", "").status, 403, "the other one has no policy");
    assert_eq!(pod.seen().len(), 2);
    // A renewed certificate.
    let renewed = Authority::new("renewed");
    cluster.apply(&secret("app", &renewed, "app.test"));
    cluster.publish();
    assert_eq!(get_secure(&cluster, &renewed, "/app", &bearer).0, 200);
    cluster.remove("Ingress", "app");
    cluster.publish();
    assert_eq!(cluster.get("app.test", "/app", "").status, 403);
}

/// A pod that speaks TLS, with a certificate for a name.
fn tls_pod(authority: &Authority, name: &str) -> SocketAddr {
    let (certificate, key) = authority.issue(&[name], name);
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.der().clone()], key).expect("a certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let connection = ServerConnection::new(config.clone()).expect("a connection");
            let mut stream = StreamOwned::new(connection, socket);
            if stream.read(&mut [0; 8192]).is_ok() {
                let response = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 6\r\n\r\nsecure";
                let _ = stream.write_all(response).and_then(|()| stream.flush());
            }
        }
    });
    address
}

#[test]
fn a_route_is_encrypted_again_to_a_backend_that_its_authorities_know() {
    let (front, back, strange) = (Authority::new("front"), Authority::new("back"), Authority::new("strange"));
    let mut cluster = cluster(tls_pod(&back, "some.name.of.the.pod"));
    let (certificate, key) = front.issue(&["app.test"], "app.test");
    let route = |authority: &Authority| {
        format!(
            "kind: Route
metadata: {{name: app}}
spec:
  host: app.test
  to: {{kind: Service, name: app, weight: 100}}
  port: {{targetPort: http}}
  tls:
    termination: reencrypt
    insecureEdgeTerminationPolicy: Redirect
    certificate: {}
    key: {}
    destinationCACertificate: {}",
            quoted(&certificate.pem()),
            quoted(&key.serialize_pem()),
            quoted(&authority.pem()),
        )
    };
    cluster.apply(&route(&back));
    cluster.apply(&policy("route.openshift.io", "Route"));
    assert_eq!(cluster.publish(), "");
    let plain = cluster.get("app.test", "/x", "");
    assert_eq!((plain.status, plain.value("location")), (302, Some("https://app.test/x")));
    assert_eq!(get_secure(&cluster, &front, "/x", "").0, 401);
    let bearer = cluster.bearer();
    let (status, text) = get_secure(&cluster, &front, "/x", &bearer);
    assert!(status == 200 && text.ends_with("secure"), "{text}");
    cluster.apply(&route(&strange));
    cluster.publish();
    let (status, text) = get_secure(&cluster, &front, "/x", &bearer);
    assert!(status == 502 || status == 503, "{text}");
}

//! TLS of a listener and to an upstream: several certificates, post-quantum key exchange, revoked
//! client certificates, pinned certificates.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore, StreamOwned};

use dataplane::certificates::{Authority, connect_with};
use dataplane::harness::{Fixture, Issuer, PATIENCE, Setup, Upstream, now};

const REQUEST: &str = "GET /machines HTTP/1.1\r\nHost: app.test\r\n\r\n";

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Writes a certificate and its key. Returns them as the configuration names them.
fn pair(folder: &Path, name: &str, (certificate, key): &(rcgen::Certificate, rcgen::KeyPair)) -> String {
    let certificate = write(folder, &format!("{name}.pem"), &certificate.pem());
    let key = write(folder, &format!("{name}.key"), &key.serialize_pem());
    format!("certificate = \"{certificate}\", key = \"{key}\"")
}

/// A gateway whose listener has this TLS.
fn gateway(folder: tempfile::TempDir, tls: &str, more: &str) -> (Fixture, Setup) {
    let (issuer, upstream) = (Issuer::new(), Upstream::start());
    issuer.write_jwks(&folder.path().join("jwks.json"));
    let listener = format!("tls = {{ {tls} }}");
    let setup = Setup { listener, more: more.to_owned(), ..Setup::default() };
    let text = setup.file(folder.path(), upstream.address);
    (Fixture::from_text(folder, issuer, upstream, &text), setup)
}

/// Status of a request on an open connection; an error if it was closed.
fn status(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> std::io::Result<u16> {
    stream.write_all(REQUEST.as_bytes())?;
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&chunk[..read]),
        }
    }
    let text = String::from_utf8_lossy(&head);
    Ok(text.split(' ').nth(1).unwrap().parse().unwrap())
}

#[test]
fn a_client_receives_the_certificate_of_the_name_that_it_asks_for() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("servers"));
    let default = authority.issue(&["app.test"], "app.test");
    let wildcard = authority.issue(&["*.shop.test"], "shop");
    let tls = format!(
        "certificates = [{{ {} }}, {{ {} }}]",
        pair(folder.path(), "default", &default),
        pair(folder.path(), "wildcard", &wildcard)
    );
    let (fixture, _) = gateway(folder, &tls, "");
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let config = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    for (name, expected) in
        [("app.test", Some(&default)), ("one.shop.test", Some(&wildcard)), ("x.test", None)]
    {
        let connection = ClientConnection::new(config.clone(), ServerName::try_from(name).unwrap()).unwrap();
        let socket = TcpStream::connect(fixture.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        let handshake = stream.conn.complete_io(&mut stream.sock);
        assert_eq!(handshake.is_ok(), expected.is_some(), "{name}: {handshake:?}");
        if let Some((certificate, _)) = expected {
            assert_eq!(&stream.conn.peer_certificates().unwrap()[0], certificate.der(), "{name}");
            let group = stream.conn.negotiated_key_exchange_group().unwrap().name();
            assert_eq!(group, NamedGroup::X25519MLKEM768, "it resists quantum computers by default");
        }
    }
}

const MACHINES: &str = r#"
[client_certificates]
name = "mesh"
subject = "subject_cn"
[[route]]
name = "machines"
path = { prefix = "/machines" }
upstream = "backend"
policy = { allow = [{ subjects = ["robot-7"], issuers = ["mesh"] }] }
"#;

#[test]
fn a_revoked_client_certificate_is_refused_also_on_connections_that_stand() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("servers"));
    let clients = Authority::new("clients");
    let ca = write(folder.path(), "clients.pem", &clients.pem());
    let list = write(folder.path(), "clients.crl", &clients.revocation_list(&[], 2060));
    let server = pair(folder.path(), "server", &authority.issue(&["app.test"], "app.test"));
    let tls = format!(
        "{server}, client_ca = \"{ca}\", client_crl = [\"{list}\"], client_certificates = \"optional\""
    );
    let (fixture, setup) = gateway(folder, &tls, MACHINES);
    let ((one, one_key), (two, two_key)) =
        (clients.issue_numbered(7, "robot-7"), clients.issue_numbered(8, "robot-7"));
    let connect = |certificate, key| authority.connect(fixture.address, &[], Some((certificate, key)));
    let (mut first, mut second) = (connect(&one, &one_key), connect(&two, &two_key));
    assert_eq!((status(&mut first).unwrap(), status(&mut second).unwrap()), (200, 200));
    std::fs::write(&list, clients.revocation_list(&[8], 2060)).unwrap();
    fixture.reload(&setup);
    assert_eq!((status(&mut first).unwrap(), status(&mut second).unwrap()), (200, 401));
    assert!(status(&mut connect(&two, &two_key)).is_err(), "its handshake fails");
    assert_eq!(status(&mut connect(&one, &one_key)).unwrap(), 200);
    let served = fixture.upstream.seen().len();
    // An expired list denies all.
    std::fs::write(&list, clients.revocation_list(&[], 2025)).unwrap();
    fixture.reload(&setup);
    assert_eq!((status(&mut first).unwrap(), status(&mut second).unwrap()), (401, 401));
    assert!(status(&mut connect(&one, &one_key)).is_err());
    assert_eq!(fixture.upstream.seen().len(), served, "nothing reaches the upstream");
}

/// An open connection and a resumed session say what an earlier handshake verified.
#[test]
fn when_the_revocation_list_expires_no_connection_is_trusted() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("servers"));
    let clients = Authority::new("clients");
    let ca = write(folder.path(), "clients.pem", &clients.pem());
    let end = now() + 5;
    let list = write(folder.path(), "clients.crl", &clients.revocation_list_until(&[], end));
    let server = pair(folder.path(), "server", &authority.issue(&["app.test"], "app.test"));
    let tls = format!(
        "{server}, client_ca = \"{ca}\", client_crl = [\"{list}\"], client_certificates = \"optional\""
    );
    let (fixture, _) = gateway(folder, &tls, MACHINES);
    let (robot, key) = clients.issue_numbered(7, "robot-7");
    let client = authority.client(&[], Some((&robot, &key)));
    let connect = || connect_with(fixture.address, client.clone());
    let mut open = connect();
    assert_eq!(status(&mut open).unwrap(), 200);
    assert_eq!(connect_resumed(connect()), 200);
    while now() <= end {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(status(&mut open).unwrap(), 401);
    assert_eq!(connect_resumed(connect()), 401);
    assert!(status(&mut authority.connect(fixture.address, &[], Some((&robot, &key)))).is_err());
}

/// Status of a request on a connection that resumes a session.
fn connect_resumed(mut stream: StreamOwned<ClientConnection, TcpStream>) -> u16 {
    let status = status(&mut stream).unwrap();
    assert_eq!(stream.conn.handshake_kind(), Some(HandshakeKind::Resumed));
    status
}

/// A server with a self-signed certificate that says `CA:TRUE`, as openssl makes it. Returns its
/// address and the certificate.
fn self_signed_server() -> (std::net::SocketAddr, rcgen::Certificate) {
    let mut params = rcgen::CertificateParams::new(vec!["backend.test".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "backend");
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(connection, socket);
            if stream.read(&mut [0; 8192]).is_ok() {
                let _ =
                    stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    (address, certificate)
}

#[test]
fn a_pinned_upstream_is_accepted_for_its_own_certificate_and_name() {
    let ((address, own), (_, other)) = (self_signed_server(), self_signed_server());
    let folder = tempfile::tempdir().unwrap();
    let own = write(folder.path(), "own.pem", &own.pem());
    let other = write(folder.path(), "other.pem", &other.pem());
    for (ca, name, expected) in
        [(&own, "backend.test", 200), (&other, "backend.test", 502), (&own, "other.test", 502)]
    {
        let upstream = format!(
            "endpoints = [\"https://{address}\"]\ntls = {{ ca = \"{ca}\", server_name = \"{name}\" }}"
        );
        let fixture = Fixture::with(Setup { upstream, ..Setup::default() }, Upstream::start());
        assert_eq!(fixture.get("/").status, expected, "{ca} {name}");
    }
}

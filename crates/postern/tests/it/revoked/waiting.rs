//! Requests that wait for a service while their token is revoked: no request is authorized with
//! revocation state from before the wait.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::edge::{FOLLOW, gateway};
use super::fixture::{Town, authority, call, service};

/// A server that makes each client wait until the gate opens.
struct Slow {
    address: String,
    /// Receives one message for each waiting client.
    arrived: Receiver<()>,
    gate: Arc<Gate>,
    /// Number of requests read. Each is counted before it is answered, so that a client with a
    /// response finds it counted.
    read: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, open: bool) {
        *self.open.lock().unwrap() = open;
        self.changed.notify_all();
    }

    fn pass(&self, arrived: &Sender<()>) {
        let open = self.open.lock().unwrap();
        if !*open {
            let _ = arrived.send(());
        }
        drop(self.changed.wait_while(open, |open| !*open).unwrap());
    }
}

impl Slow {
    /// `serve` is called for each connection, with a function that waits for the gate and the
    /// counter of requests.
    fn start(serve: impl Fn(TcpStream, &dyn Fn(), &AtomicUsize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (gate, read, serve) = (Arc::<Gate>::default(), Arc::<AtomicUsize>::default(), Arc::new(serve));
        let (tell, arrived) = channel();
        let (theirs, count) = (gate.clone(), read.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (gate, count, serve) = (theirs.clone(), count.clone(), serve.clone());
                let tell = tell.clone();
                thread::spawn(move || serve(stream, &|| gate.pass(&tell), &count));
            }
        });
        Self { address, arrived, gate, read }
    }

    /// An authorizer that has read the query and may permit it.
    fn authorizer() -> Self {
        Self::start(|mut stream, pass, read| {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            if lines.all(|line| !line.is_empty()) {
                return;
            }
            read.fetch_add(1, Ordering::Relaxed);
            pass();
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        })
    }

    /// A TLS server that accepts connections, but no handshake until the gate opens.
    fn behind_tls(config: Arc<ServerConfig>) -> Self {
        Self::start(move |stream, pass, read| {
            pass();
            let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
            if !matches!(stream.read(&mut [0; 8192]), Ok(1..)) {
                return;
            }
            read.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        })
    }

    /// Status of a request whose token is revoked while it waits, once no gateway accepts the token
    /// any more.
    fn revoked_meanwhile(&self, town: &Town, gateway: &str, token: &str) -> String {
        self.gate.set(false);
        thread::scope(|scope| {
            let asked = scope.spawn(|| call(gateway, "/", token));
            self.arrived.recv_timeout(Duration::from_secs(20)).expect("it waits");
            town.nodes[0].revoke(&format!("{token}&wait=true"));
            self.gate.set(true);
            asked.join().unwrap()
        })
    }
}

#[test]
fn what_was_found_out_before_an_authorizer_was_asked_is_not_gone_by_when_it_answers() {
    let town = Town::new("waiting", 1, "sqlite://postern.db?mode=rwc");
    town.write_follow_secret();
    let slow = Slow::authorizer();
    let tables = format!(
        "{}[[upstream]]\nname = \"auth\"\nendpoints = [\"http://{}\"]\n\
         [[upstream]]\nname = \"service\"\nendpoints = [\"http://{}\"]\n\
         [[authorizer]]\nname = \"other\"\nupstream = \"auth\"\ntimeout = \"30s\"\n\
         [[route]]\nname = \"all\"\nupstream = \"service\"\nauthorizer = \"other\"\n\
         policy = {{ allow = [{{ authenticated = true }}] }}\n",
        authority(&town.nodes[0].provider),
        slow.address,
        service()
    );
    let mut gateway = gateway(&town, "", FOLLOW, &tables);
    gateway.begun();
    for client in ["app", "opaque"] {
        let (token, other) = (town.nodes[0].token_of(client), town.nodes[0].token_of(client));
        let answer = slow.revoked_meanwhile(&town, &gateway.gateway, &token);
        assert!(
            answer.starts_with("HTTP/1.1 401 ") && answer.contains("invalid_token"),
            "{client}: {answer}"
        );
        assert_eq!(gateway.status(&other), 200, "{client}");
    }
}

#[test]
fn a_request_that_waited_for_a_connection_is_not_sent_with_a_token_that_was_revoked_since() {
    let town = Town::new("connecting", 1, "sqlite://postern.db?mode=rwc");
    town.write_follow_secret();
    let made = rcgen::generate_simple_self_signed(["backend.test".to_owned()]).unwrap();
    town.folder.write("backend.pem", made.cert.pem());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let slow = Slow::behind_tls(Arc::new(config));
    let tables = format!(
        "{}[[upstream]]\nname = \"service\"\nendpoints = [\"https://{}\"]\ntimeouts = {{ connect = \"30s\" }}\n\
         tls = {{ ca = \"backend.pem\", server_name = \"backend.test\" }}\n\
         [[route]]\nname = \"all\"\nupstream = \"service\"\npolicy = {{ allow = [{{ authenticated = true }}] }}\n",
        authority(&town.nodes[0].provider),
        slow.address,
    );
    let mut gateway = gateway(&town, "", FOLLOW, &tables);
    gateway.begun();
    for client in ["app", "opaque"] {
        let (token, other) = (town.nodes[0].token_of(client), town.nodes[0].token_of(client));
        slow.gate.set(true);
        // From here on the token is in the cache, and needs no other query.
        assert_eq!([gateway.status(&token), gateway.status(&other)], [200; 2], "{client}");
        let before = slow.read.load(Ordering::Relaxed);
        let answer = slow.revoked_meanwhile(&town, &gateway.gateway, &token);
        assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("revoked"), "{client}: {answer}");
        assert_eq!(slow.read.load(Ordering::Relaxed), before, "{client}: the service has not seen it");
        assert_eq!(gateway.status(&other), 200, "{client}");
    }
}

//! A network in which HTTP returns no responses and the broker loses messages. Every consumer that
//! can be reached in some way is.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::Broker;
use super::fixture::{MAX_ACCEPTANCE, Node, Town, until};
use crate::support::{Folder, Running, get};
use dataplane::ports::free;

/// Configuration of what `postern lab relay` drops.
struct Faults(Folder);

impl Faults {
    fn new(name: &str) -> Self {
        let faults = Self(Folder::new(&format!("faults-{name}")));
        faults.set("pass", 0);
        faults
    }

    fn set(&self, answers: &str, nats_loss: u32) {
        self.0.write("new", format!("answers = \"{answers}\"\nnats_loss = {nats_loss}\n"));
        std::fs::rename(self.0.0.join("new"), self.0.0.join("faults.toml")).unwrap();
    }

    /// Starts a relay between a new address and `to`.
    fn relay(&self, kind: &str, to: &str) -> (Running, String) {
        let (address, file) = (free(), self.0.0.join("faults.toml"));
        let places = format!("{address}={to}");
        let relay = Running::start(&["lab", "relay", "--faults", file.to_str().unwrap(), kind, &places]);
        until(|| TcpStream::connect(&address).is_ok(), "listening");
        (relay, address)
    }
}

fn is_connected(node: &Node) -> bool {
    !get(&node.admin, "/readyz").contains("the transport is")
}

#[test]
fn no_valid_request_is_refused_while_a_broker_that_loses_messages_is_the_only_way() {
    let (broker, faults) = (Broker::start(), Faults::new("rough"));
    let (_nats, nats) = faults.relay("--nats", broker.url.strip_prefix("nats://").unwrap());
    let more = format!("[revocation]\nbrokers = [\"nats://{nats}\"]\n");
    let town = Town::with("rough", 1, "sqlite://postern.db?mode=rwc", &more);
    let (_http, http) = faults.relay("--http", &town.nodes[0].provider);
    let elsewhere = town.elsewhere_by_way_of(&format!("http://{http}"), &more);
    until(|| is_connected(&elsewhere) && is_connected(&town.nodes[0]), "connected");
    let node = &town.nodes[0];
    let others: Vec<_> = (0..20).map(|_| node.token()).collect();
    assert!(others.iter().all(|token| elsewhere.status(token) == 200));

    faults.set("lose", 30);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        let token = node.token();
        assert_eq!(elsewhere.status(&token), 200, "new, {:?} after HTTP was dead", began.elapsed());
        node.revoke(&token);
        let revoked = Instant::now();
        for other in &others {
            assert_eq!(elsewhere.status(other), 200, "{:?} after HTTP was dead", began.elapsed());
            let asked = Instant::now();
            match elsewhere.status(&token) {
                401 => {}
                200 => assert!(asked - revoked < MAX_ACCEPTANCE, "admitted {:?} after", asked - revoked),
                status => panic!("{status}, {:?} after HTTP was dead", began.elapsed()),
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    faults.set("pass", 0);
    until(|| is_connected(&elsewhere), "connected");
    assert!(others.iter().all(|token| elsewhere.status(token) == 200));
}

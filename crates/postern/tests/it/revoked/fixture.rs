//! Fixture: nodes of a provider with a gateway each, and gateways in other processes that follow
//! them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Folder, Running, exchange, get, output_text, postern};
use dataplane::ports::free;

/// Secret of the client.
const SECRET: &str = "wSvLnKOe0sJdSAkBXj4uFaMUVPYVnR1gkUK2cTnkJ4w=";
/// Longest time that a revoked token may still be accepted: the lease, plus the permitted clock
/// drift.
pub(crate) const MAX_ACCEPTANCE: Duration = Duration::from_millis(5005);
/// The same, plus the time until an exchange is cut.
pub(crate) const CUT: Duration = Duration::from_millis(6005);

/// Nodes of one provider, each with a gateway in front of the same service.
pub(crate) struct Town {
    pub(crate) nodes: Vec<Node>,
    pub(crate) folder: Folder,
}

pub(crate) struct Node {
    pub(crate) provider: String,
    pub(crate) gateway: String,
    pub(crate) admin: String,
    pub(crate) process: Running,
    /// Name of its configuration in the shared folder.
    pub(crate) file: String,
}

/// A service that answers. A response on `/events` never ends.
pub(crate) fn service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

fn serve(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        if !head.starts_with("GET /events ") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            continue;
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while stream.write_all(b"4\r\ndata\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
        return;
    }
}

/// Table of an authority that introspects opaque tokens at the provider.
pub(crate) fn authority(issuer: &str) -> String {
    authority_at(&format!("http://{issuer}"), issuer)
}

fn authority_at(url: &str, issuer: &str) -> String {
    format!(
        "[[token_authority]]\nname = \"opaque\"\nkind = \"introspection\"\nurl = \"{url}/introspect\"\n\
         prefixes = [\"ptn_at_\"]\naudiences = [\"orders\"]\nissuer = \"http://{issuer}\"\n\
         client_id = \"opaque\"\nclient_secret_file = \"app.secret\"\n"
    )
}

impl Town {
    pub(crate) fn new(name: &str, nodes: usize, database: &str) -> Self {
        Self::with(name, nodes, database, "")
    }

    /// Starts nodes with further configuration.
    pub(crate) fn with(name: &str, nodes: usize, database: &str, more: &str) -> Self {
        Self::started(name, nodes, database, more, |_, arguments| Running::start(arguments))
    }

    /// Starts one node for which a file size limit is an error, as on a full disk.
    pub(crate) fn with_limits_as_errors(name: &str, database: &str) -> Self {
        Self::started(name, 1, database, "", |_, arguments| Running::start_with_limits_as_errors(arguments))
    }

    /// Starts one node whose wall clock is shifted.
    pub(crate) fn with_clock(name: &str, shift: &str) -> Self {
        Self::started(name, 1, "sqlite://postern.db?mode=rwc", "", |folder, arguments| {
            Running::start_with_clock(&folder.write("clock", shift), arguments)
        })
    }

    fn started(
        name: &str,
        nodes: usize,
        database: &str,
        more: &str,
        run: impl Fn(&Folder, &[&str]) -> Running,
    ) -> Self {
        let folder = Folder::new(&format!("revoked-{name}"));
        folder.write("app.secret", SECRET);
        let private = |name: &str, content: &str| {
            let path = folder.write(name, content);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        private("provider.secret", "bM1CmSc0bM7vUjY0kX7V0o2Yxg1bI8cV8l2n0Rr2v6A=\n");
        private("database.url", database);
        let service = service();
        let places: Vec<_> = (0..nodes).map(|_| [free(), free(), free()]).collect();
        let issuer = &places[0][0];
        let start = |(at, [provider, gateway, admin]): (usize, &[String; 3])| {
            let text = format!(
                "[server]\nreload_on_change = false\nworkers = 1\n[admin]\naddress = \"{admin}\"\n\
                 [access_log]\nformat = \"off\"\n{more}\n\
                 [provider]\nissuer = \"http://{issuer}\"\naddress = \"{provider}\"\naudiences = [\"orders\"]\n\
                 database_file = \"database.url\"\nsecret_file = \"provider.secret\"\n\
                 [[provider.client]]\nid = \"app\"\nsecret_files = [\"app.secret\"]\n\
                 grants = [\"client_credentials\"]\naudiences = [\"orders\"]\naccess_token_lifetime = \"3h\"\n\
                 [[provider.client]]\nid = \"opaque\"\nsecret_files = [\"app.secret\"]\naccess_token = \"opaque\"\n\
                 grants = [\"client_credentials\"]\naudiences = [\"orders\"]\naccess_token_lifetime = \"1h\"\n\
                 introspects = \"audience\"\n\
                 [[listener]]\nname = \"main\"\naddress = \"{gateway}\"\n\
                 [[issuer]]\nname = \"own\"\nissuer = \"http://{issuer}\"\naudiences = [\"orders\"]\n\
                 jwks_uri = \"http://{provider}/jwks\"\n{}\
                 [[upstream]]\nname = \"service\"\nendpoints = [\"http://{service}\"]\n\
                 [[route]]\nname = \"all\"\npath = {{ prefix = \"/\" }}\nupstream = \"service\"\n\
                 policy = {{ allow = [{{ authenticated = true }}] }}\n",
                authority(issuer)
            );
            let file = format!("node-{at}.toml");
            let config = folder.write(&file, text);
            let mut process = run(&folder, &["serve", "--config", config.to_str().unwrap()]);
            process.wait_for("provider listening");
            let (provider, gateway, admin) = (provider.clone(), gateway.clone(), admin.clone());
            Node { provider, gateway, admin, process, file }
        };
        let nodes: Vec<_> = places.iter().enumerate().map(start).collect();
        for node in &nodes {
            until(|| get(&node.admin, "/readyz").contains(" 200 "), "ready");
        }
        Self { nodes, folder }
    }
}

impl Town {
    /// Stops the first node normally.
    pub(crate) fn stop(&mut self) {
        let node = &mut self.nodes[0];
        node.process.signal("-TERM");
        assert_eq!(node.process.ended(), Some(0));
    }

    /// Starts the first node again.
    pub(crate) fn start_again(&mut self) {
        let config = self.folder.0.join("node-0.toml");
        let node = &mut self.nodes[0];
        node.process = Running::start(&["serve", "--config", config.to_str().unwrap()]);
        node.process.wait_for("provider listening");
    }
}

/// Waits until a condition is true.
pub(crate) fn until(mut what: impl FnMut() -> bool, name: &str) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_mins(1), "not {name} in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Response of a gateway.
pub(crate) fn call(gateway: &str, path: &str, token: &str) -> String {
    exchange(
        gateway,
        &format!(
            "GET {path} HTTP/1.1\r\nHost: {gateway}\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        ),
    )
}

/// Response of a provider to a client.
pub(crate) fn post(provider: &str, client: &str, path: &str, form: &str) -> String {
    let secret = SECRET.replace('=', "%3D");
    let form = format!("client_id={client}&client_secret={secret}&{form}");
    exchange(
        provider,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: {provider}\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        ),
    )
}

impl Node {
    pub(crate) fn begun(&mut self) {
        self.process.wait_for("listening");
        until(|| get(&self.admin, "/readyz").contains(" 200 "), "ready");
    }

    pub(crate) fn post(&self, client: &str, path: &str, form: &str) -> String {
        post(&self.provider, client, path, form)
    }

    pub(crate) fn token(&self) -> String {
        self.token_of("app")
    }

    pub(crate) fn token_of(&self, client: &str) -> String {
        let answer = self.post(client, "/token", "grant_type=client_credentials");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
        body["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    pub(crate) fn revoke(&self, token: &str) {
        let client = if token.starts_with("ptn_") { "opaque" } else { "app" };
        let answer = self.post(client, "/revoke", &format!("token={token}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    pub(crate) fn call(&self, path: &str, token: &str) -> String {
        call(&self.gateway, path, token)
    }

    pub(crate) fn status(&self, token: &str) -> u16 {
        self.call("/", token).split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        let metrics = get(&self.admin, "/metrics");
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap()
    }

    /// Opens a stream. Returns when it ended, and sends the instant at which it has begun.
    pub(crate) fn stream(&self, token: &str) -> std::thread::JoinHandle<Instant> {
        let mut stream = TcpStream::connect(&self.gateway).unwrap();
        let request = format!(
            "GET /events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\r\n",
            self.gateway
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut first = [0; 15];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while matches!(stream.read(&mut buffer), Ok(1..)) {}
            Instant::now()
        })
    }
}

impl Town {
    /// Starts a gateway without a provider that follows this one. `more` is further configuration.
    pub(crate) fn remote_gateway(&self, more: &str) -> Node {
        self.write_follow_secret();
        let mut elsewhere = self.start_elsewhere(more);
        elsewhere.begun();
        elsewhere
    }

    /// Starts one whose wall clock has the offset in a file, such as `+1h`.
    pub(crate) fn elsewhere_with_clock(&self, clock: &Path) -> Node {
        self.write_follow_secret();
        let authority = authority(&self.nodes[0].provider);
        let mut elsewhere =
            self.start_elsewhere_by(&authority, "", |arguments| Running::start_with_clock(clock, arguments));
        elsewhere.begun();
        elsewhere
    }

    /// Starts one that sends revocation queries to this URL.
    pub(crate) fn elsewhere_by_way_of(&self, url: &str, more: &str) -> Node {
        self.write_follow_secret();
        let mut elsewhere = self.start_elsewhere_by_way_of(url, more);
        elsewhere.begun();
        elsewhere
    }

    /// The same, without waiting for the first revocation state.
    pub(crate) fn start_elsewhere_by_way_of(&self, url: &str, more: &str) -> Node {
        let follow = format!("revocation.url = \"{url}\"\n{}", authority(&self.nodes[0].provider));
        self.start_elsewhere_by(&follow, more, Running::start)
    }

    /// Starts one that sends all queries to this URL.
    pub(crate) fn elsewhere_behind(&self, url: &str) -> Node {
        self.write_follow_secret();
        let follow = format!("revocation.url = \"{url}\"\n{}", authority_at(url, &self.nodes[0].provider));
        let mut elsewhere = self.start_elsewhere_by(&follow, "", Running::start);
        elsewhere.begun();
        elsewhere
    }

    pub(crate) fn write_follow_secret(&self) {
        let config = self.folder.0.join("node-0.toml");
        let printed = postern(&["admin", "--config", config.to_str().unwrap(), "revocation", "secret"]);
        assert_eq!(printed.status.code(), Some(0), "{}", output_text(&printed));
        self.folder.write("follow.secret", &printed.stdout);
    }

    pub(crate) fn start_elsewhere(&self, more: &str) -> Node {
        self.start_elsewhere_by(&authority(&self.nodes[0].provider), more, Running::start)
    }

    /// `follow` is appended to the table of the issuer.
    fn start_elsewhere_by(&self, follow: &str, more: &str, start: impl Fn(&[&str]) -> Running) -> Node {
        let (issuer, service) = (&self.nodes[0].provider, service());
        let (gateway, admin) = (free(), free());
        let secret = self.folder.0.join("follow.secret");
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let text = format!(
            "[server]\nreload_on_change = false\nworkers = 1\n[admin]\naddress = \"{admin}\"\n\
             [access_log]\nformat = \"off\"\n{more}\n\
             [[listener]]\nname = \"main\"\naddress = \"{gateway}\"\n\
             [[issuer]]\nname = \"own\"\nissuer = \"http://{issuer}\"\naudiences = [\"orders\"]\n\
             revocation.secret_file = \"follow.secret\"\n{follow}\
             [[upstream]]\nname = \"service\"\nendpoints = [\"http://{service}\"]\n\
             [[route]]\nname = \"all\"\npath = {{ prefix = \"/\" }}\nupstream = \"service\"\n\
             policy = {{ allow = [{{ authenticated = true }}] }}\n"
        );
        let file = format!("elsewhere-{gateway}.toml");
        let process = start(&["serve", "--config", self.folder.write(&file, text).to_str().unwrap()]);
        Node { provider: issuer.clone(), gateway, admin, process, file }
    }

    /// Revokes a token. Returns how long a gateway still accepted it.
    pub(crate) fn revoke_and_watch(&self, elsewhere: &Node) -> Duration {
        self.revoke_and_watch_of("app", elsewhere)
    }

    pub(crate) fn revoke_and_watch_of(&self, client: &str, elsewhere: &Node) -> Duration {
        let (token, other) = (self.nodes[0].token_of(client), self.nodes[0].token_of(client));
        assert_eq!([elsewhere.status(&token), elsewhere.status(&other)], [200; 2]);
        self.nodes[0].revoke(&token);
        let revoked = Instant::now();
        let mut last = revoked;
        loop {
            let asked = Instant::now();
            match elsewhere.status(&token) {
                401 => break,
                200 => last = asked,
                status => panic!("{status}"),
            }
            assert!(asked - revoked < MAX_ACCEPTANCE, "still admitted");
        }
        assert_eq!([elsewhere.status(&token), elsewhere.status(&other)], [401, 200]);
        last - revoked
    }
}

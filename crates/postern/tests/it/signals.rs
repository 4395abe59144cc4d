//! Security events between a provider and gateways that accept its tokens like those of any issuer.
//! One gateway gets pushed events, one polls.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Folder, Running, database_of_its_own, exchange, get, output_text, psql};
use dataplane::ports::free;

const SECRET: &str = "wSvLnKOe0sJdSAkBXj4uFaMUVPYVnR1gkUK2cTnkJ4w=";
const BEARER: &str = "what-they-show-each-other";
const PASSWORD: &str = "plough the winter dunes";
/// Time limit for an event. It normally takes much less.
const SOON: Duration = Duration::from_secs(10);

/// A provider, one gateway that it pushes to, and one that polls.
struct Nodes {
    folder: Folder,
    provider: String,
    gateways: [String; 2],
    admins: [String; 2],
    serving: Option<Running>,
    running: [Option<Running>; 2],
}

fn until(mut what: impl FnMut() -> bool, name: &str) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < SOON, "not {name} in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Nodes {
    /// Creates the processes with the provider's database at `database`.
    fn new(name: &str, database: &str) -> Self {
        let folder = Folder::new(&format!("signals-{name}"));
        folder.write("app.secret", SECRET);
        for (name, content) in [
            ("provider.secret", "bM1CmSc0bM7vUjY0kX7V0o2Yxg1bI8cV8l2n0Rr2v6A=\n"),
            ("database.url", database),
            ("bearer", BEARER),
        ] {
            let path = folder.write(name, content);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let (provider, pushed, fetching) = (free(), free(), free());
        let client = |id: &str, more: &str| {
            format!(
                "[[provider.client]]\nid = \"{id}\"\nsecret_files = [\"app.secret\"]\n\
                 grants = [\"client_credentials\", \"password\"]\naudiences = [\"orders\"]\nscopes = [\"openid\"]\n\
                 access_token_lifetime = \"1h\"\n{more}"
            )
        };
        folder.write(
            "provider.toml",
            format!(
                "[server]\nreload_on_change = false\n[admin]\naddress = \"{}\"\n\
                 [provider]\nissuer = \"http://{provider}\"\naddress = \"{provider}\"\naudiences = [\"orders\"]\n\
                 database_file = \"database.url\"\nsecret_file = \"provider.secret\"\n{}{}\
                 [[provider.event_receiver]]\nname = \"pushed\"\naudience = \"http://{pushed}\"\n\
                 endpoint = \"http://{pushed}/events/login\"\nendpoint_token_file = \"bearer\"\n\
                 [[provider.event_receiver]]\nname = \"fetching\"\naudience = \"http://{fetching}\"\n\
                 poll_token_file = \"bearer\"\n",
                free(),
                client("app", ""),
                client("opaque", "access_token = \"opaque\"\nintrospects = \"audience\"\n"),
            ),
        );
        let (gateways, admins) = ([pushed, fetching], [free(), free()]);
        let mut town = Self { folder, provider, gateways, admins, serving: None, running: [None, None] };
        town.serve();
        town
    }

    fn serve(&mut self) {
        let mut process = Running::start(&["serve", "--config", &self.path("provider.toml")]);
        process.wait_for("provider listening");
        self.serving = Some(process);
    }

    fn path(&self, name: &str) -> String {
        self.folder.0.join(name).display().to_string()
    }

    /// Starts a gateway: 0 receives pushed events, 1 polls.
    fn gateway(&mut self, at: usize) {
        let database = format!("database = \"sqlite://events-{at}.db?mode=rwc\"");
        self.gateway_on(at, &database, true);
    }

    /// Starts a gateway with its database at `database`. With `hears` false, its transmitter sends
    /// it nothing.
    fn gateway_on(&mut self, at: usize, database: &str, hears: bool) {
        let (provider, gateway, admin) = (&self.provider, &self.gateways[at], &self.admins[at]);
        let way = match at {
            _ if !hears => {
                format!("endpoint = \"http://{gateway}/elsewhere\"\nendpoint_token_file = \"bearer\"\n")
            }
            0 => format!("endpoint = \"http://{gateway}/events/login\"\nendpoint_token_file = \"bearer\"\n"),
            _ => {
                format!("poll_url = \"http://{provider}/ssf/poll/fetching\"\npoll_token_file = \"bearer\"\n")
            }
        };
        let service = service();
        let text = format!(
            "[server]\nreload_on_change = false\nworkers = 1\n[admin]\naddress = \"{admin}\"\n\
             [access_log]\nformat = \"off\"\n[[listener]]\nname = \"main\"\naddress = \"{gateway}\"\n\
             [[issuer]]\nname = \"login\"\nissuer = \"http://{provider}\"\naudiences = [\"orders\"]\n\
             [[token_authority]]\nname = \"opaque\"\nkind = \"introspection\"\nurl = \"http://{provider}/introspect\"\n\
             prefixes = [\"ptn_at_\"]\naudiences = [\"orders\"]\nissuer = \"http://{provider}\"\nttl = \"10m\"\n\
             client_id = \"opaque\"\nclient_secret_file = \"app.secret\"\n\
             [[upstream]]\nname = \"service\"\nendpoints = [\"http://{service}\"]\n\
             [[route]]\nname = \"all\"\npath = {{ prefix = \"/\" }}\nupstream = \"service\"\n\
             policy = {{ allow = [{{ authenticated = true }}] }}\n\
             [security_events]\n{database}\n\
             [[security_events.transmitter]]\nname = \"login\"\nissuer = \"http://{provider}\"\n\
             audiences = [\"http://{gateway}\"]\n{way}"
        );
        let name = format!("gateway-{at}.toml");
        self.folder.write(&name, text);
        let mut process = Running::start(&["serve", "--config", &self.path(&name)]);
        process.wait_for("listening");
        until(|| get(admin, "/readyz").contains(" 200 "), "ready");
        self.running[at] = Some(process);
    }

    fn both(name: &str, database: &str) -> Self {
        let mut town = Self::new(name, database);
        town.gateway(0);
        town.gateway(1);
        town
    }

    fn form(&self, client: &str, path: &str, form: &str) -> String {
        let form = format!("client_id={client}&client_secret={}&{form}", SECRET.replace('=', "%3D"));
        post(&self.provider, path, "Content-Type: application/x-www-form-urlencoded\r\n", &form)
    }

    fn token(&self, client: &str, grant: &str) -> String {
        let answer = json_of(&self.form(client, "/token", grant));
        answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    fn token_of(&self, client: &str, user: &str) -> String {
        let password = PASSWORD.replace(' ', "+");
        self.token(client, &format!("grant_type=password&username={user}&password={password}&scope=openid"))
    }

    fn revoke(&self, token: &str) {
        let client = if token.starts_with("ptn_") { "opaque" } else { "app" };
        let answer = self.form(client, "/revoke", &format!("token={token}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    fn admin(&self, arguments: &[&str], input: &str) {
        use std::io::Write as _;
        let mut command = Command::new(env!("CARGO_BIN_EXE_postern"));
        command.args(["admin", "--config", &self.path("provider.toml"), "--operator", "grace"]);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", output_text(&output));
    }

    fn status(&self, at: usize, token: &str) -> u16 {
        let address = &self.gateways[at];
        let head = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        exchange(address, &head).split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
    }

    /// Response statuses of both gateways.
    fn statuses(&self, token: &str) -> [u16; 2] {
        [self.status(0, token), self.status(1, token)]
    }

    fn is_refused_soon(&self, token: &str) {
        for at in [0, 1] {
            until(|| self.status(at, token) == 401, &format!("refused at {at}"));
        }
        assert_eq!(self.statuses(token), [401, 401], "and it stays so");
    }

    /// Response of a poll.
    fn poll(&self, bearer: &str, body: &str) -> (u16, Value) {
        poll(&self.provider, bearer, body)
    }
}

fn post(address: &str, path: &str, lines: &str, body: &str) -> String {
    exchange(
        address,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{lines}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ),
    )
}

fn poll(address: &str, bearer: &str, body: &str) -> (u16, Value) {
    let lines = format!("Content-Type: application/json\r\nAuthorization: Bearer {bearer}\r\n");
    let answer = post(address, "/ssf/poll/fetching", &lines, body);
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), json_of(&answer))
}

fn json_of(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// A service that answers every request.
fn service() -> String {
    use std::io::{Read as _, Write as _};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while matches!(stream.read(&mut buffer), Ok(1..)) {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
            });
        }
    });
    address
}

fn everything_is_told(town: &Nodes) {
    for client in ["app", "opaque"] {
        // One token is revoked, and no other.
        let (gone, kept) = (
            town.token(client, "grant_type=client_credentials"),
            town.token(client, "grant_type=client_credentials"),
        );
        for token in [&gone, &kept, &gone, &kept] {
            assert_eq!(town.statuses(token), [200, 200]);
        }
        town.revoke(&gone);
        town.is_refused_soon(&gone);
        assert_eq!(town.statuses(&kept), [200, 200]);
        // One user's password changes and one account is disabled. Other users are not affected.
        let users = ["changed", "closed", "left"].map(|what| format!("{what}-{client}"));
        for user in &users {
            town.admin(&["user", "add", user, "--password-file", "-"], PASSWORD);
        }
        let tokens = users.each_ref().map(|user| town.token_of(client, user));
        for token in &tokens {
            assert_eq!(town.statuses(token), [200, 200]);
        }
        town.admin(&["user", "password", &users[0], "--password-file", "-"], "another winter of dunes");
        town.is_refused_soon(&tokens[0]);
        town.admin(&["user", "disable", &users[1]], "");
        town.is_refused_soon(&tokens[1]);
        assert_eq!(town.statuses(&tokens[2]), [200, 200]);
        // A user who logs in afterwards is accepted.
        town.admin(&["user", "revoke", &users[2]], "");
        town.is_refused_soon(&tokens[2]);
        until(|| town.statuses(&town.token_of(client, &users[2])) == [200, 200], "welcome");
    }
}

#[test]
fn what_ends_at_the_provider_ends_at_gateways_that_are_told() {
    everything_is_told(&Nodes::both("all", "sqlite://postern.db?mode=rwc"));
}

#[test]
fn what_ends_at_a_provider_on_postgresql_ends_too() {
    let (url, _) = database_of_its_own("signals");
    everything_is_told(&Nodes::both("postgres", &url));
}

#[test]
fn whoever_was_away_hears_of_it_afterwards() {
    let mut town = Nodes::new("away", "sqlite://postern.db?mode=rwc");
    let token = town.token("app", "grant_type=client_credentials");
    town.revoke(&token);
    // The provider itself is also down for a while.
    town.serving.as_ref().unwrap().signal("-KILL");
    town.serving.as_mut().unwrap().ended();
    town.serve();
    town.gateway(0);
    town.gateway(1);
    town.is_refused_soon(&token);
    // An acknowledged event is not sent again, and not forgotten either.
    for at in [0, 1] {
        let running = town.running[at].as_mut().unwrap();
        running.signal("-KILL");
        running.ended();
        town.gateway(at);
    }
    assert_eq!(town.statuses(&token), [401, 401]);
}

#[test]
fn a_gateway_that_cannot_fetch_says_so_and_goes_on() {
    let mut town = Nodes::both("note", "sqlite://postern.db?mode=rwc");
    let token = town.token("app", "grant_type=client_credentials");
    assert_eq!(town.statuses(&token), [200, 200]);
    town.serving.as_ref().unwrap().signal("-KILL");
    town.serving.as_mut().unwrap().ended();
    let ready = || get(&town.admins[1], "/readyz");
    until(|| ready().contains("security events of login cannot be polled"), "noted");
    assert!(ready().contains(" 200 "), "{}", ready());
    assert!(get(&town.admins[1], "/metrics").contains("postern_security_events_up{transmitter=\"login\"} 0"));
    assert_eq!(town.statuses(&token), [200, 200]);
}

#[test]
fn a_receiver_fetches_what_it_has_not_acknowledged() {
    let town = Nodes::new("poll", "sqlite://postern.db?mode=rwc");
    let at_once = |more: &str| format!("{{\"returnImmediately\":true{more}}}");
    assert_eq!(town.poll(BEARER, &at_once("")), (200, json!({"sets": {}, "moreAvailable": false})));
    let (status, refused) = town.poll("somebody-else-entirely", "{}");
    assert_eq!((status, &refused["err"]), (401, &json!("authentication_failed")));
    for body in ["", "[]", "{\"ack\":7}", "{\"maxEvents\":-1}"] {
        assert_eq!(town.poll(BEARER, body).0, 400, "{body}");
    }
    for _ in 0..3 {
        town.revoke(&town.token("app", "grant_type=client_credentials"));
    }
    let names =
        |answer: &Value| -> Vec<String> { answer["sets"].as_object().unwrap().keys().cloned().collect() };
    let (_, all) = town.poll(BEARER, &at_once(""));
    assert_eq!((names(&all).len(), &all["moreAvailable"]), (3, &json!(false)));
    let (_, two) = town.poll(BEARER, &at_once(",\"maxEvents\":2"));
    assert_eq!((names(&two).len(), &two["moreAvailable"]), (2, &json!(true)));
    // Nothing was acknowledged, so the same events are sent again.
    let [first, second, third] = names(&all).try_into().unwrap();
    assert_eq!(names(&two), [first.clone(), second.clone()]);
    // In any order. Acknowledging an unknown event has no effect.
    let ack = format!(",\"ack\":[\"{third}\",\"x\",\"{third}9\"]");
    let (_, rest) = town.poll(BEARER, &at_once(&ack));
    assert_eq!(names(&rest), [first.clone(), second.clone()]);
    let refused = format!(",\"setErrs\":{{\"{first}\":{{\"err\":\"invalid_key\",\"description\":\"no\"}}}}");
    assert_eq!(names(&town.poll(BEARER, &at_once(&refused)).1), [&*second]);
    assert_eq!(
        names(&town.poll(BEARER, &at_once(&format!(",\"maxEvents\":0,\"ack\":[\"{second}\"]"))).1),
        [""; 0]
    );
    assert_eq!(names(&town.poll(BEARER, &at_once("")).1), [""; 0]);
    // A poll is held until there is an event (long polling).
    let address = town.provider.clone();
    let waiting = std::thread::spawn(move || poll(&address, BEARER, "{}"));
    town.revoke(&town.token("app", "grant_type=client_credentials"));
    assert_eq!(names(&waiting.join().unwrap().1).len(), 1);
    let document = json_of(&get(&town.provider, "/.well-known/ssf-configuration"));
    assert_eq!(document["issuer"], json!(format!("http://{}", town.provider)));
    assert_eq!(document["jwks_uri"], json!(format!("http://{}/jwks", town.provider)));
    assert_eq!(document["delivery_methods_supported"], json!(["urn:ietf:rfc:8935", "urn:ietf:rfc:8936"]));
    for absent in
        ["configuration_endpoint", "status_endpoint", "verification_endpoint", "add_subject_endpoint"]
    {
        assert!(document.get(absent).is_none(), "{absent} is not there to be asked");
    }
}

#[test]
fn what_one_process_is_told_is_in_force_at_all_that_share_its_database() {
    let (url, _) = database_of_its_own("told");
    let mut town = Nodes::new("shared", "sqlite://postern.db?mode=rwc");
    let path = town.folder.write("events.url", &url);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    town.gateway_on(0, "database_file = \"events.url\"", true);
    town.gateway_on(1, "database_file = \"events.url\"", false);
    let (token, other) = (
        town.token("app", "grant_type=client_credentials"),
        town.token("app", "grant_type=client_credentials"),
    );
    assert_eq!((town.statuses(&token), town.statuses(&other)), ([200, 200], [200, 200]));
    town.revoke(&token);
    town.is_refused_soon(&token);
    assert_eq!(town.statuses(&other), [200, 200]);
}

#[test]
fn whoever_does_not_know_what_was_told_lets_nobody_in() {
    let (url, name) = database_of_its_own("gone");
    let mut town = Nodes::new("gone", "sqlite://postern.db?mode=rwc");
    let path = town.folder.write("events.url", &url);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    town.gateway_on(0, "database_file = \"events.url\"", true);
    let token = town.token("app", "grant_type=client_credentials");
    assert_eq!(town.status(0, &token), 200);
    let (server, _) = url.rsplit_once('/').unwrap();
    psql(&format!("{server}/postgres"), &format!("DROP DATABASE {name} WITH (FORCE)"));
    // The lease ends after five seconds, whatever is cached about the token.
    until(|| town.status(0, &token) == 503, "refused");
    assert_eq!(town.status(0, &town.token("app", "grant_type=client_credentials")), 503);
    assert!(get(&town.admins[0], "/readyz").contains("security-events sends nothing"));
    // An event that cannot be stored is not acknowledged, so it is sent again.
    town.revoke(&town.token("app", "grant_type=client_credentials"));
    let failed = "outcome=\"log_unavailable\"";
    until(|| get(&town.admins[0], "/metrics").contains(failed), "refused for now");
}

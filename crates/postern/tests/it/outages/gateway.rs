//! Outages of the services that a gateway queries.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use auth::token::jws::public_jwks;
use http_engine::clock::{Clock as _, SystemClock};
use serde_json::json;

use super::{Switch, each_went_and_came_back_once, server};
use crate::revoked::Broker;
use crate::revoked::fixture::{Town, until};
use crate::support::{Folder, Running, SIGNER, get};
use dataplane::ports::free;

fn now() -> u64 {
    SystemClock.now().wall.as_secs()
}

/// All services that a gateway queries, in one server. `at` is its address.
fn everybody(at: &str) -> impl Fn(&str) -> (u16, String, String) + Send + Sync + use<> {
    let metadata = json!({
        "issuer": format!("http://{at}"), "authorization_endpoint": format!("http://{at}/authorize"),
        "token_endpoint": format!("http://{at}/token"), "jwks_uri": format!("http://{at}/jwks"),
    });
    let keys = public_jwks([&*SIGNER]);
    let introspection = json!({ "active": true, "sub": "alice", "aud": "orders", "exp": 4_000_000_000_u64 });
    let review = json!({
        "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": { "allowed": true },
    });
    move |path| {
        let document = |status, body: &serde_json::Value| {
            (status, "content-type: application/json\r\n".to_owned(), body.to_string())
        };
        match path.split('?').next().unwrap_or_default() {
            "/.well-known/openid-configuration" => document(200, &metadata),
            "/jwks" => document(200, &keys),
            "/introspect" => document(200, &introspection),
            "/poll" => document(200, &json!({ "sets": {} })),
            "/token" => document(400, &json!({ "error": "invalid_grant" })),
            path if path.starts_with("/apis/") => document(201, &review),
            _ => (200, String::new(), "ok".to_owned()),
        }
    }
}

/// A gateway that queries all kinds of services, at one address.
struct Served {
    process: Running,
    gateway: String,
    token: String,
    folder: Folder,
}

fn send(address: &str, request: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return String::new() };
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

impl Served {
    fn start(at: &str) -> Self {
        let (gateway, admin, folder) = (free(), free(), Folder::new("outages-gateway"));
        for (name, content) in [
            ("login.keys", "sPf6+jr9AWqgv7caKskT3PFDwsi8v5jOk96uPwMQOHQ=\n".to_owned()),
            ("secret", "secret\n".to_owned()),
            ("jwks.json", public_jwks([&*SIGNER]).to_string()),
        ] {
            let path = folder.write(name, content);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let route = |name: &str, more: &str| {
            format!(
                "[[route]]\nname = \"{name}\"\nhosts = [\"*\"]\npath = {{ prefix = \"/{name}\" }}\n{more}\n\
                 upstream = \"service\"\n"
            )
        };
        let authenticated = "policy = { allow = [{ authenticated = true }] }";
        let routes = [
            route("introspected", authenticated),
            route("open", "public = true"),
            route("asked", "public = true\nauthorizer = \"other\""),
            "[[route]]\nname = \"reviewed\"\nhosts = [\"*\"]\npath = { template = \"/reviewed/{ns}\" }\n\
             upstream = \"service\"\n\
             access_review = { resource = \"pods\", namespace = \"{path.ns}\" }\n"
                .to_owned(),
            "[[route]]\nname = \"pages\"\nhosts = [\"app.test\"]\nupstream = \"service\"\nlogin = true\n\
             policy = { allow = [{ authenticated = true }] }\n"
                .to_owned(),
        ];
        let text = format!(
            "[server]\nreload_on_change = false\nworkers = 2\n[admin]\naddress = \"{admin}\"\n\
             [access_log]\nformat = \"off\"\n\
             [telemetry]\notlp_endpoint = \"http://{at}/v1/traces\"\ntrace_ratio = 1\n\
             [[listener]]\nname = \"main\"\naddress = \"{gateway}\"\n\
             [[issuer]]\nname = \"file\"\nissuer = \"urn:file\"\naudiences = [\"orders\"]\njwks_file = \"jwks.json\"\n\
             [[issuer]]\nname = \"fetched\"\nissuer = \"http://{at}\"\naudiences = [\"orders\"]\n\
             jwks_uri = \"http://{at}/jwks\"\nrefresh = \"10s\"\n\
             [[token_authority]]\nname = \"opaque\"\nkind = \"introspection\"\nurl = \"http://{at}/introspect\"\n\
             prefixes = [\"op_\"]\naudiences = [\"orders\"]\nclient_id = \"us\"\nclient_secret_file = \"secret\"\n\
             [kubernetes]\nurl = \"http://{at}/\"\ntoken_file = \"secret\"\nwatch = false\n\
             [[authorizer]]\nname = \"other\"\nupstream = \"authorizer\"\n\
             [login]\norigins = [\"https://app.test\"]\nkeys_file = \"login.keys\"\n\
             [[login.provider]]\nname = \"corp\"\nurl = \"http://{at}\"\nclient_id = \"us\"\n\
             client_secret_file = \"secret\"\n\
             [security_events]\ndatabase = \"sqlite://events.db?mode=rwc\"\n\
             [[security_events.transmitter]]\nname = \"events\"\nissuer = \"http://{at}\"\n\
             tokens_of = [\"urn:file\"]\naudiences = [\"us\"]\npoll_url = \"http://{at}/poll\"\n\
             poll_token_file = \"secret\"\npoll_interval = \"1s\"\n\
             [[upstream]]\nname = \"service\"\nendpoints = [\"http://{at}\"]\n\
             [[upstream]]\nname = \"authorizer\"\nendpoints = [\"http://{at}\"]\n{}",
            routes.concat()
        );
        let config = folder.write("postern.toml", text);
        let mut process = Running::start(&["serve", "--config", config.to_str().unwrap()]);
        process.wait_for("listening");
        until(|| get(&admin, "/readyz").contains(" 200 "), "ready");
        let claims = json!({
            "iss": "urn:file", "aud": "orders", "sub": "alice", "client_id": "cli", "jti": "1",
            "iat": now(), "exp": now() + 3600,
        });
        let token = SIGNER.sign(&[("typ", "at+jwt")], &claims).unwrap();
        Self { process, gateway, token, folder }
    }
}

/// Sends one request for each service, each time with new values. Returns the statuses.
fn traffic(gateway: &str, token: &str, turn: usize) -> [String; 4] {
    let ask = |path: &str, fields: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n{fields}\r\n");
        send(gateway, &head).split(' ').nth(1).unwrap_or_default().to_owned()
    };
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let statuses = [
        ask("/introspected", &bearer(&format!("op_{turn}"))),
        ask("/open", ""),
        ask(&format!("/asked?{turn}"), ""),
        ask(&format!("/reviewed/n{turn}"), &bearer(token)),
    ];
    come_back(gateway);
    statuses
}

/// Starts a login and returns with a code.
fn come_back(gateway: &str) {
    let page = |path: &str, cookie: &str| {
        send(
            gateway,
            &format!(
                "GET {path} HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\nAccept: text/html\r\n{cookie}\r\n"
            ),
        )
    };
    let begun = page("/oauth2/start?rd=/", "");
    let after = |text: &str, mark: &str, end: &[char]| {
        text.split_once(mark).map(|(_, rest)| rest.split(end).next().unwrap_or_default().to_owned())
    };
    let state = after(&begun, "state=", &['&', '\r', ' ']);
    let cookie = after(&begun.replace("Set-Cookie", "set-cookie"), "set-cookie: ", &[';', '\r']);
    if let (Some(state), Some(cookie)) = (state, cookie) {
        page(&format!("/oauth2/callback?code=x&state={state}"), &format!("Cookie: {cookie}\r\n"));
    }
}

#[test]
fn whoever_a_gateway_asks_is_away_in_two_lines() {
    // The documents contain the address that they are served at.
    let place = Arc::new(OnceLock::<String>::new());
    let known = place.clone();
    let switch = Switch::before(&server(move |path| everybody(known.get().unwrap())(path)));
    place.set(switch.address.clone()).unwrap();
    let mut served = Served::start(&switch.address);
    let mut turn = 0;
    let (gateway, token) = (served.gateway.clone(), served.token.clone());
    let mut traffic = || {
        turn += 1;
        traffic(&gateway, &token, turn)
    };
    assert_eq!(traffic(), ["200", "200", "200", "200"], "{}", served.process.output());
    switch.is_away(|| drop(traffic()));
    let at = &switch.address;
    let dependencies = [
        "token introspection of opaque",
        "key set of fetched",
        "access review",
        "authorizer other",
        "login provider corp",
        "transmitter events",
        "span collector",
        &format!("endpoint {at} of upstream service"),
        &format!("endpoint {at} of upstream authorizer"),
    ];
    each_went_and_came_back_once(&mut served.process, &dependencies, || drop(traffic()));
    drop(served.folder);
}

#[test]
fn a_broker_and_an_issuer_that_is_followed_are_away_in_two_lines() {
    let broker = Broker::start();
    let messages = Switch::before(broker.url.strip_prefix("nats://").unwrap());
    let more = format!("[revocation]\nbrokers = [\"nats://{}\"]\n", messages.address);
    let mut town = Town::with("outage-ways", 1, "sqlite://postern.db?mode=rwc", &more);
    let issuer = Switch::before(&town.nodes[0].provider);
    let mut elsewhere = town.elsewhere_by_way_of(&format!("http://{}", issuer.address), &more);
    let is_connected = |admin: &str| !get(admin, "/readyz").contains("way for messages");
    until(|| is_connected(&elsewhere.admin) && is_connected(&town.nodes[0].admin), "connected");
    let token = town.nodes[0].token();
    assert_eq!(elsewhere.status(&token), 200);
    issuer.cut();
    messages.is_away(|| drop(elsewhere.call("/", &token)));
    issuer.mend();
    let name = format!("issuer http://{}", town.nodes[0].provider);
    let gateway = elsewhere.gateway.clone();
    let traffic = || drop(crate::revoked::fixture::call(&gateway, "/", &token));
    each_went_and_came_back_once(&mut elsewhere.process, &["broker nats", &name], traffic);
    each_went_and_came_back_once(&mut town.nodes[0].process, &["broker nats"], || {});
}

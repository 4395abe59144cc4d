//! `postern serve` with a `[provider]`: over HTTP, from its file to its sockets.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use serde_json::Value;

use crate::support::{Folder, Running, exchange, get, output_text, postern};
use dataplane::ports::free;

/// Secret id of the client `billing`, and its digest.
const SECRET: &str = "wSvLnKOe0sJdSAkBXj4uFaMUVPYVnR1gkUK2cTnkJ4w=";

const CLIENT: &str = r#"
[[provider.client]]
id = "billing"
secret_files = ["billing.secret"]
grants = ["client_credentials", "password"]
audiences = ["orders"]
scopes = ["openid"]
"#;

/// A provider on a free port.
struct Served {
    folder: Folder,
    text: String,
    address: String,
    admin: String,
}

impl Served {
    /// Writes a configuration. `more` goes into `[provider]`.
    fn new(name: &str, more: &str) -> Self {
        let (address, admin) = (free(), free());
        let folder = Folder::new(&format!("provider-{name}"));
        folder.write("billing.secret", SECRET);
        let text = format!(
            "[server]\nreload_on_change = false\n[admin]\naddress = \"{admin}\"\n\
             [provider]\nissuer = \"http://{address}\"\naddress = \"{address}\"\naudiences = [\"orders\"]\n\
             database = \"sqlite://postern.db?mode=rwc\"\n{more}\n{CLIENT}"
        );
        let served = Self { folder, text, address, admin };
        served.write(&served.text);
        served
    }

    fn write(&self, text: &str) {
        let new = self.folder.write("new.toml", text);
        std::fs::rename(new, self.file()).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.folder.0.join("postern.toml")
    }

    fn arguments(&self) -> [String; 3] {
        ["serve".into(), "--config".into(), self.file().display().to_string()]
    }

    fn start(&self) -> Running {
        let mut process = Running::start(&self.arguments().each_ref().map(String::as_str));
        process.wait_for("provider listening");
        process
    }

    /// Runs it where it cannot start. Returns the error.
    fn fails(&self) -> String {
        let output = postern(&self.arguments().each_ref().map(String::as_str));
        let said = output_text(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        let error: Vec<_> = said.lines().filter(|line| line.starts_with("error")).collect();
        assert_eq!(error.len(), 1, "{said}");
        error[0].to_owned()
    }

    fn token(&self, form: &str, header: &str) -> String {
        let address = &self.address;
        exchange(
            address,
            &format!(
                "POST /token HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}\
                 Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
                form.len()
            ),
        )
    }

    fn credentials(&self, id: &str) -> String {
        let secret = SECRET.replace('=', "%3D");
        self.token(&format!("grant_type=client_credentials&client_id={id}&client_secret={secret}"), "")
    }

    fn password(&self, user: &str, password: &str, forwarded: &str) -> String {
        let secret = SECRET.replace('=', "%3D");
        let form = format!(
            "grant_type=password&client_id=billing&client_secret={secret}&username={user}&password={password}"
        );
        self.token(&form, &format!("X-Forwarded-For: {forwarded}\r\n"))
    }
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn a_configuration_of_another_folder_is_judged_by_the_same_files() {
    let served = Served::new("relative", "");
    let secret = served.folder.write("postern.db.secret", "bM1CmSc0bM7vUjY0kX7V0o2Yxg1bI8cV8l2n0Rr2v6A=\n");
    std::fs::set_permissions(secret, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (above, name) = (served.folder.0.parent().unwrap(), served.folder.0.file_name().unwrap());
    let mut check = Command::new(env!("CARGO_BIN_EXE_postern"));
    check.current_dir(above).args(["check", "--config"]).arg(PathBuf::from(name).join("postern.toml"));
    let shown = output_text(&check.output().unwrap());
    assert!(shown.contains("can be read by other users"), "{shown}");
}

#[test]
fn a_file_with_a_provider_alone_is_served() {
    let served = Served::new("alone", "");
    let check = postern(&["check", "--config", served.file().to_str().unwrap()]);
    let shown = output_text(&check);
    assert_eq!(check.status.code(), Some(0), "{shown}");
    assert!(
        shown.contains("provider   http://127.0.0.1:") && shown.contains("created at the first start"),
        "{shown}"
    );
    assert!(shown.contains("billing  by secret, client_credentials and password"), "{shown}");
    assert!(shown.contains("may use the password grant"), "{shown}");
    assert!(!served.folder.0.join("postern.db.secret").exists(), "check makes nothing");

    let mut process = served.start();
    let document = body(&get(&served.address, "/.well-known/openid-configuration"));
    assert_eq!(document["issuer"], format!("http://{}", served.address));
    let keys = body(&get(&served.address, "/jwks"));
    assert!(keys["keys"].as_array().is_some_and(|keys| keys.len() >= 2), "{keys}");
    let token = body(&served.credentials("billing"));
    assert_eq!(token["token_type"], "Bearer", "{token}");
    assert!(get(&served.admin, "/readyz").contains(" 200 "));
    let config = get(&served.admin, "/debug/config");
    assert!(config.contains("[[provider.client]]") && !config.contains(SECRET), "{config}");

    let metrics = get(&served.admin, "/metrics");
    for line in [
        "postern_provider_requests_total{endpoint=\"token\",status=\"200\"} 1",
        "postern_provider_requests_total{endpoint=\"discovery\",status=\"200\"} 1",
        "postern_provider_request_duration_seconds_count{endpoint=\"jwks\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }

    let mode = std::fs::metadata(served.folder.0.join("postern.db.secret")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    process.signal("-TERM");
    process.wait_for("drained");
    assert_eq!(process.ended(), Some(0));
    // It still knows what it stored.
    let mut again = served.start();
    assert_eq!(body(&get(&served.address, "/jwks")), keys);
    again.signal("-TERM");
    assert_eq!(again.ended(), Some(0));
}

#[test]
fn a_start_that_cannot_be_says_what_to_do() {
    let served = Served::new("start", "");
    let mut process = served.start();
    served.write(&served.text.replace("[admin]\n", "[admin]\nenabled = false\n"));
    let taken = served.fails();
    served.write(&served.text);
    assert!(
        taken.contains("cannot listen on") && taken.contains("change it with `provider.address`"),
        "{taken}"
    );
    process.signal("-TERM");
    assert_eq!(process.ended(), Some(0));

    let secret = served.folder.0.join("postern.db.secret");
    let right = std::fs::read(&secret).unwrap();
    std::fs::write(&secret, "bM1CmSc0bM7vUjY0kX7V0o2Yxg1bI8cV8l2n0Rr2v6A=\n").unwrap();
    let wrong = served.fails();
    assert!(wrong.contains("is not that of its database"), "{wrong}");
    std::fs::remove_file(&secret).unwrap();
    let lost = served.fails();
    assert!(lost.contains("the provider's database exists, but its secret"), "{lost}");
    assert!(!secret.exists(), "no other one is made");
    std::fs::write(&secret, right).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();

    served.write(&served.text.replace("sqlite://postern.db", "sqlite://nowhere/postern.db"));
    let nowhere = served.fails();
    assert!(nowhere.contains("nowhere/postern.db") && nowhere.contains("is the folder there"), "{nowhere}");
    served.write(&served.text);
    drop(served.start());
}

#[test]
fn a_reload_changes_what_can_be_and_names_the_rest() {
    let served = Served::new("reload", "");
    let mut process = served.start();
    let before = body(&get(&served.address, "/jwks"));
    assert_eq!(status(&served.credentials("second")), 401);
    let second = CLIENT.replace("\"billing\"", "\"second\"");
    served.write(&format!("{}{second}", served.text.replace("sqlite://postern.db", "sqlite://other.db")));
    process.signal("-HUP");
    process.wait_for("configuration applied");
    let line = process.wait_for("takes effect at the next start");
    assert!(line.contains("provider.database"), "{line}");
    assert_eq!(status(&served.credentials("second")), 200);
    assert_eq!(body(&get(&served.address, "/jwks")), before);
    assert!(!served.folder.0.join("other.db").exists());
    let config = get(&served.admin, "/debug/config");
    assert!(config.contains("database = \"sqlite://postern.db?mode=rwc\""), "{config}");
}

#[test]
fn proxies_that_are_trusted_say_who_calls() {
    const LOCKOUT: &str = "[provider.passwords]\nmemory = \"7MiB\"\niterations = 5\n\
                           lockout_account = { failures = 1 }\nlockout_network = { failures = 2, delay = \"15m\" }";
    let trusting = Served::new("trusting", &format!("trusted_proxies = [\"127.0.0.1\"]\n{LOCKOUT}"));
    let trusted = trusting.start();
    let suspicious = Served::new("suspicious", LOCKOUT);
    let suspected = suspicious.start();
    for (attempt, forwarded) in ["203.0.113.5", "198.51.100.9, 203.0.113.5"].into_iter().enumerate() {
        // The accounts differ: the network is locked.
        let user = format!("user{attempt}");
        assert_eq!(status(&trusting.password(&user, "wrong", forwarded)), 400);
        assert_eq!(status(&suspicious.password(&user, "wrong", forwarded)), 400);
    }
    assert_eq!(status(&trusting.password("x", "wrong", "203.0.113.5")), 429);
    assert_eq!(status(&trusting.password("y", "wrong", "198.51.100.9")), 400, "somebody else");
    assert_eq!(status(&suspicious.password("z", "wrong", "198.51.100.9")), 429, "it is not believed");
    drop((trusted, suspected));
}

#[test]
fn what_a_command_keeps_is_there_when_the_provider_runs() {
    let served = Served::new("command", "[provider.passwords]\nmemory = \"7MiB\"\niterations = 5");
    let now = || Timestamp::from_secs(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs());
    let loaded = config::load_file(&served.file(), now(), 1).ok().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let opened = postern::provider::open(loaded.provider.as_ref().unwrap()).await.unwrap();
        let store = opened.store.clone();
        let parts = idp::Parts {
            store: opened.store,
            secrets: opened.secrets,
            clock: std::sync::Arc::new(now),
            entropy: std::sync::Arc::new(aws_lc_rs::rand::SystemRandom::new()),
            outbound: std::sync::Arc::new(Nobody),
        };
        let provider = idp::Provider::start(opened.checked, parts).await.unwrap();
        let password = idp::passwords::Password::new("seven quiet otters drum".into()).unwrap();
        let kept = provider.logins().hash(&password, "ada", None, now()).await.unwrap();
        let user = store::users::UserRow {
            id: "1".into(),
            name: "ada".into(),
            email: None,
            email_verified_at: None,
            claims: "{}".into(),
            created_at: now(),
            updated_at: now(),
            disabled_at: None,
            must_change_password_at: None,
            tokens_not_before: Timestamp::from_millis(0),
            read_at: Timestamp::from_millis(0),
        };
        store.write(store::users::AddUser { user, password: Some(kept) }).await.unwrap();
        drop(provider);
        store.close().await;
    });
    let process = served.start();
    let answer = served.password("ada", "seven+quiet+otters+drum", "");
    assert_eq!(status(&answer), 200, "{answer}");
    drop(process);
}

struct Nobody;

impl idp::OutboundClient for Nobody {
    fn post(&self, _: idp::PostRequest) -> idp::PendingResponse {
        Box::pin(async { Err("nobody is called".into()) })
    }
}

#[test]
fn tls_is_spoken_and_its_files_are_read_again() {
    let served = Served::new("tls", "tls = { certificate = \"cert.pem\", key = \"key.pem\" }");
    let certificate = || {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        served.folder.write("cert.pem", params.self_signed(&key).unwrap().pem());
        served.folder.write("key.pem", key.serialize_pem());
    };
    certificate();
    let port = served.address.rsplit(':').next().unwrap().to_owned();
    let issuer = format!("https://localhost:{port}");
    // Users reach it directly.
    served.write(
        &served
            .text
            .replace(&format!("issuer = \"http://{}\"", served.address), &format!("issuer = \"{issuer}\"")),
    );
    let token = || {
        let ca = served.folder.0.join("cert.pem").display().to_string();
        postern(&[
            "token",
            "--issuer",
            &issuer,
            "--client-id",
            "billing",
            "--client-secret",
            SECRET,
            "--ca",
            &ca,
        ])
    };
    let mut process = served.start();
    let output = token();
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    certificate();
    assert_ne!(token().status.code(), Some(0), "the new one is not served yet");
    process.signal("-HUP");
    process.wait_for("configuration applied");
    let output = token();
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
}

#[test]
fn heads_are_bounded() {
    let served = Served::new("heads", "");
    let process = served.start();
    let ask = |fields: &str| {
        let answer = exchange(
            &served.address,
            &format!("GET /jwks HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n"),
        );
        status(&answer)
    };
    assert_eq!(ask(&"A: b\r\n".repeat(90)), 200);
    assert_eq!(ask(&"A: b\r\n".repeat(200)), 431);
    assert_eq!(ask(&format!("A: {}\r\n", "b".repeat(40 << 10))), 431);
    drop(process);
}

#[test]
fn a_drain_waits_for_nobody_who_rests() {
    let served = Served::new("drain", "");
    let mut process = served.start();
    let _idle = std::net::TcpStream::connect(&served.address).unwrap();
    let began = Instant::now();
    process.signal("-TERM");
    process.wait_for("drained");
    assert_eq!(process.ended(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// The gateway requires signed introspection responses of the provider in the same process (RFC
/// 9701).
#[test]
fn a_gateway_believes_what_the_provider_signs_of_its_opaque_tokens() {
    let served = Served::new("signed", "");
    let listener = free();
    let issuer = format!("http://{}", served.address);
    let gateway = |signer: &str| {
        format!(
            "[[listener]]\nname = \"questions\"\naddress = \"{listener}\"\n\
             authorization = {{ from = [\"127.0.0.1\"], http = \"envoy\" }}\n\
             [[token_authority]]\nname = \"provider\"\nkind = \"introspection\"\nurl = \"{issuer}/introspect\"\nprefixes = [\"ptn_at_\"]\n\
             audiences = [\"orders\"]\nissuer = \"{issuer}\"\nclient_id = \"gate\"\nclient_secret_file = \"billing.secret\"\n\
             signed = {{ issuer = \"{signer}\" }}\n\
             [[route]]\nname = \"all\"\npolicy = {{ allow = [{{ clients = [\"billing\"], issuers = [\"provider\"] }}] }}\n\
             [[provider.client]]\nid = \"gate\"\nsecret_files = [\"billing.secret\"]\nintrospects = \"audience\"\ngrants = [\"client_credentials\"]\naudiences = [\"orders\"]\n"
        )
    };
    let opaque = served.text.replace("id = \"billing\"\n", "id = \"billing\"\naccess_token = \"opaque\"\n");
    served.write(&format!("{opaque}{}", gateway(&issuer)));
    let mut process = served.start();
    let token = body(&served.credentials("billing"))["access_token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("ptn_at_"), "{token}");
    let ask = || {
        let head = format!(
            "GET /x HTTP/1.1\r\nHost: app\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        exchange(&listener, &head)
    };
    let answer = ask();
    assert_eq!(status(&answer), 200, "{answer}");
    let metrics = get(&served.admin, "/metrics");
    let asked = "postern_token_authority_requests_total{authority=\"provider\",result=\"good\"} 1";
    assert!(metrics.contains(asked), "{metrics}");
    process.signal("-TERM");
    process.ended();
    // The same again, but the gateway trusts the keys of another signer.
    let other = served.folder.write("other.json", r#"{"keys":[]}"#);
    let keys = auth::token::jws::Signer::generate(auth::token::jws::SigningAlgorithm::Es256).unwrap();
    std::fs::write(&other, auth::token::jws::public_jwks([&keys]).to_string()).unwrap();
    let text = gateway(&issuer).replace("signed = { issuer", "signed = { jwks_file = \"other.json\", issuer");
    served.write(&format!("{opaque}{text}"));
    let _process = served.start();
    let answer = ask();
    assert_eq!(status(&answer), 503, "{answer}");
}

//! Provider transactions, against a small provider that follows the protocol or violates it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lab_load::provider::{
    Client, ConsentButton, Endpoints, FailureClass, Fields, Flow, ProviderDescription, ProviderError,
    ProviderPlan, Scopes, Step, Users,
};
use lab_load::report::{ProviderReport, provider_table, run_provider};

/// A request as the provider received it.
#[derive(Debug, Clone, Default)]
struct SeenRequest {
    /// Method and request target.
    line: String,
    head: String,
    body: String,
}

impl SeenRequest {
    fn is(&self, line: &str) -> bool {
        self.line.starts_with(line)
    }
}

/// A provider on loopback; its threads end with the test process.
struct Provider {
    origin: String,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    connections: Arc<AtomicU64>,
}

type Answering = dyn Fn(&SeenRequest, u64) -> String + Send + Sync;

impl Provider {
    /// Starts a provider. `answering` gets each request with its number and returns the complete
    /// response; an empty one closes the connection.
    fn start(answering: impl Fn(&SeenRequest, u64) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let answering: Arc<Answering> = Arc::new(answering);
        let (seen, connections, number) = (
            Arc::<Mutex<Vec<SeenRequest>>>::default(),
            Arc::<AtomicU64>::default(),
            Arc::<AtomicU64>::default(),
        );
        let provider = Self { origin, seen: Arc::clone(&seen), connections: Arc::clone(&connections) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                connections.fetch_add(1, Ordering::SeqCst);
                let (answering, seen, number) =
                    (Arc::clone(&answering), Arc::clone(&seen), Arc::clone(&number));
                std::thread::spawn(move || serve_connection(&stream, &*answering, &seen, &number));
            }
        });
        provider
    }

    fn seen(&self, line: &str) -> Vec<SeenRequest> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.is(line)).cloned().collect()
    }
}

/// Answers requests on a connection until either side closes it.
fn serve_connection(
    stream: &TcpStream,
    answering: &Answering,
    all: &Mutex<Vec<SeenRequest>>,
    number: &AtomicU64,
) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut seen = SeenRequest::default();
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            seen.head.push_str(&std::mem::take(&mut line));
        }
        let Some(first) = seen.head.lines().next() else { return };
        seen.line = first.trim_end_matches(" HTTP/1.1").to_owned();
        let length = seen.head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        seen.body = String::from_utf8(body).unwrap();
        all.lock().unwrap().push(seen.clone());
        let answer = answering(&seen, number.fetch_add(1, Ordering::SeqCst) + 1);
        let mut stream = stream;
        if answer.is_empty() || stream.write_all(answer.as_bytes()).is_err() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

fn answer(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} x\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn json(body: &str) -> String {
    answer(200, "content-type: application/json\r\n", body)
}

fn tokens(number: u64) -> String {
    json(&format!(
        r#"{{"access_token":"a{number}","token_type":"Bearer","refresh_token":"r{number}","id_token":"i"}}"#
    ))
}

const LOGIN: &str = r#"<form action="/login?tab=1&amp;x=2" method=post><input type=hidden name=csrf value="a&amp;b">
    <input name=username><input type=password name=password><button name=go value=1>Sign in</button></form>"#;
const CONSENT: &str = r#"<form action="consent" method="post"><input type="hidden" name="code" value="c0">
    <button name="decision" value="allow">Yes</button><button name="decision" value="deny">No</button></form>"#;

/// A correct provider: two redirects, cookies with paths, forms with hidden fields.
fn correct_provider(seen: &SeenRequest, number: u64) -> String {
    let has = |text: &str| seen.head.contains(text);
    let state = seen.line.split("state=").nth(1).and_then(|rest| rest.split('&').next()).unwrap_or_default();
    if seen.is("GET /authorize?") && !has("cookie:") && has("challenge_method=S256") && has("prompt=consent")
    {
        let cookies = format!(
            "set-cookie: flow={state}; Path=/; HttpOnly; Secure\r\nset-cookie: gone=1; Max-Age=0\r\n"
        );
        answer(302, &format!("location: /login\r\n{cookies}"), "")
    } else if seen.is("GET /login") && has("cookie: flow=") && !has("gone") {
        answer(200, "content-type: text/html\r\n", LOGIN)
    } else if seen.is("POST /login?tab=1&x=2") && seen.body.starts_with("csrf=a%26b&username=user") {
        let pair = |line: &str| line.split("flow=").nth(1).map(|rest| rest.trim().to_owned());
        let state = seen.head.lines().find_map(pair).unwrap_or_default();
        let next = format!("location: /deep/ask\r\nset-cookie: sid={state}; Path=/deep\r\n");
        answer(303, &next, "")
    } else if seen.is("GET /deep/ask") && has("sid=") {
        answer(200, "content-type: text/html\r\n", CONSENT)
    } else if seen.is("POST /deep/consent") && seen.body == "code=c0&decision=allow" {
        let pair =
            |line: &str| line.split("sid=").nth(1).and_then(|rest| rest.split(';').next()).map(str::to_owned);
        let state = seen.head.lines().find_map(pair).unwrap_or_default();
        answer(302, &format!("location: http://app.test/cb?code=c1&state={}\r\n", state.trim()), "")
    } else if seen.is("POST /token") && has("authorization: Basic YzEla") {
        answer(401, "", "the client is not encoded")
    } else if seen.is("POST /token") {
        tokens(number)
    } else if seen.is("POST /introspect") {
        json(r#"{"active":true}"#)
    } else if seen.is("POST /revoke") && seen.body.starts_with("token=a") {
        answer(200, "", "")
    } else {
        answer(400, "", &format!("unexpected {}", seen.line))
    }
}

fn plan(provider: &Provider, scenario: Flow) -> ProviderPlan {
    let path = |path: &str| path.to_owned();
    ProviderPlan {
        description: ProviderDescription {
            name: "small".to_owned(),
            origin: provider.origin.clone(),
            endpoints: Endpoints {
                token: path("/token"),
                authorize: path("/authorize"),
                revoke: path("/revoke"),
                introspect: path("/introspect"),
            },
            clients: vec![Client { id: "c1".to_owned(), secret: "s:1".to_owned() }],
            code_clients: Vec::new(),
            users: Some(Users { pattern: "user{n}".to_owned(), count: 3, password: "p w".to_owned() }),
            redirect_uri: "http://app.test/cb".to_owned(),
            scopes: Scopes::default(),
            prompt: "consent".to_owned(),
            fields: Fields::default(),
        },
        scenario,
        concurrency: 2,
        warmup: Duration::ZERO,
        duration: Duration::from_millis(300),
        after: Duration::ZERO,
        timeout: Duration::from_secs(20),
        seed: 1,
        trust: None,
        connect: None,
        watch: Vec::new(),
    }
}

fn measure(
    answering: impl Fn(&SeenRequest, u64) -> String + Send + Sync + 'static,
    scenario: Flow,
) -> ProviderReport {
    let provider = Provider::start(answering);
    run_provider(&plan(&provider, scenario)).unwrap()
}

/// The only kind of failure in the report.
fn fault(report: &ProviderReport) -> (Step, FailureClass, &str) {
    assert_eq!(report.faults.len(), 1, "{}", provider_table(report));
    assert_eq!(report.totals.ok, 0);
    assert!(report.faults[0].count > 0 && report.unsuccessful() > 0);
    (report.faults[0].step, report.faults[0].class, &report.faults[0].example)
}

#[test]
fn every_scenario_runs_against_a_provider_that_follows_the_rules() {
    for scenario in Flow::ALL {
        let provider = Provider::start(correct_provider);
        let report = run_provider(&plan(&provider, scenario)).unwrap();
        assert!(report.totals.ok > 0, "{}", provider_table(&report));
        assert_eq!((report.unsuccessful(), report.faults.len()), (0, 0), "{}", provider_table(&report));
        assert_eq!(report.per_second.iter().sum::<u64>(), report.totals.ok);
        assert!(report.totals.everyone_warm);
        assert!(provider_table(&report).contains(scenario.name()));
    }
}

#[test]
fn a_sign_in_is_six_requests_and_starts_with_an_empty_jar() {
    let provider = Provider::start(correct_provider);
    let report = run_provider(&plan(&provider, Flow::CodeConsent)).unwrap();
    // Authorization, login page, login, consent page, consent, token.
    assert!((report.totals.requests_per_transaction - 6.0).abs() < 1.0, "{report:?}");
    assert!(provider.seen("GET /authorize").iter().all(|seen| !seen.head.contains("cookie:")));
    let sign_ins = provider.seen("POST /login");
    assert!(
        sign_ins
            .iter()
            .all(|seen| seen.body.ends_with("&password=p+w") && seen.head.contains("origin: http://127"))
    );
    let grant = &provider.seen("POST /token")[0];
    assert!(grant.head.contains("authorization: Basic YzE6cyUzQTE=\r\n"), "{}", grant.head);
    assert!(!grant.head.contains("cookie:"));
    assert!(grant.body.contains("code=c1") && grant.body.contains("code_verifier="));
    assert_eq!(provider.connections.load(Ordering::SeqCst), 2);
}

#[test]
fn a_refresh_token_is_used_once() {
    let provider = Provider::start(correct_provider);
    let report = run_provider(&plan(&provider, Flow::Refresh)).unwrap();
    assert_eq!(report.totals.prepared_again, 0);
    let used: Vec<String> = provider.seen("POST /token").into_iter().map(|seen| seen.body).collect();
    let passwords = used.iter().filter(|body| body.contains("grant_type=password")).count();
    assert_eq!(passwords, 2, "one for each virtual user");
    let mut refreshed: Vec<&String> = used.iter().filter(|body| body.contains("refresh_token=r")).collect();
    let all = refreshed.len();
    refreshed.sort();
    refreshed.dedup();
    assert_eq!(refreshed.len(), all);
}

#[test]
fn a_lost_refresh_token_is_replaced_outside_of_transactions() {
    // Every fifth refresh is refused.
    let report = measure(
        |seen, number| {
            if seen.body.contains("refresh_token=r") && number % 5 == 0 {
                answer(400, "", "no")
            } else {
                tokens(number)
            }
        },
        Flow::Refresh,
    );
    assert!(report.totals.prepared_again > 0 && report.totals.ok > 0 && report.totals.failed > 0);
    assert_eq!((report.faults[0].step, report.faults[0].class), (Step::Token, FailureClass::Status));
}

#[test]
fn what_goes_wrong_is_told_apart() {
    let status = measure(|_, _| answer(429, "", "slow   down"), Flow::Password);
    assert_eq!(fault(&status), (Step::Token, FailureClass::Status, "status 429: slow down"));

    let content =
        measure(|_, _| json(r#"{"access_token":"","token_type":"Bearer"}"#), Flow::ClientCredentials);
    assert_eq!(fault(&content).1, FailureClass::Content);

    let closed = measure(|_, _| String::new(), Flow::Password);
    assert_eq!(fault(&closed), (Step::Token, FailureClass::Closed, "connection closed before the response"));

    let protocol = measure(|_, _| "nonsense\r\n\r\n".to_owned(), Flow::Password);
    assert_eq!(fault(&protocol).1, FailureClass::Protocol);

    let revoke = |seen: &SeenRequest, number| {
        if seen.is("POST /revoke") { answer(503, "", "") } else { tokens(number) }
    };
    assert_eq!(
        fault(&measure(revoke, Flow::PasswordRevoke)),
        (Step::Revoke, FailureClass::Status, "status 503: ")
    );

    let inactive = |seen: &SeenRequest, number| {
        if seen.is("POST /token") { tokens(number) } else { json(r#"{"active":false}"#) }
    };
    assert_eq!(fault(&measure(inactive, Flow::Introspection)).0, Step::Introspect);
}

#[test]
fn a_provider_that_does_not_answer_is_cut_off() {
    let provider = Provider::start(|_, _| {
        std::thread::sleep(Duration::from_secs(30));
        String::new()
    });
    let mut plan = plan(&provider, Flow::Password);
    plan.timeout = Duration::from_millis(100);
    let started = Instant::now();
    let report = run_provider(&plan).unwrap();
    assert_eq!(
        fault(&report),
        (Step::Token, FailureClass::Timeout, "no complete response within the timeout")
    );
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_refused_connection_is_its_own_class() {
    let mut plan = plan(&Provider::start(correct_provider), Flow::Password);
    plan.connect = Some(crate::NOBODY.to_owned());
    assert_eq!(fault(&run_provider(&plan).unwrap()).1, FailureClass::Connect);
}

#[test]
fn a_sign_in_that_goes_another_way_is_no_success() {
    type Change = fn(&SeenRequest) -> Option<String>;
    let cases: [(&str, Step, Change); 6] = [
        ("redirected to the client without consent", Step::Login, |seen| {
            let back = "location: http://app.test/cb?code=c1&state=x\r\n";
            seen.is("POST /login").then(|| answer(302, back, ""))
        }),
        ("the response has a different state", Step::Consent, |seen| {
            let back = "location: http://app.test/cb?code=c1&state=x\r\n";
            seen.is("POST /deep/consent").then(|| answer(302, back, ""))
        }),
        ("the sign-in page was shown again", Step::Login, |seen| {
            seen.is("POST /login").then(|| answer(200, "", LOGIN))
        }),
        ("no known form", Step::Redirect, |seen| {
            seen.is("GET /deep").then(|| answer(200, "", "<form><input name=otp></form>"))
        }),
        ("redirect to another origin", Step::Authorize, |seen| {
            seen.is("GET /authorize").then(|| answer(302, "location: https://other.test/\r\n", ""))
        }),
        ("no redirect to the client after", Step::Redirect, |seen| {
            seen.is("GET /login").then(|| answer(302, "location: /login\r\n", ""))
        }),
    ];
    for (why, step, change) in cases {
        let report = measure(
            move |seen, number| change(seen).unwrap_or_else(|| correct_provider(seen, number)),
            Flow::CodeConsent,
        );
        let (seen, class, example) = fault(&report);
        assert_eq!((seen, class), (step, FailureClass::Content), "{example}");
        assert!(example.starts_with(why), "{example}");
    }
}

#[test]
fn what_cannot_be_prepared_is_an_error_with_its_reason() {
    let provider = Provider::start(|_, _| answer(400, "", "unauthorized_client"));
    let refused = run_provider(&plan(&provider, Flow::Refresh)).unwrap_err();
    assert!(matches!(refused, ProviderError::Prepare { .. }));
    assert!(refused.to_string().contains("token: status: status 400: unauthorized_client"), "{refused}");
}

#[test]
fn a_description_is_checked_before_anything_is_sent() {
    let provider = Provider::start(correct_provider);
    let refused = |change: fn(&mut ProviderPlan)| {
        let mut plan = plan(&provider, Flow::CodeConsent);
        change(&mut plan);
        run_provider(&plan).unwrap_err().to_string()
    };
    for (field, change) in [
        ("origin", (|plan| plan.description.origin.push('/')) as fn(&mut ProviderPlan)),
        ("clients", |plan| plan.description.clients.clear()),
        ("endpoints.authorize", |plan| plan.description.endpoints.authorize.clear()),
        ("endpoints.revoke", |plan| "x".clone_into(&mut plan.description.endpoints.revoke)),
        ("endpoints.token", |plan| "/a b".clone_into(&mut plan.description.endpoints.token)),
        ("redirect_uri", |plan| plan.description.redirect_uri.clear()),
        ("users", |plan| plan.description.users = None),
        ("--concurrency", |plan| plan.concurrency = 0),
        ("duration", |plan| plan.duration = Duration::ZERO),
    ] {
        assert!(refused(change).contains(field), "{field}: {}", refused(change));
    }
    assert_eq!(provider.connections.load(Ordering::SeqCst), 0);
}

#[test]
fn a_button_is_found_by_name_and_value() {
    let mut plan = plan(&Provider::start(correct_provider), Flow::CodeConsent);
    plan.description.fields.consent =
        ConsentButton { name: "decision".to_owned(), value: "perhaps".to_owned() };
    let report = run_provider(&plan).unwrap();
    assert!(fault(&report).2.contains("decision (button)"), "{}", provider_table(&report));
}

#[test]
fn the_program_reads_a_description_and_reports_in_a_documented_shape() {
    let provider = Provider::start(correct_provider);
    let folder = std::env::temp_dir().join(format!("postern-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("provider.json");
    let program = |words: &[&str]| {
        let command = ["provider", file.to_str().unwrap(), "-d", "200ms", "-w", "0s", "--json", "-"];
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_postern-load"));
        program.args(command).args(words).output().unwrap()
    };
    let text = format!(
        r#"{{"name":"x","origin":"{}","endpoints":{{"token":"/token"}},"clients":[{{"id":"a","secret":"b"}}]}}"#,
        provider.origin
    );
    std::fs::write(&file, text).unwrap();
    let output = program(&["-s", "client_credentials", "--concurrency", "1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["schema"], &report["kind"]), (&"postern-load/1".into(), &"provider".into()));
    assert_eq!(report["plan"]["scenario"], "client_credentials");
    assert_eq!(report["requests"][0]["step"], "token");
    assert!(report["totals"]["ok"].as_u64().unwrap() > 0 && report["latency_us"]["p95"].is_number());

    let output = program(&["-s", "password"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("`users` of the description"));
    std::fs::write(&file, "{\"nmae\":1}").unwrap();
    assert!(String::from_utf8_lossy(&program(&["-s", "password"]).stderr).contains("unknown field `nmae`"));
    std::fs::remove_dir_all(&folder).unwrap();
}

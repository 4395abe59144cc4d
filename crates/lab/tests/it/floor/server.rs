//! Test server: this test program, started by the lab as a component, with the test below as its
//! main function.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

static REQUESTS: AtomicU64 = AtomicU64::new(0);
/// Number of requests to `/late`.
static LATE: AtomicU64 = AtomicU64::new(0);
/// `true` while a request to `/one-slow` is being answered slowly.
static SLOW: AtomicBool = AtomicBool::new(false);

/// Times of revocation, by token text or by the claims of the token, which contain only its name.
static REVOKED: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy)]
struct Behaviour {
    guarded: bool,
    /// CPU work of each request, in thousands of steps.
    work: u64,
    /// After the first twenty requests, every seventh request to the application is refused.
    fails_sometimes: bool,
    /// Number of requests after which the process ends.
    max_requests: u64,
}

#[expect(
    clippy::disallowed_methods,
    reason = "a component is told by its environment, and that it is, is tested with it"
)]
fn environment_value(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Serves if it runs as a component; does nothing if the ignored tests are run.
#[test]
#[ignore = "the main function of a component"]
fn serve() {
    let Some(port) = environment_value("LAB_TEST_PORT") else { return };
    let number = |name: &str| environment_value(name).and_then(|text| text.parse().ok());
    let behaviour = Behaviour {
        guarded: environment_value("LAB_TEST_GUARDED").is_some(),
        fails_sometimes: environment_value("LAB_TEST_MOODY").is_some(),
        work: number("LAB_TEST_WORK").unwrap_or(0) * 1000,
        max_requests: number("LAB_TEST_LAST").unwrap_or(u64::MAX),
    };
    let listener = TcpListener::bind(("127.0.0.1", port.parse().unwrap())).unwrap();
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        // A connection error depends on the client and is ignored.
        std::thread::spawn(move || drop(connection(&stream, behaviour)));
    }
}

fn connection(mut stream: &TcpStream, behaviour: Behaviour) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        std::io::Read::read_exact(&mut reader, &mut body)?;
        let form = String::from_utf8_lossy(&body);
        stream.write_all(answer(&head, &form, behaviour).as_bytes())?;
    }
}

/// Whether a place treats a token as revoked. The place learns of revocations `?stale=MILLISECONDS`
/// later; with `never`, not at all.
fn is_revoked(token: &str, query: &str) -> bool {
    let stale = query.strip_prefix("stale=").unwrap_or("0");
    let Ok(late) = stale.parse().map(Duration::from_millis) else { return false };
    let (revoked, claims) = (REVOKED.lock().unwrap(), token.split('.').nth(1).unwrap_or_default());
    [token, claims].iter().any(|name| revoked.get(*name).is_some_and(|at| at.elapsed() >= late))
}

/// Encoded claims of a token with this `jti`.
fn claims(jti: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{{\"jti\":\"{jti}\"}}"))
}

fn answer(head: &str, form: &str, behaviour: Behaviour) -> String {
    let target = head.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let with = |status: &str, fields: &str, content: &str| {
        format!("HTTP/1.1 {status}\r\n{fields}content-length: {}\r\n\r\n{content}", content.len())
    };
    let number = REQUESTS.fetch_add(1, Ordering::SeqCst);
    if number == 40 {
        eprintln!("under load");
    }
    let fields = head.lines().filter_map(|line| line.split_once(": Bearer "));
    let sent = fields.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let sent = sent.map_or("", |(_, token)| token);
    // Any token is valid, except an own token with a changed signature.
    let genuine = !sent.starts_with("token-") || sent.split('.').nth(2) == Some("c2ln");
    let bearer = !sent.is_empty() && genuine && !is_revoked(sent, query);
    let named = form.strip_prefix("token=").unwrap_or_default();
    match path {
        "/revoke" => {
            REVOKED.lock().unwrap().insert(named.to_owned(), Instant::now());
            with("200 OK", "", "")
        }
        // Accepts lists up to the size limit. With `?forgets=N` it ignores N tokens of each list
        // and says so; with `?ignores` it revokes none but reports all as revoked.
        "/lists" if bearer && form.len() <= 64 * 1024 => {
            let list: BTreeMap<String, Vec<String>> = serde_json::from_str(form).unwrap();
            let forgets = query.strip_prefix("forgets=").map_or(0, |number| number.parse().unwrap());
            let now = Instant::now();
            let tokens = list.get("tokens").into_iter().flatten().cloned();
            let listed: Vec<String> =
                tokens.chain(list.get("jtis").into_iter().flatten().map(|jti| claims(jti))).collect();
            let count = listed.len().saturating_sub(forgets);
            let forgets = if query == "ignores" { listed.len() } else { forgets };
            REVOKED.lock().unwrap().extend(listed.into_iter().skip(forgets).map(|name| (name, now)));
            with("200 OK", "", &format!("{{\"count\":{count},\"worthless\":0}}"))
        }
        "/introspect" => with(
            "200 OK",
            "",
            &format!("{{\"active\":{}}}", named.starts_with("token-") && !is_revoked(named, query)),
        ),
        "/token" => {
            let claims = claims(&format!("name-{number}"));
            let token =
                format!("{{\"access_token\":\"token-{number}.{claims}.c2ln\",\"token_type\":\"Bearer\"}}");
            with("200 OK", "", &token)
        }
        // Late for the first four requests (two users: the transaction before the window, and the
        // one in it), or always.
        "/late" => {
            if query == "always" || LATE.fetch_add(1, Ordering::SeqCst) < 4 {
                std::thread::sleep(Duration::from_millis(900));
            }
            with("200 OK", "", "")
        }
        "/one-slow" => {
            let slow = !SLOW.swap(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(if slow { 900 } else { 20 }));
            SLOW.fetch_xor(slow, Ordering::SeqCst);
            with("200 OK", "", "")
        }
        "/busy" => with("503 Busy", "", "not yet"),
        "/metrics" => with("200 OK", "", &metrics(number)),
        _ if behaviour.guarded && !bearer => with("401 Unauthorized", "", ""),
        "/other" => with("204 No Content", "", ""),
        _ if behaviour.fails_sometimes && number > 20 && number.is_multiple_of(7) => with("503 Busy", "", ""),
        _ if number >= behaviour.max_requests => {
            eprintln!("that was the last one");
            std::process::exit(3);
        }
        _ => {
            let mut sum = 0_u64;
            for step in 0..behaviour.work {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(step));
            }
            with("200 OK", "server-timing: app;dur=1.5, cache;desc=hit\r\n", "hello")
        }
    }
}

/// Metrics whose counters grow with each request.
fn metrics(number: u64) -> String {
    let labels = "{container=\"app\",pod=\"a\"}";
    format!(
        "container_cpu_usage_seconds_total{labels} {}\ncontainer_cpu_cfs_periods_total{labels} {number}\n\
         container_cpu_cfs_throttled_periods_total{labels} {number}\ncontainer_cpu_cfs_throttled_seconds_total{labels} {}\n\
         container_spec_cpu_quota{labels} 5000\ncontainer_spec_cpu_period{labels} 100000\nrequests_total{labels} {number}\n",
        number as f64 / 1e3,
        number as f64 / 1e2,
    )
}

//! This test program as a server: started by the lab as a component, with the test below as its main function.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

static REQUESTS: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy)]
struct Behaviour {
    guarded: bool,
    /// Work for each request, in thousands of steps: CPU time, whatever the clock does meanwhile.
    work: u64,
    /// Ends after so many requests.
    last: u64,
}

#[expect(
    clippy::disallowed_methods,
    reason = "a component is told by its environment, and that it is, is tested with it"
)]
fn told(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Serves while it is a component; nothing when the ignored tests are run.
#[test]
#[ignore = "the main function of a component"]
fn serve() {
    let Some(port) = told("LAB_TEST_PORT") else { return };
    let number = |name: &str| told(name).and_then(|text| text.parse().ok());
    let behaviour = Behaviour {
        guarded: told("LAB_TEST_GUARDED").is_some(),
        work: number("LAB_TEST_WORK").unwrap_or(0) * 1000,
        last: number("LAB_TEST_LAST").unwrap_or(u64::MAX),
    };
    let listener = TcpListener::bind(("127.0.0.1", port.parse().unwrap())).unwrap();
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        // A connection ends with whatever its client does.
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
        stream.write_all(answer(&head, behaviour).as_bytes())?;
    }
}

fn answer(head: &str, behaviour: Behaviour) -> String {
    let path = head.split(' ').nth(1).unwrap_or_default();
    let with = |status: &str, fields: &str, content: &str| {
        format!("HTTP/1.1 {status}\r\n{fields}content-length: {}\r\n\r\n{content}", content.len())
    };
    let number = REQUESTS.fetch_add(1, Ordering::SeqCst);
    if number == 40 {
        eprintln!("under load");
    }
    let bearer = head.to_ascii_lowercase().contains("authorization: bearer ");
    match path {
        "/token" => with("200 OK", "", &format!("{{\"access_token\":\"token-{number}\"}}")),
        "/busy" => with("503 Busy", "", "not yet"),
        "/metrics" => with("200 OK", "", &metrics(number)),
        _ if behaviour.guarded && !bearer => with("401 Unauthorized", "", ""),
        _ if number >= behaviour.last => {
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

/// Counters that grow with each request.
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

//! Outage messages: the log has one line when a dependency goes away and one when it is back. The
//! number of attempts, their different causes and the affected requests do not matter.
//!
//! An outage lasts 13 s here, in which each dependency is tried several times.
//! `POSTERN_OUTAGE_SECONDS=60` makes it a minute.

mod gateway;
mod provider;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Running, environment};

/// Time limit for a recovery: the longest pause between two attempts, plus the calm time before it
/// counts.
const RETURN: Duration = Duration::from_secs(50);

fn outage() -> Duration {
    let seconds =
        environment("POSTERN_OUTAGE_SECONDS").map(|seconds| seconds.parse().expect("a number of seconds"));
    Duration::from_secs(seconds.unwrap_or(13))
}

/// A proxy to a server that can be cut.
struct Switch {
    address: String,
    closed: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Switch {
    fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (closed, open) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (server, switch) = (server.to_owned(), Self { address, closed, open });
        let (closed, open) = (switch.closed.clone(), switch.open.clone());
        std::thread::spawn(move || {
            let refused = AtomicUsize::new(0);
            for client in listener.incoming().map_while(Result::ok) {
                if closed.load(Ordering::SeqCst) {
                    // The error differs each time.
                    if refused.fetch_add(1, Ordering::SeqCst) % 2 == 1 {
                        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
                    }
                    continue;
                }
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let both = [client, server];
                open.lock().unwrap().extend(both.iter().map(|one| one.try_clone().unwrap()));
                for (from, to) in [(0, 1), (1, 0)] {
                    let (mut from, mut to) = (both[from].try_clone().unwrap(), both[to].try_clone().unwrap());
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        switch
    }

    fn cut(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for open in self.open.lock().unwrap().drain(..) {
            let _ = open.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }

    /// Cuts the connection for the duration of an outage, while there is traffic.
    fn is_away(&self, mut traffic: impl FnMut()) {
        traffic();
        self.cut();
        let began = Instant::now();
        while began.elapsed() < outage() {
            traffic();
            std::thread::sleep(Duration::from_millis(100));
        }
        self.mend();
    }
}

/// Lines of a process log about one dependency, at WARN and above for going away, at INFO for being
/// back.
fn lines<'s>(said: &'s str, level: &str, message: &str, dependency: &str) -> Vec<&'s str> {
    let (level, dependency) = (format!(" {level} "), format!("{message} dependency=\"{dependency}\""));
    said.lines().filter(|line| line.contains(&level) && line.contains(&dependency)).collect()
}

/// Waits until these dependencies are back, while there is traffic. Then each must have one line
/// for going away and one for its return, and there must be no other warning.
fn each_went_and_came_back_once(process: &mut Running, dependencies: &[&str], mut traffic: impl FnMut()) {
    let is_back = |said: &str, dependency: &str| {
        !lines(said, "INFO", "dependency available again", dependency).is_empty()
    };
    let began = Instant::now();
    while !dependencies.iter().all(|dependency| is_back(process.output(), dependency)) {
        assert!(
            began.elapsed() < RETURN,
            "not all of {dependencies:?} are back:\n{}",
            summary(process.output())
        );
        traffic();
        std::thread::sleep(Duration::from_millis(100));
    }
    for _ in 0..10 {
        traffic();
        std::thread::sleep(Duration::from_millis(100));
    }
    let said = process.output();
    for dependency in dependencies {
        let went = lines(said, "WARN", "dependency unavailable", dependency);
        assert_eq!(went.len(), 1, "{dependency}:\n{}", summary(said));
        assert!(went[0].contains(" why="), "{went:?}");
        let back = lines(said, "INFO", "dependency available again", dependency);
        assert_eq!(back.len(), 1, "{dependency}:\n{}", summary(said));
        let figure = |name: &str| {
            let (_, rest) = back[0].split_once(name).unwrap_or_else(|| panic!("no {name} in {back:?}"));
            rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap()
        };
        assert!(figure(" failures=") >= 2, "{back:?}");
        // A dependency that is used only periodically notices the outage later.
        assert!((1..=outage().as_secs() + 30).contains(&figure(" after=")), "{back:?}");
    }
    let is_one_of =
        |line: &str| dependencies.iter().any(|one| line.contains(&format!("dependency=\"{one}\"")));
    let else_said: Vec<_> = loud(said).filter(|line| !is_one_of(line)).collect();
    assert!(else_said.is_empty(), "{}", else_said.join("\n"));
}

fn loud(said: &str) -> impl Iterator<Item = &str> {
    let is_loud = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    // Insecure settings of a test are logged at the start. A login with an unknown code concerns
    // that login only.
    let is_of_the_test =
        |line: &str| line.contains("plain http") || line.contains("the provider refused: invalid_grant");
    said.lines().filter(is_loud).filter(move |line| !is_of_the_test(line))
}

/// Number of lines of each kind, by their beginning.
fn summary(said: &str) -> String {
    let mut count = BTreeMap::<String, (usize, &str)>::new();
    for line in said.lines() {
        let line = line.split_once(' ').map_or(line, |(_, line)| line.trim_start());
        let kind: String = line.chars().take(48).take_while(|c| !c.is_ascii_digit()).collect();
        count.entry(kind).or_insert((0, line)).0 += 1;
    }
    count.values().map(|(count, line)| format!("{count:>5} × {line}\n")).collect()
}

/// An HTTP server that answers by the path: status, further fields, body.
fn server(answer: impl Fn(&str) -> (u16, String, String) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, answer) = (listener.local_addr().unwrap().to_string(), Arc::new(answer));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap());
                while let Some(path) = request(&mut lines) {
                    let (status, fields, body) = answer(&path);
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status} X\r\n{fields}content-length: {length}\r\n\r\n");
                    if stream.write_all((head + &body).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Reads a request with a length and returns its path. `None` at the end.
fn request(lines: &mut BufReader<TcpStream>) -> Option<String> {
    let (mut head, mut length) = (String::new(), 0_u64);
    while !head.ends_with("\r\n\r\n") {
        let before = head.len();
        if lines.read_line(&mut head).ok()? == 0 {
            return None;
        }
        if let Some(("content-length", value)) = head[before..].to_ascii_lowercase().split_once(':') {
            length = value.trim().parse().ok()?;
        }
    }
    std::io::copy(&mut lines.by_ref().take(length), &mut std::io::sink()).ok()?;
    head.split(' ').nth(1).map(str::to_owned)
}

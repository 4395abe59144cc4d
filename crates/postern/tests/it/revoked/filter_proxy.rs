//! Proxy in front of a provider's node that forwards some endpoints and blocks others. It can
//! record, replay and delay responses, and change messages.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// The proxy. Each connection carries one request.
pub(super) struct FilterProxy {
    pub(super) url: String,
    rules: Arc<Mutex<Rules>>,
    kept: Arc<AtomicUsize>,
}

/// What happens to requests for a path, and to their responses.
#[derive(Clone)]
enum Rule {
    /// They get a 404 response.
    NotFound,
    /// They get no response.
    Drop,
    /// They are forwarded, and the last response is recorded.
    Record(Arc<Mutex<Vec<u8>>>),
    /// They are forwarded, and their responses wait for the gate.
    Hold(Arc<Gate>),
    /// They get this recorded response.
    Replay(Arc<Mutex<Vec<u8>>>),
    /// The bodies of request and response are changed.
    Change(fn(&mut Vec<u8>), fn(&mut Vec<u8>)),
}

/// Gate that responses wait for.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    /// Number of waiting responses.
    waiting: AtomicUsize,
}

type Rules = BTreeMap<&'static str, Rule>;

impl FilterProxy {
    pub(super) fn before(provider: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sieve = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            rules: Arc::default(),
            kept: Arc::default(),
        };
        let (provider, rules, kept) = (provider.to_owned(), sieve.rules.clone(), sieve.kept.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (provider, rules, kept) = (provider.clone(), rules.clone(), kept.clone());
                std::thread::spawn(move || carry(client, &provider, &rules, &kept));
            }
        });
        sieve
    }

    fn rule(&self, path: &'static str, rule: Rule) {
        self.rules.lock().unwrap().insert(path, rule);
    }

    /// From here on, requests for this path get 404.
    pub(super) fn shut(&self, path: &'static str) {
        self.rule(path, Rule::NotFound);
    }

    /// From here on, requests for this path get no response.
    pub(super) fn swallow(&self, path: &'static str) {
        self.rule(path, Rule::Drop);
    }

    /// From here on, the last response for this path is recorded.
    pub(super) fn record(&self, path: &'static str) {
        self.rule(path, Rule::Record(Arc::default()));
    }

    /// From here on, responses for this path wait until the path is [opened](Self::open). Their
    /// content is from before.
    pub(super) fn hold(&self, path: &'static str) {
        self.rule(path, Rule::Hold(Arc::default()));
    }

    /// Number of responses for this path that wait.
    pub(super) fn held(&self, path: &'static str) -> usize {
        match self.rules.lock().unwrap().get(path) {
            Some(Rule::Hold(gate)) => gate.waiting.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// Whether a response for this path was recorded.
    pub(super) fn has_recorded(&self, path: &'static str) -> bool {
        matches!(self.rules.lock().unwrap().get(path), Some(Rule::Record(of)) if !of.lock().unwrap().is_empty())
    }

    /// From here on, all requests for this path get the recorded response.
    pub(super) fn replay(&self, path: &'static str) {
        let mut rules = self.rules.lock().unwrap();
        let Some(Rule::Record(recorded)) = rules.get(path).cloned() else { panic!("not recorded") };
        assert!(!recorded.lock().unwrap().is_empty(), "nothing was recorded of {path}");
        rules.insert(path, Rule::Replay(recorded));
    }

    /// From here on, these functions change the bodies of requests for this path, and of their
    /// responses.
    pub(super) fn change(&self, path: &'static str, request: fn(&mut Vec<u8>), answer: fn(&mut Vec<u8>)) {
        self.rule(path, Rule::Change(request, answer));
    }

    /// Requests for this path are forwarded again.
    pub(super) fn open(&self, path: &'static str) {
        if let Some(Rule::Hold(gate)) = self.rules.lock().unwrap().remove(path) {
            *gate.open.lock().unwrap() = true;
            gate.opened.notify_all();
        }
    }

    /// Number of requests that the proxy answered itself or dropped.
    pub(super) fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }
}

/// A message: the lines of its head without the empty one, and its body.
fn read(from: &mut impl BufRead) -> Option<(Vec<String>, Vec<u8>)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        lines.push(line);
    }
    let length = lines
        .iter()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    from.read_exact(&mut body).ok()?;
    Some((lines, body))
}

fn written((lines, body): (Vec<String>, Vec<u8>)) -> Vec<u8> {
    let others = lines.into_iter().filter(|line| !line.to_lowercase().starts_with("content-length:"));
    let head = others.collect::<String>() + &format!("Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), &body].concat()
}

fn carry(mut client: TcpStream, provider: &str, rules: &Mutex<Rules>, kept: &AtomicUsize) {
    let mut from = BufReader::new(client.try_clone().unwrap());
    let Some((mut lines, mut body)) = read(&mut from) else { return };
    let path = lines[0].split(' ').nth(1).unwrap_or_default();
    let rule =
        rules.lock().unwrap().iter().find(|(of, _)| path.starts_with(**of)).map(|(_, rule)| rule.clone());
    let mut keep = |answer: &[u8]| {
        kept.fetch_add(1, Ordering::Relaxed);
        let _ = client.write_all(answer);
    };
    match &rule {
        Some(Rule::NotFound) => {
            return keep(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        Some(Rule::Drop) => {
            keep(b"");
            // Until the client gives up.
            let _ = std::io::copy(&mut from, &mut std::io::sink());
            return;
        }
        Some(Rule::Replay(recorded)) => return keep(&recorded.lock().unwrap()),
        Some(Rule::Change(request, _)) => request(&mut body),
        Some(Rule::Record(_) | Rule::Hold(_)) | None => {}
    }
    let Ok(mut to) = TcpStream::connect(provider) else { return };
    lines.push("Connection: close\r\n".into());
    let _ = to.write_all(&written((lines, body)));
    match rule {
        Some(Rule::Record(recorded)) => {
            let Some(answer) = read(&mut BufReader::new(to)).map(written) else { return };
            recorded.lock().unwrap().clone_from(&answer);
            let _ = client.write_all(&answer);
        }
        Some(Rule::Hold(gate)) => {
            let Some(answer) = read(&mut BufReader::new(to)).map(written) else { return };
            gate.waiting.fetch_add(1, Ordering::Relaxed);
            let open = gate.open.lock().unwrap();
            drop(gate.opened.wait_while(open, |open| !*open).unwrap());
            let _ = client.write_all(&answer);
        }
        Some(Rule::Change(_, change)) => {
            let Some((lines, mut body)) = read(&mut BufReader::new(to)) else { return };
            change(&mut body);
            let _ = client.write_all(&written((lines, body)));
        }
        _ => pass(&mut to, &mut client),
    }
}

/// Copies bytes as they arrive.
fn pass(from: &mut TcpStream, to: &mut TcpStream) {
    let mut piece = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..length]).is_err() {
            return;
        }
    }
}

//! Proxy in front of a provider's node that drops or delays requests, and counts those that wait
//! forever.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The proxy. Each connection carries one request.
pub(super) struct DroppingProxy {
    pub(super) url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Delay of requests whose path begins with the key. `None`: they are dropped.
    late: BTreeMap<&'static str, Option<Duration>>,
    /// Dropped requests, by the path that they begin with.
    swallowed: BTreeMap<&'static str, Swallowed>,
}

#[derive(Clone, Copy, Default)]
struct Swallowed {
    all: usize,
    waiting: usize,
    most: usize,
}

impl DroppingProxy {
    pub(super) fn before(provider: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (provider, state) = (provider.to_owned(), Arc::<Mutex<State>>::default());
        let hole = Self { url, state: state.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (provider, state) = (provider.clone(), state.clone());
                std::thread::spawn(move || carry(client, &provider, &state));
            }
        });
        hole
    }

    /// From here on, requests for these paths get no response.
    pub(super) fn drop_requests(&self, paths: &[&'static str]) {
        self.state.lock().unwrap().late.extend(paths.iter().map(|path| (*path, None)));
    }

    /// From here on, requests for these paths are forwarded with this delay.
    pub(super) fn delay(&self, paths: &[&'static str], by: Duration) {
        self.state.lock().unwrap().late.extend(paths.iter().map(|path| (*path, Some(by))));
    }

    /// From here on, every request is forwarded.
    pub(super) fn close(&self) {
        self.state.lock().unwrap().late.clear();
    }

    /// Number of dropped requests for this path.
    pub(super) fn swallowed(&self, path: &'static str) -> usize {
        self.state.lock().unwrap().swallowed.get(path).map_or(0, |swallowed| swallowed.all)
    }

    /// Largest number of them that waited at the same time since the last call.
    pub(super) fn most(&self, path: &'static str) -> usize {
        let mut state = self.state.lock().unwrap();
        let swallowed = state.swallowed.entry(path).or_default();
        std::mem::replace(&mut swallowed.most, swallowed.waiting)
    }
}

fn carry(mut client: TcpStream, provider: &str, state: &Mutex<State>) {
    let (mut read, mut piece) = (Vec::new(), [0; 16 << 10]);
    while !read.windows(4).any(|four| four == b"\r\n\r\n") {
        match client.read(&mut piece) {
            Ok(length @ 1..) => read.extend_from_slice(&piece[..length]),
            _ => return,
        }
    }
    let text = String::from_utf8_lossy(&read).into_owned();
    let path = text.split(' ').nth(1).unwrap_or_default();
    let late =
        state.lock().unwrap().late.iter().find(|(of, _)| path.starts_with(**of)).map(|(of, by)| (*of, *by));
    match late {
        None => {}
        Some((_, Some(by))) => std::thread::sleep(by),
        Some((of, None)) => {
            let count = |by: isize| {
                let mut state = state.lock().unwrap();
                let swallowed = state.swallowed.entry(of).or_default();
                swallowed.all += usize::from(by > 0);
                swallowed.waiting = swallowed.waiting.saturating_add_signed(by);
                swallowed.most = swallowed.most.max(swallowed.waiting);
            };
            count(1);
            // Until the client gives up.
            let _ = std::io::copy(&mut client, &mut std::io::sink());
            count(-1);
            return;
        }
    }
    let Ok(mut to) = TcpStream::connect(provider) else { return };
    let head = text.split_once("\r\n\r\n").map_or(0, |(head, _)| head.len());
    let _ = to.write_all(&read[..head]).and_then(|()| to.write_all(b"\r\nConnection: close"));
    let _ = to.write_all(&read[head..]);
    let (mut from, mut up) = (client.try_clone().unwrap(), to.try_clone().unwrap());
    // The rest of the request, if it has one.
    std::thread::spawn(move || std::io::copy(&mut from, &mut up));
    let _ = std::io::copy(&mut to, &mut client);
    let _ = client.shutdown(std::net::Shutdown::Both);
}

//! A proxy before a provider's node that lets some of its endpoints through and others not.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The proxy. Each connection is for one request.
pub(super) struct Sieve {
    pub(super) url: String,
    shut: Arc<Mutex<Shut>>,
    kept: Arc<AtomicUsize>,
}

/// The paths that do not come through, and whether that is said.
type Shut = BTreeMap<&'static str, bool>;

impl Sieve {
    pub(super) fn before(provider: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sieve = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            shut: Arc::default(),
            kept: Arc::default(),
        };
        let (provider, shut, kept) = (provider.to_owned(), sieve.shut.clone(), sieve.kept.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (provider, shut, kept) = (provider.clone(), shut.clone(), kept.clone());
                std::thread::spawn(move || carry(client, &provider, &shut, &kept));
            }
        });
        sieve
    }

    /// From here on requests for this path are answered with 404.
    pub(super) fn shut(&self, path: &'static str) {
        self.shut.lock().unwrap().insert(path, true);
    }

    /// From here on requests for this path are not answered at all.
    pub(super) fn swallow(&self, path: &'static str) {
        self.shut.lock().unwrap().insert(path, false);
    }

    /// Requests that did not come through.
    pub(super) fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }
}

fn carry(mut client: TcpStream, provider: &str, shut: &Mutex<Shut>, kept: &AtomicUsize) {
    let mut from = BufReader::new(client.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line == "\r\n" {
            break;
        }
        lines.push(line);
    }
    let path = lines[0].split(' ').nth(1).unwrap_or_default();
    let said = shut.lock().unwrap().iter().find(|(shut, _)| path.starts_with(**shut)).map(|(_, said)| *said);
    if let Some(said) = said {
        kept.fetch_add(1, Ordering::Relaxed);
        if !said {
            // Until whoever asked gives up.
            let _ = std::io::copy(&mut from, &mut std::io::sink());
            return;
        }
        let _ = client.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return;
    }
    let length = lines
        .iter()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    let _ = from.read_exact(&mut body);
    let Ok(mut to) = TcpStream::connect(provider) else { return };
    let head = lines.concat() + "Connection: close\r\n\r\n";
    let _ = to.write_all(head.as_bytes()).and_then(|()| to.write_all(&body));
    let mut piece = [0; 16 << 10];
    while let Ok(length @ 1..) = to.read(&mut piece) {
        if client.write_all(&piece[..length]).is_err() {
            return;
        }
    }
}

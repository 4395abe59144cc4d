//! HTTP/2 frame by frame: sequences that no client library sends.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use telemetry::metrics::Format;

use dataplane::harness::{Fixture, ISSUER, Issuer, PATIENCE, Setup, Upstream};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Encodes a string without Huffman coding (RFC 7541 §5.2).
fn string(out: &mut Vec<u8>, text: &str) {
    let mut left = text.len();
    if left < 127 {
        out.push(u8::try_from(left).unwrap());
    } else {
        out.push(127);
        left -= 127;
        while left >= 128 {
            out.push(u8::try_from(left % 128).unwrap() | 128);
            left /= 128;
        }
        out.push(u8::try_from(left).unwrap());
    }
    out.extend_from_slice(text.as_bytes());
}

/// A complete `GET` in one frame.
fn get(stream: u32, path: &str, token: &str) -> Vec<u8> {
    // From the static table: `:method: GET`, `:scheme: http`. Then literals with new names that are
    // never indexed.
    let mut block = vec![0x82, 0x86];
    let token = format!("Bearer {token}");
    for (name, value) in [(":path", path), (":authority", "app.test"), ("authorization", &token)] {
        block.push(0x10);
        string(&mut block, name);
        string(&mut block, value);
    }
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
}

/// A connection after the exchange of settings.
struct Connection(TcpStream);

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Connection {
    fn open(address: SocketAddr) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        socket.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        let mut connection = Self(socket);
        while connection.next().kind != SETTINGS {}
        connection.send(&frame(SETTINGS, 1, 0, &[]));
        connection
    }

    fn send(&mut self, frames: &[u8]) {
        self.0.write_all(frames).unwrap();
    }

    fn next(&mut self) -> Frame {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).expect("a frame comes");
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).expect("the whole frame comes");
        Frame { kind, flags, stream: u32::from_be_bytes(stream), payload }
    }

    /// Reads the frame that ends a stream.
    fn end_of(&mut self, stream: u32) -> Frame {
        loop {
            let next = self.next();
            let ends = match next.kind {
                RST_STREAM => true,
                HEADERS | DATA => next.flags & END_STREAM != 0,
                _ => false,
            };
            if next.stream == stream && ends {
                return next;
            }
        }
    }
}

/// A gateway whose issuer never answers requests for its keys, and a token of that issuer.
fn without_keys(setup: &Setup) -> (TcpListener, Fixture, String) {
    let source = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("http://{}", source.local_addr().unwrap());
    let (dir, upstream, issuer) = (tempfile::tempdir().unwrap(), Upstream::start(), Issuer::new());
    let token = issuer.token(|claims| claims["iss"] = name.clone().into());
    let file = format!("jwks_file = \"{}\"", dir.path().join("jwks.json").display());
    let text = setup.file(dir.path(), upstream.address);
    let text = text.replace(ISSUER, &name).replace(&file, &format!("jwks_uri = \"{name}/jwks\""));
    (source, Fixture::from_text(dir, issuer, upstream, &text), token)
}

/// Sum of a metric's samples whose labels contain `label`.
fn metric(f: &Fixture, name: &str, label: &str) -> u64 {
    let text = f.metrics.render(Format::Text);
    let lines = text.lines().filter(|l| l.starts_with(name) && l.contains(label));
    lines.map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

fn wait_for_requests(f: &Fixture, open: u64, patience: Duration) {
    let until = Instant::now() + patience;
    loop {
        let now = metric(f, "postern_requests_in_flight", "");
        if now == open {
            return;
        }
        assert!(Instant::now() < until, "{now} requests are under way, and should be {open}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn http2_streams_given_up_while_keys_are_awaited_are_let_go() {
    let (_source, f, token) = without_keys(&Setup::default());
    let mut connection = Connection::open(f.address);
    let streams: Vec<u32> = (0..20).map(|n| 2 * n + 1).collect();
    connection.send(&streams.iter().flat_map(|id| get(*id, "/", &token)).collect::<Vec<_>>());
    wait_for_requests(&f, 20, PATIENCE);
    connection.send(&streams.iter().flat_map(|id| reset(*id)).collect::<Vec<_>>());
    // Long before the wait for keys ends.
    wait_for_requests(&f, 0, Duration::from_secs(3));
    assert_eq!(metric(&f, "postern_requests_total", "outcome=\"client_aborted\""), 20);
    assert!(f.upstream.seen().is_empty());
}

/// More streams than a connection may have tasks: none of them gets one.
#[test]
fn http2_streams_opened_and_given_up_in_one_breath_take_nobodys_place() {
    let limits = Setup { listener: "limits = { concurrent_streams = 1 }".into(), ..Setup::default() };
    let (_source, f, token) = without_keys(&limits);
    let mut connection = Connection::open(f.address);
    let mut breath: Vec<u8> =
        [1, 3, 5, 7].iter().flat_map(|id| [get(*id, "/", &token), reset(*id)].concat()).collect();
    breath.extend(get(9, "/", &token));
    connection.send(&breath);
    wait_for_requests(&f, 1, PATIENCE);
    assert_eq!(metric(&f, "postern_requests_total", "outcome=\"client_aborted\""), 4);
    // One stream is open, which is the maximum. The error code permits an immediate retry.
    connection.send(&get(11, "/", &token));
    let end = connection.end_of(11);
    assert_eq!((end.kind, end.payload), (RST_STREAM, REFUSED_STREAM.to_be_bytes().to_vec()));
    connection.send(&reset(9));
    wait_for_requests(&f, 0, PATIENCE);
    connection.send(&get(13, "/", &token));
    wait_for_requests(&f, 1, PATIENCE);
    assert!(f.upstream.seen().is_empty());
}

/// A proxy that waited too long for many responses resets them at once, before the gateway could
/// react.
#[test]
fn http2_streams_given_up_before_anybody_looked_end_nothing_else() {
    let f = Fixture::new();
    let token = f.issuer.token(|_| {});
    let mut connection = Connection::open(f.address);
    let given_up = (1..=64).map(|n| 2 * n + 1);
    let mut breath = get(1, "/kept", &token);
    breath.extend(given_up.flat_map(|id| [get(id, "/", &token), reset(id)].concat()));
    breath.extend(get(131, "/after", &token));
    connection.send(&breath);
    let mut wanted = vec![1, 131];
    while !wanted.is_empty() {
        let next = connection.next();
        assert!(next.kind != GOAWAY, "{:?}", String::from_utf8_lossy(&next.payload));
        if next.kind == DATA && next.flags & END_STREAM != 0 {
            wanted.retain(|id| *id != next.stream);
        }
    }
}

/// `http` cuts a target at `#` first. The rest is decided and forwarded, and nothing else.
#[test]
fn http2_canonical_a_raw_fragment_is_neither_decided_nor_forwarded() {
    let closed = "[[route]]\nname = \"closed\"\npath = { exact = \"/admin\" }\nupstream = \"backend\"\n\
                  policy = { allow = [{ groups = { any = [\"nobody\"] } }] }\n\
                  [[route]]\nname = \"shown\"\npath = { exact = \"/shown\" }\nupstream = \"backend\"\npublic = true\n";
    let f = Fixture::with(Setup { more: closed.into(), ..Setup::default() }, Upstream::start());
    let token = f.issuer.token(|_| {});
    let mut connection = Connection::open(f.address);
    // Alice may see every path except `/admin`.
    for (id, path) in [(1, "/admin#x"), (3, "/admin#/../x"), (5, "/admin#?x")] {
        connection.send(&get(id, path, &token));
        assert_eq!(connection.end_of(id).kind, DATA, "{path}: an answer of ours, which has a body");
        assert!(f.upstream.seen().is_empty(), "{path}");
    }
    for (id, path, forwarded) in [(7, "/shown#x", "/shown"), (9, "/a?b=c#d", "/a?b=c"), (11, "/a#b?c", "/a")]
    {
        connection.send(&get(id, path, &token));
        connection.end_of(id);
        assert_eq!(f.upstream.seen().last().unwrap().line(), format!("GET {forwarded} HTTP/1.1"));
    }
    assert_eq!(f.upstream.seen().len(), 3);
    // HTTP/1 refuses it.
    assert_eq!(f.get("/admin#x").status, 400);
}

//! Relay: forwards TCP connections and injects network faults that a file defines.
//!
//! ```text
//! answers = "lose"     # or "pass": whether over --http anything comes back
//! nats_loss = 30       # of 100 messages in each direction over --nats
//! ```
//!
//! After a response was dropped on a connection, the relay drops all further ones on it: a stream
//! with a gap would be worse than a network fault. The connection stays open until one end closes
//! it, like on a network that has failed in one direction.
//!
//! Owns: the listeners, the faults file and its reload, dropping responses, and dropping single
//! NATS messages. Does not own: the time of a fault, which an event of a scenario writes into the
//! file.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Deserialize;

/// Time between two checks of the faults file.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Largest line or payload that a NATS server accepts by default, in bytes.
const MAX_PAYLOAD: usize = 1 << 20;

/// Arguments of the command `postern lab relay`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
For scenarios: runs until it is stopped, as a component of a topology between two others.
  program = \"postern\"
  arguments = [\"lab\", \"relay\", \"--faults\", \"@file.faults.toml@\", \"--http\", \"127.0.0.1:@port.http@=127.0.0.1:@front.http@\"]

The file defines the faults, and is read again when it changes:
  answers = \"lose\"     drop responses over --http; or \"pass\"
  nats_loss = 30       percentage of messages dropped in each direction over --nats")]
pub struct Arguments {
    /// File that defines the faults
    #[arg(long, value_name = "FILE")]
    faults: PathBuf,
    /// Address to listen on and address to forward to, for requests and their responses
    #[arg(long, value_name = "FROM=TO", value_parser = parse_rule)]
    http: Vec<ForwardRule>,
    /// Address to listen on and address to forward to, for clients of a NATS server
    #[arg(long, value_name = "FROM=TO", value_parser = parse_rule)]
    nats: Vec<ForwardRule>,
}

/// Address to listen on, and address to forward to.
type ForwardRule = (SocketAddr, SocketAddr);

fn parse_rule(text: &str) -> Result<ForwardRule, String> {
    let (from, to) = text.split_once('=').ok_or("must be two addresses, FROM=TO")?;
    let address = |text: &str| text.parse().map_err(|_| format!("`{text}` is not an IP address with a port"));
    Ok((address(from)?, address(to)?))
}

/// Why the relay cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// A listener cannot be created.
    #[error("cannot listen on {address}: {error}; choose a free address")]
    Listen {
        /// Address of the listener.
        address: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The faults file cannot be used.
    #[error("invalid faults file `{path}`: {why}; see `postern lab relay --help`")]
    Faults {
        /// Path of the file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultsFile {
    answers: ResponseMode,
    nats_loss: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ResponseMode {
    Pass,
    Lose,
}

/// Faults that are in effect now.
#[derive(Default)]
struct Faults {
    answers_lost: AtomicBool,
    /// Percentage of NATS messages to drop.
    loss: AtomicU64,
    /// State of the random numbers; it advances with each message.
    random_state: AtomicU64,
}

impl Faults {
    fn load(&self, path: &Path) -> Result<(), RelayError> {
        let fault = |why: String| RelayError::Faults { path: path.display().to_string(), why };
        let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
        let written: FaultsFile = toml::from_str(&text).map_err(|error| fault(error.message().to_owned()))?;
        if written.nats_loss > 100 {
            return Err(fault("`nats_loss` must be from 0 to 100".to_owned()));
        }
        self.answers_lost.store(written.answers == ResponseMode::Lose, Relaxed);
        self.loss.store(written.nats_loss, Relaxed);
        Ok(())
    }

    /// Whether to drop the next message: a `SplitMix64` number of the message count decides.
    fn should_drop(&self) -> bool {
        let mut z = self.random_state.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % 100 < self.loss.load(Relaxed)
    }
}

#[derive(Clone, Copy)]
enum RelayProtocol {
    Http,
    Nats,
}

/// Forwards connections until the process ends.
///
/// # Errors
/// [`RelayError`] if the relay cannot start. If the file cannot be read later, the faults stay the
/// same and the error goes to standard error.
pub fn run(arguments: &Arguments) -> Result<(), RelayError> {
    let faults = Arc::<Faults>::default();
    let mut seen = modified_at(&arguments.faults);
    faults.load(&arguments.faults)?;
    let of = |kind, places: &[ForwardRule]| places.iter().map(|one| (kind, *one)).collect::<Vec<_>>();
    for (kind, (from, to)) in
        of(RelayProtocol::Http, &arguments.http).into_iter().chain(of(RelayProtocol::Nats, &arguments.nats))
    {
        let listener =
            TcpListener::bind(from).map_err(|error| RelayError::Listen { address: from, error })?;
        let faults = faults.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let faults = faults.clone();
                thread::spawn(move || relay_connection(&client, to, kind, &faults));
            }
        });
    }
    loop {
        thread::sleep(POLL_INTERVAL);
        let now = modified_at(&arguments.faults);
        if now != seen {
            seen = now;
            if let Err(error) = faults.load(&arguments.faults) {
                // The operator reads standard error; there is no other way to report the error.
                let _ = writeln!(io::stderr(), "{error}");
            }
        }
    }
}

fn modified_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// Forwards a connection until both directions have ended.
fn relay_connection(client: &TcpStream, to: SocketAddr, kind: RelayProtocol, faults: &Faults) {
    let Ok(server) = TcpStream::connect(to) else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else { return };
    let pass = |from: TcpStream, to: &TcpStream, answers: bool| {
        // Whatever the result, the end of this direction is forwarded to the other side.
        let _ = match kind {
            RelayProtocol::Nats => relay_nats(BufReader::new(from), to, faults),
            RelayProtocol::Http => relay_bytes(from, to, faults, answers),
        };
        let _ = to.shutdown(Shutdown::Write);
    };
    thread::scope(|scope| {
        scope.spawn(|| pass(from_client, &server, false));
        pass(from_server, client, true);
    });
}

fn relay_bytes(mut from: impl Read, mut to: impl Write, faults: &Faults, answers: bool) -> io::Result<()> {
    let (mut piece, mut lost) = ([0; 16 << 10], false);
    loop {
        let length = from.read(&mut piece)?;
        if length == 0 {
            return Ok(());
        }
        lost |= answers && faults.answers_lost.load(Relaxed);
        if !lost {
            to.write_all(&piece[..length])?;
        }
    }
}

/// Forwards the NATS protocol, except for messages that are dropped.
fn relay_nats(mut from: impl BufRead, mut to: impl Write, faults: &Faults) -> io::Result<()> {
    let mut piece = Vec::new();
    loop {
        piece.clear();
        if from.by_ref().take(MAX_PAYLOAD as u64).read_until(b'\n', &mut piece)? == 0 {
            return Ok(());
        }
        let payload = payload_length(&piece);
        if let Some(length) = payload {
            let line = piece.len();
            piece.resize(line + length + 2, 0);
            from.read_exact(&mut piece[line..])?;
        }
        if payload.is_none() || !faults.should_drop() {
            to.write_all(&piece)?;
        }
    }
}

/// Payload length of the message that follows this line, if there is one. It is the last number of
/// the line.
fn payload_length(line: &[u8]) -> Option<usize> {
    let mut words = line.trim_ascii().split(u8::is_ascii_whitespace);
    let operation = words.next()?;
    let is = |name: &&[u8]| operation.eq_ignore_ascii_case(name);
    [&b"PUB"[..], b"HPUB", b"MSG", b"HMSG"].iter().find(|name| is(name))?;
    let length = std::str::from_utf8(words.next_back()?).ok()?.parse().ok()?;
    (length <= MAX_PAYLOAD).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &[u8] =
        b"INFO {}\r\nPUB a 3\r\none\r\nPING\r\nMSG a 1 5\r\n\r\ntwo\r\nHMSG a 1 2 4\r\nhead\r\n+OK\r\n";

    #[test]
    fn all_is_passed_on_and_only_messages_are_lost() {
        let (faults, mut passed) = (Faults::default(), Vec::new());
        relay_nats(SAID, &mut passed, &faults).unwrap();
        assert_eq!(passed, SAID);
        faults.loss.store(100, Relaxed);
        passed.clear();
        relay_nats(SAID, &mut passed, &faults).unwrap();
        assert_eq!(passed, b"INFO {}\r\nPING\r\n+OK\r\n");
    }

    #[test]
    fn so_many_are_lost_of_a_hundred() {
        let faults = Faults::default();
        for loss in [0, 30, 60, 100] {
            faults.loss.store(loss, Relaxed);
            let lost = (0..10_000).filter(|_| faults.should_drop()).count();
            assert!(lost.abs_diff(usize::try_from(loss).unwrap() * 100) < 200, "{lost} of 10000 at {loss}");
        }
    }

    #[test]
    fn answers_are_lost_from_a_moment_on_and_requests_never() {
        let faults = Faults::default();
        let passed = |answers| {
            let mut passed = Vec::new();
            relay_bytes(&b"bytes"[..], &mut passed, &faults, answers).unwrap();
            passed
        };
        assert_eq!(passed(true), b"bytes");
        faults.answers_lost.store(true, Relaxed);
        assert_eq!((passed(true), passed(false)), (Vec::new(), b"bytes".to_vec()));
    }

    #[test]
    fn a_file_that_says_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faults.toml");
        let taken = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Faults::default().load(&path).map_err(|error| error.to_string())
        };
        assert_eq!(taken("answers = \"lose\"\nnats_loss = 30\n"), Ok(()));
        for (text, why) in [
            ("answers = \"lose\"\n", "nats_loss"),
            ("answers = \"some\"\nnats_loss = 0\n", "some"),
            ("answers = \"pass\"\nnats_loss = 101\n", "must be from 0 to 100"),
        ] {
            let error = taken(text).unwrap_err();
            assert!(error.contains(why) && error.contains("faults.toml"), "{error}");
        }
        assert!(parse_rule("127.0.0.1:1=127.0.0.1:2").is_ok());
        assert!(parse_rule("127.0.0.1:1").is_err() && parse_rule("a=b").is_err());
    }
}

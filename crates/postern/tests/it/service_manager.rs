//! What a service manager sees of `postern serve`: its messages, the watchdog, the sockets that it
//! passes.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Folder, Running, address_in, get, minimal_and, output_text};
use dataplane::ports::free;

/// Time limit for a message.
const SOON: Duration = Duration::from_secs(30);

/// The side of the service manager that gets messages.
struct Manager {
    socket: UnixDatagram,
    path: String,
    said: Vec<String>,
}

impl Manager {
    fn new(folder: &Folder) -> Self {
        let path = folder.0.join("notify").display().to_string();
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        Self { socket, path, said: Vec::new() }
    }

    /// Waits for a message with this line and returns the message.
    fn wait_for(&mut self, line: &str) -> String {
        let until = Instant::now() + SOON;
        let mut message = [0; 4096];
        loop {
            let Ok(length) = self.socket.recv(&mut message) else {
                panic!("no {line:?} in {:#?}", self.said)
            };
            let text = String::from_utf8_lossy(&message[..length]).into_owned();
            self.said.push(text.clone());
            if text.lines().any(|said| said == line) {
                return text;
            }
            assert!(Instant::now() < until, "no {line:?} in {:#?}", self.said);
        }
    }
}

fn configured(folder: &Folder, gateway: &str) -> String {
    let admin = free();
    let text = minimal_and(&format!("[admin]\naddress = \"{admin}\"\n[access_log]\nformat = \"off\"\n"));
    folder.write("postern.toml", text.replace("127.0.0.1:8080", gateway)).display().to_string()
}

fn serve(configuration: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postern"));
    command.args(["serve", configuration]);
    command
}

/// The command with this socket as the one that a service manager passes.
fn with_socket(socket: impl Into<OwnedFd>, configuration: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "exec 3<&0 </dev/null; exec \"$@\"", "sh"]);
    command.args([env!("CARGO_BIN_EXE_postern"), "serve", configuration]);
    command.stdin(Stdio::from(socket.into())).env("LISTEN_FDS", "1").env_remove("LISTEN_PID");
    command
}

#[test]
fn readiness_reloads_and_the_end_are_reported() {
    let folder = Folder::new("notify");
    let mut manager = Manager::new(&folder);
    let configuration = configured(&folder, "127.0.0.1:0");
    let mut running = Running::spawn(serve(&configuration).env("NOTIFY_SOCKET", &manager.path));
    let address = address_in(&running.wait_for("listening"), "address=");
    assert!(manager.wait_for("READY=1").contains("STATUS=serving\n"));
    assert!(get(&address, "/").starts_with("HTTP/1.1 "), "it serves when it says so");

    running.signal("-HUP");
    let message = manager.wait_for("RELOADING=1");
    assert!(message.lines().any(|line| line.starts_with("MONOTONIC_USEC=")), "{message}");
    assert!(manager.wait_for("READY=1").contains("STATUS=serving\n"));

    let text = std::fs::read_to_string(&configuration).unwrap();
    folder.write("postern.toml", format!("{text}\nunknown = 1\n"));
    running.signal("-HUP");
    manager.wait_for("RELOADING=1");
    assert!(manager.wait_for("READY=1").contains("was refused"), "{:#?}", manager.said);

    running.signal("-TERM");
    let message = manager.wait_for("STOPPING=1");
    let limit = message.lines().find_map(|line| line.strip_prefix("EXTEND_TIMEOUT_USEC=")).unwrap();
    assert!(limit.parse::<u64>().unwrap() > 10_000_000, "the drain timeout and more: {message}");
    assert_eq!(running.ended(), Some(0));
}

#[test]
fn a_process_that_does_not_start_never_reports_readiness() {
    let folder = Folder::new("notify-faulty");
    let manager = Manager::new(&folder);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let configuration = configured(&folder, &taken.local_addr().unwrap().to_string());
    let output = serve(&configuration).env("NOTIFY_SOCKET", &manager.path).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", output_text(&output));
    manager.socket.set_nonblocking(true).unwrap();
    assert!(manager.socket.recv(&mut [0; 64]).is_err(), "no message");
}

#[test]
fn the_watchdog_is_answered_while_the_process_runs() {
    let folder = Folder::new("watchdog");
    let mut manager = Manager::new(&folder);
    let configuration = configured(&folder, "127.0.0.1:0");
    let mut command = serve(&configuration);
    let running = Running::spawn(command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "300000"));
    for _ in 0..5 {
        manager.wait_for("WATCHDOG=1");
    }
    running.signal("-STOP");
    // What was sent before it stopped.
    while manager.socket.set_read_timeout(Some(Duration::from_millis(600))).is_ok()
        && manager.socket.recv(&mut [0; 4096]).is_ok()
    {}
    running.signal("-CONT");
    manager.socket.set_read_timeout(Some(SOON)).unwrap();
    manager.wait_for("WATCHDOG=1");
}

#[test]
fn a_socket_that_is_passed_serves_the_listener_with_its_address() {
    let folder = Folder::new("passed");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let configuration = configured(&folder, &address);
    let kept = socket.try_clone().unwrap();
    let mut running = Running::spawn(&mut with_socket(socket, &configuration));
    running.wait_for("listening");
    for _ in 0..20 {
        assert!(get(&address, "/").starts_with("HTTP/1.1 "));
    }
    running.signal("-TERM");
    assert_eq!(running.ended(), Some(0));
    // The service manager keeps it: a client that comes between two processes waits, and is served.
    let waiting = std::thread::spawn({
        let address = address.clone();
        move || get(&address, "/")
    });
    let mut next = Running::spawn(&mut with_socket(kept, &configuration));
    next.wait_for("listening");
    assert!(waiting.join().unwrap().starts_with("HTTP/1.1 "));
}

#[test]
fn a_unix_socket_that_is_passed_serves_the_listener_with_its_path() {
    let folder = Folder::new("passed-unix");
    let path = folder.0.join("side.sock");
    let socket = UnixListener::bind(&path).unwrap();
    let configuration = configured(&folder, &format!("unix:{}", path.display()));
    let mut running = Running::spawn(&mut with_socket(socket, &configuration));
    running.wait_for("listening");
    assert!(is_answered(&path));
}

/// Whether a request over a Unix socket gets a response.
fn is_answered(path: &Path) -> bool {
    use std::io::{Read as _, Write as _};

    let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.starts_with("HTTP/1.1 ")
}

#[test]
fn a_socket_that_no_listener_has_is_named() {
    let folder = Folder::new("passed-other");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let configuration = configured(&folder, "127.0.0.1:0");
    let mut running = Running::spawn(&mut with_socket(socket, &configuration));
    let line = running.wait_for("not used");
    assert!(line.contains(&address), "{line}");
}

#[test]
fn a_socket_that_cannot_serve_is_an_error_with_the_remedy() {
    let folder = Folder::new("passed-datagram");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let configuration = configured(&folder, "127.0.0.1:0");
    let output = with_socket(socket, &configuration).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", output_text(&output));
    assert!(output_text(&output).contains("ListenStream"), "{}", output_text(&output));
}

#[test]
fn health_tells_a_ready_process_from_one_that_is_not_there() {
    let folder = Folder::new("health");
    let configuration = configured(&folder, "127.0.0.1:0");
    let health = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postern"));
        command.arg("health").args(more).output().unwrap()
    };
    let nobody = health(&[&configuration]);
    assert_eq!(nobody.status.code(), Some(3), "{}", output_text(&nobody));
    assert!(output_text(&nobody).contains("is the server running?"), "{}", output_text(&nobody));
    let mut running = Running::start(&["serve", "--config", &configuration]);
    running.wait_for("listening");
    for more in [&[&*configuration][..], &["--config", &configuration], &[&configuration, "--live"]] {
        let output = health(more);
        assert_eq!(output.status.code(), Some(0), "{more:?}: {}", output_text(&output));
    }
    let off = folder.write("off.toml", "[admin]\nenabled = false\n").display().to_string();
    let output = health(&[&off]);
    assert!(output_text(&output).contains("admin.enabled"), "{}", output_text(&output));
    assert_eq!(output.status.code(), Some(3));
}

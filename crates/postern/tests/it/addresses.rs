//! Addresses in use: an error, unless a process is told to take over from another one.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{Folder, Running, address_in, get, output_text, postern, sources};
use dataplane::ports::free;

/// A configuration of a gateway whose admin listener has the address `admin`.
fn written(folder: &Folder, gateway: &str, admin: &str) -> String {
    let text = std::fs::read_to_string(sources().join("sound/minimal.toml")).unwrap();
    let text = text.replace("127.0.0.1:8080", gateway)
        + &format!("\n[admin]\naddress = \"{admin}\"\n[access_log]\nformat = \"off\"\n");
    folder.write("postern.toml", text).display().to_string()
}

/// Checks that a message contains the address, the cause and both remedies.
fn names_it(text: &str, address: &str) {
    for part in [address, "in use", "ss -l", "--take-over"] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

fn served(address: &str) {
    for _ in 0..40 {
        // No service runs behind the gateway: 502 means that the route is served.
        assert!(get(address, "/").contains(" 502 "));
    }
}

/// Sends one request. `None`: no connection could be opened.
fn ask_once(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn a_second_process_is_refused_and_the_first_one_has_every_request() {
    let folder = Folder::new("second");
    let mut first = Running::start(&["serve", "--config", &written(&folder, "127.0.0.1:0", &free())]);
    let address = address_in(&first.wait_for("listening"), "address=");
    let port = address.rsplit_once(':').unwrap().1;
    for wanted in [address.clone(), format!("0.0.0.0:{port}")] {
        let other = Folder::new("second-other");
        let output = postern(&["serve", "--config", &written(&other, &wanted, &free())]);
        assert_eq!(output.status.code(), Some(3), "{}", output_text(&output));
        names_it(&output_text(&output), &wanted);
    }
    served(&address);
}

#[test]
fn a_process_that_takes_over_has_the_requests_once_the_first_one_ends() {
    let folder = Folder::new("take-over");
    let (admin, unix) = (free(), folder.0.join("side.sock").display().to_string());
    let file = written(&folder, &free(), &admin);
    let text = std::fs::read_to_string(&file).unwrap();
    let side = format!("{text}\n[[listener]]\nname = \"side\"\naddress = \"unix:{unix}\"\n");
    std::fs::write(&file, side).unwrap();
    let mut first = Running::start(&["serve", "--config", &file]);
    let address = address_in(&first.wait_for("listener=\"web\""), "address=");
    // The same file, with ports, admin listener and Unix socket.
    let mut second = Running::start(&["serve", "--take-over", "--config", &file]);
    second.wait_for("listener=\"web\"");
    served(&address);
    first.signal("-TERM");
    assert_eq!(first.ended(), Some(0));
    served(&address);
    assert!(get(&admin, "/readyz").contains(" 200 "));
    assert!(std::os::unix::net::UnixStream::connect(&unix).is_ok());
}

#[test]
fn a_port_of_somebody_who_does_not_share_it_is_taken_over_by_nobody() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = Folder::new("unshared");
    let output = postern(&["serve", "--take-over", "--config", &written(&folder, &address, &free())]);
    assert_eq!(output.status.code(), Some(3));
    assert!(output_text(&output).contains("of this user"), "{}", output_text(&output));
}

#[test]
fn admin_listener_provider_and_unix_socket_are_as_exclusive() {
    let folder = Folder::new("others");
    let (admin, provider) = (free(), free());
    let unix = folder.0.join("a.sock").display().to_string();
    let text = |admin: &str, provider: &str, unix: &str, database: &str| {
        let minimal = std::fs::read_to_string(sources().join("sound/minimal.toml")).unwrap();
        minimal.replace("127.0.0.1:8080", &format!("unix:{unix}"))
            + &format!(
                "\n[admin]\naddress = \"{admin}\"\n[access_log]\nformat = \"off\"\n[provider]\n\
                 issuer = \"http://{provider}\"\naddress = \"{provider}\"\n\
                 database = \"sqlite://{database}?mode=rwc\"\n"
            )
    };
    let file = folder.write("first.toml", text(&admin, &provider, &unix, "first.db")).display().to_string();
    let mut first = Running::start(&["serve", "--config", &file]);
    first.wait_for("provider listening");
    for (own, at) in [
        (text(&admin, &free(), &format!("{unix}.1"), "1.db"), &admin),
        (text(&free(), &provider, &format!("{unix}.2"), "2.db"), &provider),
        (text(&free(), &free(), &unix, "3.db"), &unix),
    ] {
        let file = folder.write("other.toml", own).display().to_string();
        let output = postern(&["serve", "--config", &file]);
        assert_eq!(output.status.code(), Some(3), "{}", output_text(&output));
        names_it(&output_text(&output), at);
    }
    // A socket file of a killed process does not prevent a start.
    first.signal("-KILL");
    first.ended();
    let mut again = Running::start(&["serve", "--config", &file]);
    again.wait_for("provider listening");
}

#[test]
fn a_reload_shares_no_address_with_another_process_and_keeps_its_own() {
    let folder = Folder::new("reloaded");
    let (admin, own) = (free(), free());
    let other = Folder::new("reloaded-other");
    let mut stranger = Running::start(&["serve", "--config", &written(&other, "127.0.0.1:0", &free())]);
    let taken = address_in(&stranger.wait_for("listening"), "address=");
    let file = written(&folder, &own, &admin);
    let mut process = Running::start(&["serve", "--config", &file]);
    process.wait_for("listening");
    written(&folder, &taken, &admin);
    process.signal("-HUP");
    names_it(&process.wait_for("configuration not applied"), &taken);
    served(&own);
    // Change to a wider address and back. The process's own sockets do not conflict, closed or not.
    let wide = own.replace("127.0.0.1", "0.0.0.0");
    for at in [&wide, &own, &wide, &own] {
        written(&folder, at, &admin);
        process.signal("-HUP");
        process.wait_for("configuration applied");
        // Connections in the queue of a closed socket are reset.
        let until = Instant::now() + Duration::from_secs(20);
        while ask_once(&own).is_none_or(|answer| !answer.contains(" 502 ")) {
            assert!(Instant::now() < until, "nobody listens at {at}");
        }
    }
}

#[test]
fn a_demo_that_was_told_its_port_has_it_or_none() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = postern(&["demo", "--port", &port]);
    assert_eq!(output.status.code(), Some(3), "{}", output_text(&output));
    let text = output_text(&output);
    assert!(text.contains(&port) && text.contains("ss -l") && text.contains("--port"), "{text}");
    let output = postern(&["demo", "--port", "65533"]);
    assert!(output_text(&output).contains("choose at most 65532"), "{}", output_text(&output));
}

#[test]
fn a_demo_that_was_told_no_port_says_where_it_went() {
    // Another program may already use the port. It is in use either way.
    let _taken = TcpListener::bind("127.0.0.1:8080");
    let mut demo = Running::start(&["demo"]);
    let line = demo.wait_for("Already in use");
    assert!(line.contains("8080"), "{line}");
}

#[test]
fn an_echo_does_not_share_its_port_with_another_one() {
    let mut first = Running::start(&["echo", "--listen", "127.0.0.1:0"]);
    let address = address_in(&first.wait_for("listens on"), "listens on http://");
    let output = postern(&["echo", "--listen", &address]);
    assert_eq!(output.status.code(), Some(3), "{}", output_text(&output));
    assert!(output_text(&output).contains(&address), "{}", output_text(&output));
}

//! `postern demo`.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Folder, Running, exchange, output_text, postern};
use dataplane::ports::free;

#[test]
fn the_tour_goes_as_expected() {
    let output = postern(&["demo", "--check"]);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let text = output_text(&output);
    assert!(text.contains("as expected") && !text.contains('✗'), "{text}");
}

#[test]
fn the_configuration_it_runs_on_can_be_seen() {
    let output = postern(&["demo", "--print-config"]);
    assert!(output_text(&output).contains("[[route]]"));
}

/// The first of four consecutive free ports.
fn four_free_ports() -> u16 {
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let first = free().rsplit(':').next().and_then(|port| port.parse().ok()).unwrap();
        if (first + 1..first + 4).all(is_free) {
            return first;
        }
    }
}

fn get(address: &str, path: &str, fields: &str) -> String {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{fields}\r\n"))
}

#[test]
fn it_can_be_kept_as_files_and_served() {
    let folder = Folder::new("demo");
    let kept = folder.0.join("kept");
    let (kept, first) = (kept.to_str().unwrap(), four_free_ports());
    let port = first.to_string();
    let write = ["demo", "--write", kept, "--port", port.as_str()];
    let output = postern(&write);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for said in ["serve", "echo --reflect --page", "ada  with the password", "ben  with the password"] {
        assert!(text.contains(said), "{said} is missing: {text}");
    }
    for secret in
        ["login.keys", "web.secret", "shop.secret", "office.secret", "provider.db", "provider.db.secret"]
    {
        let mode = std::fs::metadata(format!("{kept}/{secret}")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
    let config = format!("{kept}/postern.toml");
    assert_eq!(postern(&["check", &config]).status.code(), Some(0));

    let [gateway, provider, service] = [0, 1, 2].map(|offset| format!("127.0.0.1:{}", first + offset));
    let _echo = Running::start(&["echo", "--reflect", "--page", "--listen", &service]);
    let mut serving = Running::start(&["serve", &config]);
    serving.wait_for("provider listening");
    let page = get(&gateway, "/", "Accept: text/html\r\n");
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("Four requests a second"), "{page}");
    let reflection = get(&gateway, "/", "Accept: application/json\r\n");
    assert!(reflection.contains("\"method\": \"GET\""), "{reflection}");
    let refused = get(&gateway, "/orders", "");
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let login = get(&gateway, "/orders", "Accept: text/html\r\n");
    assert!(login.starts_with("HTTP/1.1 302 "), "{login}");
    let secret = format!("@{kept}/shop.secret");
    let issuer = format!("http://{provider}");
    let token = postern(&["token", "--issuer", &issuer, "--client-id", "shop", "--client-secret", &secret]);
    let bearer = format!("Authorization: Bearer {}\r\n", output_text(&token).trim());
    let admitted = get(&gateway, "/orders", &bearer);
    assert!(admitted.starts_with("HTTP/1.1 200 "), "{admitted}");
    let disabled = postern(&["admin", &config, "user", "disable", "ben"]);
    assert_eq!(disabled.status.code(), Some(0), "{}", output_text(&disabled));

    let again = postern(&write);
    assert_eq!(again.status.code(), Some(3));
    assert!(output_text(&again).contains("exists, and nothing is written"), "{}", output_text(&again));
}

#[test]
fn files_need_ports_that_are_known() {
    let output = postern(&["demo", "--write", "nowhere", "--port", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output_text(&output).contains("`--port`"), "{}", output_text(&output));
    assert!(!std::path::Path::new("nowhere").exists());
}

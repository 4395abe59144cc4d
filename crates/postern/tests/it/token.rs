//! `postern token`, and the three requests that the demo prints.

use crate::support::{Folder, Running, address_in, exchange, get, output_text, postern};

/// A running demo: its token command and its addresses.
struct Demo {
    _process: Running,
    token: Vec<String>,
    provider: String,
    gateway: String,
}

impl Demo {
    fn start() -> Self {
        let mut process = Running::start(&["demo", "--port", "0"]);
        let gateway = address_in(&process.wait_for("http://"), "http://");
        let provider = address_in(&process.wait_for("http://"), "http://");
        let line = process.wait_for("TOKEN=$(");
        let command = line.split_once("$(").unwrap().1.trim_end_matches(')');
        let token = command.split(' ').skip(1).map(str::to_owned).collect();
        process.wait_for("Ctrl-C");
        Self { _process: process, token, provider, gateway }
    }

    fn token(&self, more: &[&str]) -> std::process::Output {
        let arguments: Vec<&str> =
            self.token.iter().map(String::as_str).chain(more.iter().copied()).collect();
        postern(&arguments)
    }
}

#[test]
fn the_requests_that_the_demo_prints_answer_as_it_says() {
    let demo = Demo::start();
    let output = demo.token(&[]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", output_text(&output));
    let token = output_text(&output).trim().to_owned();
    assert_eq!(token.split('.').count(), 3, "only the token is printed: {token}");
    let request = |method: &str, path: &str| {
        let head =
            format!("Host: {}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n", demo.gateway);
        exchange(&demo.gateway, &format!("{method} {path} HTTP/1.1\r\n{head}\r\n"))
    };
    assert!(request("GET", "/orders").starts_with("HTTP/1.1 200 "));
    assert!(get(&demo.gateway, "/orders").starts_with("HTTP/1.1 401 "));
    assert!(request("DELETE", "/orders/7").starts_with("HTTP/1.1 403 "));
}

#[test]
fn tokens_are_decoded() {
    let demo = Demo::start();
    let decoded = output_text(&demo.token(&["--decode"]));
    assert!(decoded.contains("header\n") && decoded.contains("\"ES256\""), "{decoded}");
    assert!(decoded.contains("\"orders\"") && decoded.contains("  in "), "{decoded}");
    let token = output_text(&demo.token(&[]));
    let folder = Folder::new("decode");
    let file = format!("@{}", folder.write("token", token).display());
    assert!(output_text(&postern(&["token", "--decode", "--token", &file])).contains("\"ES256\""));
    // A token of another issuer may begin with a hyphen.
    for opaque in ["opaque", "-abc.def"] {
        let output = postern(&["token", "--decode", "--token", opaque]);
        assert_eq!(output.status.code(), Some(1), "{opaque}: {}", output_text(&output));
        assert!(output_text(&output).contains("not a JWT"), "{opaque}: {}", output_text(&output));
    }
}

#[test]
fn refusals_and_failures_are_told_apart() {
    let demo = Demo::start();
    let issuer = format!("http://{}", demo.provider);
    let client = |issuer: &str, secret: &str, more: &[&str]| {
        let mut arguments =
            vec!["token", "--issuer", issuer, "--client-id", "shop", "--client-secret", secret];
        arguments.extend(more);
        let output = postern(&arguments);
        (output.status.code(), output_text(&output))
    };
    let (code, text) = client(&issuer, "wrong", &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("invalid_client") && text.contains("--client-secret"), "{text}");
    let secret = demo.token.last().unwrap().clone();
    let (code, text) = client(&issuer, &secret, &["--scope", "orders:write"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("invalid_scope") && text.contains("--scope"), "{text}");
    let (code, text) = client(&format!("{issuer}/"), &secret, &[]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("write exactly this issuer"), "{text}");
    let (code, text) = client("http://127.0.0.1:1", &secret, &[]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("is the server running?"), "{text}");
    let (code, text) = client(&format!("http://{}", demo.gateway), &secret, &[]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("answered 404") && text.contains("--endpoint"), "{text}");
    let (code, text) = client("id.example", &secret, &[]);
    assert_eq!(code, Some(3), "{text}");
    assert!(!text.contains(&secret), "{text}");
}

#[test]
fn a_secret_is_not_sent_in_clear_text_to_another_machine() {
    // No server answers there: an address for documentation (RFC 5737).
    let ask = |more: &[&str]| {
        let mut arguments = vec!["token", "--client-id", "shop", "--client-secret", "hidden"];
        arguments.extend(more);
        let output = postern(&arguments);
        (output.status.code(), output_text(&output))
    };
    let (code, text) = ask(&["--endpoint", "http://192.0.2.1/token"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.contains("plain text") && text.contains("--insecure-http") && !text.contains("hidden"),
        "{text}"
    );
}

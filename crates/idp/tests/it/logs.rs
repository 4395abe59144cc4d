//! Log lines of requests, and secrets that must never be in them.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use tracing_subscriber::fmt::MakeWriter;

use crate::{
    server::{NEXT_SECRET, SECRET, Server, decode_unverified},
    wire::{basic, encode},
};

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Returns the lines since the last call.
    pub(crate) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn one_line_for_each_refusal_and_no_secret_in_any() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    // With only one subscriber in the process, a log line that another test's thread reaches first
    // is disabled for all threads.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start().await;
    log.take();

    let token = server.access_token().await;
    let issued = log.take();
    let jti = decode_unverified(&token).1["jti"].as_str().unwrap().to_owned();
    assert!(
        issued.contains("token issued") && issued.contains("client=\"orders\"") && issued.contains(&jti),
        "{issued}"
    );

    let post = |id: &str, secret: &str| {
        format!("grant_type=client_credentials&client_id={id}&client_secret={secret}")
    };
    let wrong = format!("{SECRET}x");
    let right = basic("orders", SECRET);
    let bearer = format!("Bearer {token}");
    let refusals = [
        (server.token_of("orders", &wrong, "").await, "WARN", "wrong secret for client \"orders\""),
        (server.token_of("nobody", &wrong, "").await, "WARN", "unknown client \"nobody\""),
        (server.post(&[], &post(SECRET, "orders")).await, "WARN", "withheld"),
        (
            server.post(&[("Authorization", &right)], &post("orders", SECRET)).await,
            "INFO",
            "more than one client",
        ),
        (
            server.post(&[("Authorization", &bearer)], "grant_type=client_credentials").await,
            "INFO",
            "not supported",
        ),
        (
            server.token(&format!("&client_secret=&client_secret={SECRET}")).await,
            "INFO",
            "sent more than once",
        ),
        (server.token("&scope=admin%1b").await, "INFO", "control character"),
        (server.token("&scope=admin").await, "INFO", "scope \"admin\""),
        (server.get("/token").await, "DEBUG", "method not allowed"),
    ];
    let refused = log.take();
    for (answer, level, reason) in &refusals {
        assert!(answer.status >= 400);
        let line = refused
            .lines()
            .find(|l| l.contains(reason))
            .unwrap_or_else(|| panic!("no {reason:?}: {refused}"));
        assert!(line.contains(level), "{line}");
    }
    assert_eq!(refused.lines().count(), refusals.len(), "one line each: {refused}");
    let all = issued + &refused;
    let credentials = right.strip_prefix("Basic ").unwrap();
    for secret in [SECRET, NEXT_SECRET, &encode(SECRET), credentials, &token] {
        assert!(!all.contains(secret), "{all}");
    }
    assert!(!all.contains('\u{1b}'), "no control character reaches the log");
}

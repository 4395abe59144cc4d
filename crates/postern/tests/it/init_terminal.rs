//! `postern init` with somebody at the terminal: a pseudo-terminal, which `script` of util-linux
//! opens.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::Folder;

const WHO: &str =
    "who identifies the callers (keycloak, entra, okta, google, dex, openshift, kubernetes, own): ";
const UPSTREAM: &str = "URL of the service to protect: ";
/// What a terminal sends for Ctrl-D.
const END_OF_INPUT: &str = "\u{4}";
/// Longest time for a question.
const PATIENCE: Duration = Duration::from_mins(1);

/// A terminal in which the command runs.
struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    screen: Receiver<Vec<u8>>,
    /// What the screen shows after the last question.
    rest: String,
}

impl Terminal {
    fn init(folder: &Folder, flags: &str) -> Self {
        let line = format!("'{}' init {flags}", env!("CARGO_BIN_EXE_postern"));
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        command.current_dir(&folder.0).env("SHELL", "/bin/sh").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("`script` of util-linux is not installed");
        let (keyboard, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count) = output.read(&mut bytes) {
                if count == 0 || sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keyboard, screen, rest: String::new() }
    }

    /// Waits for a question, which is the next one, and answers it.
    fn answer(&mut self, question: &str, answer: &str) {
        while !self.rest.contains(question) {
            let shown = self.screen.recv_timeout(PATIENCE);
            let shown = shown.unwrap_or_else(|_| panic!("{question:?} is not asked: {:?}", self.rest));
            self.rest += &String::from_utf8(shown).unwrap();
        }
        let (before, after) = self.rest.split_once(question).unwrap();
        assert!(!before.contains(": "), "another question comes before {question:?}: {before:?}");
        self.rest = after.to_owned();
        self.keyboard.write_all(answer.as_bytes()).unwrap();
    }

    /// Waits for the end. Returns the exit code, and what the screen shows after the last question.
    fn end(mut self) -> (Option<i32>, String) {
        while let Ok(shown) = self.screen.recv_timeout(PATIENCE) {
            self.rest += &String::from_utf8(shown).unwrap();
        }
        let status = self.child.wait().unwrap();
        (status.code(), std::mem::take(&mut self.rest))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_empty(folder: &Folder) -> bool {
    std::fs::read_dir(&folder.0).unwrap().next().is_none()
}

#[test]
fn what_no_flag_says_is_asked_in_order_and_an_empty_answer_repeats_the_question() {
    let folder = Folder::new("init-terminal");
    folder.write("secret", "a-secret-of-some-length");
    let mut terminal = Terminal::init(&folder, "--url https://app.example");
    terminal.answer(WHO, "Keycloak\n");
    terminal.answer(UPSTREAM, "\n");
    terminal.answer(UPSTREAM, "  http://127.0.0.1:3000 \n");
    let issuer = "URL of the provider, such as https://sso.example/realms/NAME: ";
    terminal.answer(issuer, "https://sso.example/realms/staff\n");
    terminal.answer("id of the client that is registered at the provider: ", "notebooks\n");
    terminal.answer("file with the secret of that client: ", "secret\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    let text = std::fs::read_to_string(folder.0.join("postern.toml")).unwrap();
    for given in
        ["http://127.0.0.1:3000\"", "https://sso.example/realms/staff\"", "\"notebooks\"", "/secret\""]
    {
        assert!(text.contains(given), "{given}: {text}");
    }
}

#[test]
fn a_value_with_a_default_is_not_asked_for() {
    let folder = Folder::new("init-terminal-own");
    let mut terminal = Terminal::init(&folder, "");
    terminal.answer(WHO, "own\n");
    terminal.answer(UPSTREAM, "http://127.0.0.1:3000\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    let text = std::fs::read_to_string(folder.0.join("postern.toml")).unwrap();
    assert!(text.contains("http://localhost:8080") && text.contains("\"app\""), "{text}");
}

#[test]
fn an_unknown_provider_is_refused_with_the_known_ones() {
    let folder = Folder::new("init-terminal-unknown");
    let mut terminal = Terminal::init(&folder, "");
    terminal.answer(WHO, "keyclock\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("--for keyclock: it is one of keycloak, entra, okta"), "{shown}");
    assert!(is_empty(&folder), "nothing is written");
}

#[test]
fn the_end_of_input_names_the_flag_in_its_own_line_and_writes_nothing() {
    let folder = Folder::new("init-terminal-end");
    let mut terminal = Terminal::init(&folder, "--for own");
    terminal.answer(UPSTREAM, END_OF_INPUT);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(2), "{shown}");
    let last = shown.trim_end().lines().last().unwrap_or_default();
    assert!(last.contains("give --upstream: URL of the service to protect"), "{shown:?}");
    assert!(shown.contains("\r\n\u{1b}[1m\u{1b}[31merror") || shown.contains("\nerror"), "{shown:?}");
    assert!(is_empty(&folder), "nothing is written");
}

//! What released versions have written is read by this one.
//!
//! Each folder in `releases` was filled by one version (`dev/keep-release`), with a folder for each
//! kind of database: its content, cookies of sessions, tokens. This version serves a copy of it, at
//! the time at which it was filled.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use dataplane::harness::{now, until};
use serde_json::Value;

use crate::support::{Folder, Running, database_of_its_own, exchange, output_text, postern, repository};

/// Addresses in every folder. Tokens and cookies contain them.
const GATEWAY: &str = "127.0.0.1:29918";
/// The gateway whose sessions are in cookies alone.
const SEALING: &str = "127.0.0.1:29921";
const PROVIDER: &str = "127.0.0.1:29917";
const SERVICE: &str = "127.0.0.1:29919";

/// Held by the test that uses these addresses.
static ADDRESSES: Mutex<()> = Mutex::new(());

#[test]
fn sessions_tokens_and_revocations_of_released_versions_stay_in_sqlite() {
    serve_each("sqlite", |_, _| ());
}

#[test]
fn sessions_tokens_and_revocations_of_released_versions_stay_in_postgresql() {
    serve_each("postgres", |folder, at| {
        let (url, _) = database_of_its_own(&format!("release_{at}"));
        let mut command = Command::new("psql");
        command.args([&url, "-qX1", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null", "-f"]);
        let restored = command.arg(folder.0.join("database.sql")).output().unwrap();
        assert!(restored.status.success(), "{}", output_text(&restored));
        write_secret(folder, "database.url", &url);
    });
}

/// Serves what each release kept with one kind of database. `restore` makes the database, if it is not
/// a file of the folder.
fn serve_each(database: &str, restore: impl Fn(&Folder, usize)) {
    let releases = repository().join("crates/postern/tests/it/releases");
    let mut releases: Vec<_> =
        std::fs::read_dir(releases).unwrap().map(|entry| entry.unwrap().path()).collect();
    releases.sort();
    assert!(!releases.is_empty(), "no release is kept");
    // A failed test is no reason for the other to fail.
    let _addresses = ADDRESSES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _service = Running::start(&["echo", "--reflect", "--listen", SERVICE]);
    for (at, release) in releases.iter().enumerate() {
        let folder = copy(&release.join(database));
        restore(&folder, at);
        Release::new(release, database, &folder).serve();
    }
}

/// Copies a folder. Secrets must be for their owner alone, and a version control system does not
/// keep permissions.
fn copy(from: &Path) -> Folder {
    let folder = Folder::new("release");
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = folder.0.join(entry.file_name());
        std::fs::copy(entry.path(), &to).unwrap();
        only_for_owner(&to);
    }
    folder
}

fn write_secret(folder: &Folder, name: &str, text: &str) {
    only_for_owner(&folder.write(name, text));
}

fn only_for_owner(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A copy of what a release kept.
struct Release {
    /// For messages.
    name: String,
    kept: Value,
    config: String,
    /// Configuration of the gateway whose sessions are in cookies alone.
    sealing: String,
    /// Shift of the clock to the time of the folder.
    clock: PathBuf,
}

impl Release {
    fn new(release: &Path, database: &str, folder: &Folder) -> Self {
        let name = release.file_name().unwrap().to_str().unwrap();
        let kept: Value =
            serde_json::from_slice(&std::fs::read(folder.0.join("kept.json")).unwrap()).unwrap();
        assert_eq!(kept["release"], name, "the folder has the name of its release");
        let shift = kept["time"].as_i64().unwrap() - i64::try_from(now()).unwrap();
        let path = |file: &str| folder.0.join(file).to_str().unwrap().to_owned();
        Self {
            name: format!("{name}, {database}"),
            config: path("postern.toml"),
            sealing: path("sealed.toml"),
            clock: folder.write("clock", format!("{shift:+}")),
            kept,
        }
    }

    /// A member of `kept.json`.
    fn text(&self, member: &str) -> &str {
        self.kept[member].as_str().unwrap_or_else(|| panic!("{}: no {member}", self.name))
    }

    fn serve(&self) {
        let name = &self.name;
        for config in [&self.config, &self.sealing] {
            let checked = postern(&["check", config]);
            assert_eq!(checked.status.code(), Some(0), "{name}: {}", output_text(&checked));
        }
        let mut serving = Running::start_with_clock(&self.clock, &["serve", &self.config]);
        serving.wait_for("provider listening");
        let mut sealing = Running::start_with_clock(&self.clock, &["serve", &self.sealing]);
        sealing.wait_for("listening");

        self.credentials_stay();
        self.sessions_end_with_their_user();
        let keys = exchange(
            PROVIDER,
            &format!("GET /jwks HTTP/1.1\r\nHost: {PROVIDER}\r\nConnection: close\r\n\r\n"),
        );
        assert!(keys.starts_with("HTTP/1.1 200 "), "{name}: {keys}");
        for process in [&mut sealing, &mut serving] {
            process.signal("-TERM");
            assert_eq!(process.ended(), Some(0), "{name}: {}", process.output());
        }

        let audit = postern(&["admin", &self.config, "audit", "verify"]);
        assert_eq!(audit.status.code(), Some(0), "{name}: {}", output_text(&audit));
        let members = postern(&["admin", &self.config, "group", "members", "staff"]);
        assert!(output_text(&members).contains("ada@example.com"), "{name}: {}", output_text(&members));
    }

    /// Credentials are accepted, unless they were revoked before, or are altered.
    fn credentials_stay(&self) {
        let name = &self.name;
        // A gateway elsewhere does not know what is revoked until it has read the provider's log.
        until("the log is read", || status(&with_cookie(SEALING, self.text("sealed"))) != "503");
        for (gateway, member) in [(GATEWAY, "cookie"), (SEALING, "sealed")] {
            let session = with_cookie(gateway, self.text(member));
            assert_eq!(status(&session), "200", "{name}, {member}: {session}");
            assert!(session.contains("ada@example.com"), "{name}, {member}: {session}");
            let altered = with_cookie(gateway, &altered(self.text(member)));
            assert_eq!(status(&altered), "401", "{name}, altered {member}: {altered}");
        }
        let revoked = with_cookie(SEALING, self.text("sealed_revoked"));
        assert_eq!(status(&revoked), "401", "{name}: {revoked}");
        for (member, wanted) in [("jwt", "200"), ("opaque", "200"), ("revoked", "401")] {
            let answer = get(GATEWAY, &format!("Authorization: Bearer {}", self.text(member)));
            assert_eq!(status(&answer), wanted, "{name}, {member}: {answer}");
        }
    }

    /// What this version revokes ends sessions that the release began.
    fn sessions_end_with_their_user(&self) {
        let disable = ["admin", &self.config, "user", "disable", "ada"];
        let mut disabling = Running::start_with_clock(&self.clock, &disable);
        assert_eq!(disabling.ended(), Some(0), "{}: {}", self.name, disabling.output());
        for (gateway, member) in [(GATEWAY, "cookie"), (SEALING, "sealed")] {
            until(member, || status(&with_cookie(gateway, self.text(member))) == "401");
        }
    }
}

/// The answer to a program that is no browser: without a session it is not sent to the provider.
fn get(gateway: &str, field: &str) -> String {
    exchange(gateway, &format!("GET / HTTP/1.1\r\nHost: {gateway}\r\nConnection: close\r\n{field}\r\n\r\n"))
}

fn with_cookie(gateway: &str, cookies: &str) -> String {
    get(gateway, &format!("Cookie: {cookies}"))
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// The cookies with another character in the middle of the session's.
fn altered(cookies: &str) -> String {
    let session = cookies.split("; ").find(|cookie| cookie.starts_with("postern=")).expect("a session");
    let at = session.len() / 2;
    let mut altered = session.to_owned();
    altered.replace_range(at..=at, if session[at..].starts_with('A') { "B" } else { "A" });
    cookies.replace(session, &altered)
}

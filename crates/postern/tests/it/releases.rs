//! What released versions have written is read by this one.
//!
//! Each folder in `releases` was filled by one version (`dev/keep-release`): databases, a session's
//! cookie, tokens. This version serves a copy of it, at the time at which it was filled.

use std::path::Path;

use serde_json::Value;

use crate::support::{Folder, Running, exchange, output_text, postern, repository};

/// Address of the gateway in every folder. Tokens and cookies contain addresses.
const GATEWAY: &str = "127.0.0.1:29918";
const PROVIDER: &str = "127.0.0.1:29917";
const SERVICE: &str = "127.0.0.1:29919";

#[test]
fn sessions_tokens_and_revocations_of_released_versions_stay() {
    let releases = repository().join("crates/postern/tests/it/releases");
    let mut folders: Vec<_> =
        std::fs::read_dir(releases).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert!(!folders.is_empty(), "no release is kept");
    let _service = Running::start(&["echo", "--reflect", "--listen", SERVICE]);
    for folder in folders {
        serve_release(&folder);
    }
}

/// Copies the folder of a release. Secrets must be for their owner alone, and a version control
/// system does not keep permissions.
fn copy(from: &Path) -> Folder {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("release");
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = folder.0.join(entry.file_name());
        std::fs::copy(entry.path(), &to).unwrap();
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    folder
}

fn serve_release(release: &Path) {
    let name = release.file_name().unwrap().to_string_lossy().into_owned();
    let folder = copy(release);
    let kept: Value = serde_json::from_slice(&std::fs::read(folder.0.join("kept.json")).unwrap()).unwrap();
    let text =
        |member: &str| kept[member].as_str().unwrap_or_else(|| panic!("{name}: no {member}")).to_owned();
    let config = folder.0.join("postern.toml");
    let config = config.to_str().unwrap();
    let checked = postern(&["check", config]);
    assert_eq!(checked.status.code(), Some(0), "{name}: {}", output_text(&checked));

    let clock = folder.write("clock", format!("@{}", text("time")));
    let mut serving = Running::start_with_clock(&clock, &["serve", config]);
    serving.wait_for("provider listening");
    let get = |fields: &str| {
        exchange(
            GATEWAY,
            &format!("GET / HTTP/1.1\r\nHost: {GATEWAY}\r\nConnection: close\r\n{fields}\r\n\r\n"),
        )
    };
    let session = get(&format!("Accept: text/html\r\nCookie: {}", text("cookie")));
    assert!(session.starts_with("HTTP/1.1 200 ") && session.contains("ada@example.com"), "{name}: {session}");
    for (member, status) in [("jwt", 200), ("opaque", 200), ("revoked", 401)] {
        let answer = get(&format!("Authorization: Bearer {}", text(member)));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name}, {member}: {answer}");
    }
    let keys =
        exchange(PROVIDER, &format!("GET /jwks HTTP/1.1\r\nHost: {PROVIDER}\r\nConnection: close\r\n\r\n"));
    assert!(keys.starts_with("HTTP/1.1 200 "), "{name}: {keys}");
    serving.signal("-TERM");
    assert_eq!(serving.ended(), Some(0), "{name}: {}", serving.output());

    let audit = postern(&["admin", config, "audit", "verify"]);
    assert_eq!(audit.status.code(), Some(0), "{name}: {}", output_text(&audit));
    let members = postern(&["admin", config, "group", "members", "staff"]);
    assert!(output_text(&members).contains("ada@example.com"), "{name}: {}", output_text(&members));
}

//! Data of an earlier build: its database opens, and its backup is restored.
//!
//! `former/` has both, made by the build dfde5c13 with `postern admin` and `postern serve`: a user
//! `ada`, a client `desk`, a group `staff`, and the tokens of one sign-in.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use dataplane::ports::free;

use crate::support::{Folder, Running, exchange, get, output_text, postern};

const DATABASE: &[u8] = include_bytes!("former/postern.db.gz");
const SECRET: &str = include_str!("former/postern.db.secret");
const BACKUP: &str = include_str!("former/postern.backup");
/// Secret of the client `desk`.
const DESK: &str = "pcs_8F-Q_x1h9XIW4Raap20QFsaoMI4PA8sAME31M4-7_6Q";
/// Password of the user `ada`.
const PASSWORD: &str = "correct+horse+battery+staple+7";
/// The key that signed with ES256.
const KEY: &str = "siOIN0tEsQoFzSZdBn5tjvuH6TXlXEAkTGppcVxwoTk";
/// Digest of the last entry of the audit log.
const AUDIT: &str = "178564a0f12a979bff12b1ce73866d2be3b2b3eb750f66e11f0347aef508c786";

/// A provider on former data.
struct Former {
    folder: Folder,
    address: String,
}

impl Former {
    fn new(name: &str) -> Self {
        let (folder, address) = (Folder::new(name), free());
        let secret = folder.write("postern.db.secret", SECRET);
        std::fs::set_permissions(secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        folder.write(
            "postern.toml",
            format!(
                "[admin]\nenabled = false\n[provider]\nissuer = \"http://127.0.0.1:9471\"\naddress = \"{address}\"\n\
                 audiences = [\"orders\"]\ndatabase = \"sqlite://postern.db?mode=rwc\"\n"
            ),
        );
        Self { folder, address }
    }

    fn file(&self) -> PathBuf {
        self.folder.0.join("postern.toml")
    }

    fn admin(&self, arguments: &[&str]) -> String {
        let file = self.file();
        let output = postern(&[&["admin", "--config", file.to_str().unwrap()], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", output_text(&output));
        output_text(&output)
    }

    /// Everything that was stored is there, and works.
    fn works(&self) {
        assert!(self.admin(&["audit", "verify"]).contains(AUDIT));
        assert!(self.admin(&["user", "show", "ada"]).contains("ada@example.com"));
        assert!(self.admin(&["group", "list"]).contains("staff"));
        let mut process = Running::start(&["serve", "--config", self.file().to_str().unwrap()]);
        process.wait_for("provider listening");
        assert!(get(&self.address, "/jwks").contains(KEY), "the signing keys opened");
        let body = format!(
            "grant_type=password&username=ada&password={PASSWORD}&scope=openid&client_id=desk&client_secret={DESK}"
        );
        let answer = exchange(
            &self.address,
            &format!(
                "POST /token HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                self.address,
                body.len()
            ),
        );
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"access_token\""), "{answer}");
    }
}

#[test]
fn a_database_of_an_earlier_build_opens() {
    let former = Former::new("former-database");
    let mut database = Vec::new();
    flate2::read::GzDecoder::new(DATABASE).read_to_end(&mut database).unwrap();
    former.folder.write("postern.db", database);
    former.works();
}

#[test]
fn a_backup_of_an_earlier_build_is_restored() {
    let former = Former::new("former-backup");
    let backup = former.folder.write("postern.backup", BACKUP);
    former.admin(&["restore", backup.to_str().unwrap()]);
    assert!(former.admin(&["user", "show", "ada"]).contains("ada@example.com"));
    assert!(former.admin(&["audit", "verify"]).contains("entries"));
}

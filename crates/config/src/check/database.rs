//! Checks the keys that locate a database: `database` and `database_file`.

mod server;

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use coherence::transport::postgres;

use super::super::fault::KeyPath;
use super::Context;
use crate::version::version;

/// Connection settings of a database. `Debug` does not show the URL, because it may contain a
/// password.
#[derive(Clone)]
pub struct DatabaseSettings {
    /// URL in the form that [`store::Store::open`] takes.
    pub url: String,
    /// Path of the database file. `None`: not SQLite.
    pub file: Option<PathBuf>,
    /// How the database carries messages between its nodes. `None`: not PostgreSQL.
    pub messages: Option<postgres::PostgresConfig>,
    /// Digest of the TLS files that the URL names.
    tls_version: u64,
}

impl fmt::Debug for DatabaseSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("file", &self.file).finish_non_exhaustive()
    }
}

impl DatabaseSettings {
    /// Settings for an SQLite file. It is created if it does not exist.
    pub fn from_file(file: &Path) -> Self {
        Self { url: store::sqlite_url(file), file: Some(file.to_owned()), messages: None, tls_version: 0 }
    }

    /// Digest that changes with the URL or a file that the URL names.
    pub(crate) fn version(&self) -> u64 {
        version([self.url.as_bytes(), &self.tls_version.to_be_bytes()])
    }
}

const URL_HINT: &str = "such as \"sqlite:///var/lib/postern/postern.db?mode=rwc\" or \
                        \"postgres://postern@db.example/postern\"";

/// The keys that locate a database: `database` or `database_file`.
pub(super) struct DatabaseKeys<'a> {
    pub(super) url: Option<&'a str>,
    pub(super) file: Option<&'a Path>,
    /// Path of the table that contains the keys.
    pub(super) path: &'a KeyPath,
}

impl DatabaseKeys<'_> {
    /// Checks the keys. `None` when a fault was noted.
    pub(super) fn check(&self, context: &mut Context<'_>) -> Option<DatabaseSettings> {
        let (url, at) = self.url(context)?;
        match url.split_once(':') {
            Some(("postgres" | "postgresql", _)) => server::check(&url, &at, context),
            Some(("sqlite", rest)) => sqlite(rest, &at, context),
            // The text may contain a password, so the message does not show it.
            _ => {
                context.faults.add(&at, "a database's URL begins with sqlite: or postgres:", URL_HINT);
                None
            }
        }
    }

    fn url(&self, context: &mut Context<'_>) -> Option<(String, KeyPath)> {
        let (at_url, at_file) = (self.path.key("database"), self.path.key("database_file"));
        match (self.url, self.file) {
            (Some(url), None) => {
                if has_password(url) {
                    let message = "the database's URL contains a password, but this file is not secret";
                    let hint = "write the URL into a separate file, and name that with `database_file`";
                    context.faults.add(&at_url, message, hint);
                    return None;
                }
                Some((url.to_owned(), at_url))
            }
            (None, Some(file)) => {
                let read = context.read(file, &at_file)?;
                if context.reader.access(file).is_some_and(|access| access.mode & 0o007 != 0) {
                    let message = format!("{} can be read by every user of this machine", file.display());
                    context.faults.warn(
                        &at_file,
                        message,
                        "if its URL contains a password: chmod o= the file",
                    );
                }
                Some((String::from_utf8_lossy(&read).trim().to_owned(), at_file))
            }
            (Some(_), Some(_)) => {
                let message = "the database is named twice";
                context.faults.add(&at_file, message, "remove `database` or `database_file`");
                None
            }
            (None, None) => {
                context.faults.add(&at_url, "missing key `database`", URL_HINT);
                None
            }
        }
    }
}

/// Checks an SQLite URL. Relative paths are resolved against the folder of the configuration file.
fn sqlite(rest: &str, at: &KeyPath, context: &mut Context<'_>) -> Option<DatabaseSettings> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (file, query) = rest.split_once('?').unwrap_or((rest, "mode=rwc"));
    let file = postgres::percent_decode(file).filter(|file| !file.is_empty());
    let memory =
        file.as_deref().is_some_and(|file| file.starts_with(b":memory:")) || query.contains("memory");
    let Some(file) = file.filter(|_| !memory) else {
        let message = "the database is not a file, so its data would be lost";
        context.faults.add(at, message, "such as \"sqlite:///var/lib/postern/postern.db?mode=rwc\"");
        return None;
    };
    let file = context.reader.resolve(&PathBuf::from(OsString::from_vec(file)));
    warn_world_accessible(&file, at, context);
    let made = DatabaseSettings::from_file(&file);
    let url = made.url.split_once('?').map_or(made.url.as_str(), |(url, _)| url);
    Some(DatabaseSettings { url: format!("{url}?{query}"), ..made })
}

/// Warns of a database file, or a file that SQLite keeps next to it, that other users can read or
/// change.
fn warn_world_accessible(file: &Path, at: &KeyPath, context: &mut Context<'_>) {
    for beside in ["", "-wal", "-shm"] {
        let mut file = file.as_os_str().to_owned();
        file.push(beside);
        let file = PathBuf::from(file);
        if context.reader.access(&file).is_some_and(|access| access.mode & 0o007 != 0) {
            let message = format!("{} can be read or changed by every user of this machine", file.display());
            let hint = "it contains sessions, password hashes and keys: chmod o= it and the files next to it";
            context.faults.warn(at, message, hint);
            return;
        }
    }
}

/// Whether a URL contains a password, before the host or as a parameter.
fn has_password(url: &str) -> bool {
    let (before, query) = url.split_once('?').unwrap_or((url, ""));
    let rest = before.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    user.contains(':') || query.split('&').any(|pair| pair.starts_with("password="))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use auth::time::Timestamp;

    use super::super::super::files::FileSystem;
    use super::*;

    #[test]
    fn a_database_that_anybody_can_read_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let warnings = || {
            let mut context = Context::new(&FileSystem, folder.path(), Timestamp::from_secs(1_800_000_000));
            let path = KeyPath::top_level("provider");
            let stated = DatabaseKeys { url: Some("sqlite://facts.db?mode=rwc"), file: None, path: &path };
            let database = stated.check(&mut context).unwrap();
            assert_eq!(database.file, Some(folder.path().join("facts.db")));
            let report = context.faults.into_report("postern.toml", "", |_, _| 0..0);
            report.lines().collect::<Vec<_>>().join("\n")
        };
        assert_eq!(warnings(), "", "there is none yet");
        for name in ["facts.db", "facts.db-wal", "facts.db-shm"] {
            let file = folder.path().join(name);
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
            let warning = warnings();
            let expected = format!("provider.database: {} can be read", file.display());
            assert!(warning.contains(&expected) && warning.contains("chmod o="), "{warning}");
            fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
            assert_eq!(warnings(), "", "a group was chosen");
        }
    }

    #[test]
    fn passwords_in_urls_are_seen() {
        for url in ["postgres://a:b@c/d", "postgres://a@c/d?password=b", "postgresql://:b@c"] {
            assert!(has_password(url), "{url}");
        }
        for url in ["postgres://a@c:5432/d", "postgres:///d?host=/run", "sqlite:///a:b@c", "nonsense"] {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(postgres::percent_decode("a%20b").unwrap(), b"a b");
        assert_eq!(postgres::percent_decode("a%2"), None);
        assert_eq!(postgres::percent_decode("a%zz"), None);
    }
}

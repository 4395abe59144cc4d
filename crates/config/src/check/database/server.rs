//! PostgreSQL database: checks its URL and reads the TLS files that the URL names.
//!
//! Two clients connect to the database: `store` for its data, and `coherence` for messages between
//! nodes. Both get the same settings. Each gets the URL as [`PostgresUrl::text`] writes it; the
//! second also gets the TLS settings of the URL.

use coherence::transport::postgres::{PostgresConfig, PostgresUrl, PostgresUrlError, TlsMode, Trust};
use http_engine::tls::Protocols;

use super::super::super::fault::KeyPath;
use super::super::Context;
use super::super::tls::{Client, KeyNames, Roots};
use super::DatabaseSettings;

/// Names of the URL's parameters for the files.
const KEYS: KeyNames = KeyNames { ca: "sslrootcert", certificate: "sslcert", key: "sslkey" };

/// Checks the URL. `None` when a fault was noted. `at` is the path of the URL, or of the key that
/// names its file.
pub(super) fn check(text: &str, at: &KeyPath, context: &mut Context<'_>) -> Option<DatabaseSettings> {
    // Relative paths are resolved against the folder of the configuration file, like all others.
    let url = PostgresUrl::parse(text).map(|url| url.with_files(|file| context.reader.resolve(file)));
    let url = url.map_err(|error| fault(&error, at, context)).ok()?;
    let (trust, tls_version) = match url.mode() {
        TlsMode::Disable => (None, 0),
        mode => {
            let (trust, version) = trust(&url, mode, at, context)?;
            (Some(trust), version)
        }
    };
    let messages = PostgresConfig::new(&url, trust).map_err(|error| fault(&error, at, context)).ok()?;
    Some(DatabaseSettings { url: url.text(), file: None, messages: Some(messages), tls_version })
}

/// Trusted roots and own certificate, with a digest that changes with the files of both.
fn trust(url: &PostgresUrl, mode: TlsMode, at: &KeyPath, context: &mut Context<'_>) -> Option<(Trust, u64)> {
    let protocols = Protocols { http1: false, http2: false };
    let client = Client { ca: url.root(), identity: url.identity(), protocols, path: at, keys: KEYS };
    let roots = if mode.verifies() { context.roots(&client)? } else { Roots::empty() };
    let (config, version) = context.tls_client_with_roots(&roots, &client)?;
    Some((Trust { config, roots: roots.anchors.roots().clone() }, version))
}

fn fault(error: &PostgresUrlError, at: &KeyPath, context: &mut Context<'_>) {
    let text = error.to_string();
    let (message, hint) = text.split_once("; ").unwrap_or((&text, ""));
    context.faults.add(at, message, hint);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use auth::time::Timestamp;

    use super::super::super::super::files::FileSystem;
    use super::*;

    /// The database settings.
    ///
    /// # Errors
    ///
    /// Returns the report of the faults.
    fn database(text: &str) -> Result<DatabaseSettings, String> {
        let mut context =
            Context::new(&FileSystem, Path::new("/etc/postern"), Timestamp::from_secs(1_800_000_000));
        let database = check(text, &KeyPath::top_level("provider").key("database"), &mut context);
        database.ok_or_else(|| {
            let report = context.faults.into_report("postern.toml", "", |_, _| 0..0);
            report.lines().collect::<Vec<_>>().join("\n")
        })
    }

    /// The URL that the clients use.
    ///
    /// # Errors
    ///
    /// Returns the report of the faults.
    fn checked(text: &str) -> Result<String, String> {
        database(text).map(|database| database.url)
    }

    #[test]
    fn both_clients_are_told_the_same_whatever_the_environment_says() {
        let url = "postgres://postern:pw@db.example/postern";
        assert_eq!(checked(url), Ok(format!("{url}?sslmode=prefer")));
        assert_eq!(checked(&format!("{url}?ssl-mode=DISABLE")), Ok(format!("{url}?sslmode=disable")));
        assert_eq!(checked(&format!("{url}?ssl%6Dode=Require")), Ok(format!("{url}?sslmode=require")));
    }

    #[test]
    fn whom_to_trust_is_read_before_anybody_connects() {
        let url = "postgres://postern:pw@db.example/postern?sslmode=verify-full";
        let refused = checked(&format!("{url}&ssl-ca=certificates%2Fgone.pem")).unwrap_err();
        assert!(
            refused.contains("provider.database.sslrootcert: cannot read /etc/postern/certificates/gone.pem"),
            "{refused}"
        );
        let refused = checked(&format!("{url}&sslmode=disable")).unwrap_err();
        assert!(
            refused.contains("parameter sslmode occurs twice in the database URL; keep one")
                && !refused.contains("pw"),
            "{refused}"
        );
        let refused = checked("postgres://postern:pw@db.example/postern?pw=pw").unwrap_err();
        assert!(refused.contains("parameter 1 of the database URL is not understood"), "{refused}");
        assert!(!refused.contains("pw"), "{refused}");
    }
}

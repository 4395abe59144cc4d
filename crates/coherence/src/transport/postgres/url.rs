//! Database URL: parses the URL of a PostgreSQL database once, for all clients that use it.
//!
//! Owns: parameters, their spellings and their places, and which protection of a connection is
//! requested ([`TlsMode`]). Does not own: the files that it names, connecting.
//!
//! Two clients connect with one URL: `sqlx`, which the store uses, and the client of this crate,
//! which carries messages. Each has spellings that the other does not know, and `sqlx` takes what
//! the URL omits from the environment of the process. So no client gets the URL as it was written.
//! [`PostgresUrl::text`] writes it anew: with names and escapes that both know, each parameter
//! once, and always with a mode. A URL that may mean different things to the two is refused. No
//! error repeats any part of it, since it may contain a password.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use tokio_postgres::config::Host;

use super::with_sources;
use crate::transport::Address;

const MODE: &str = "sslmode";
const ROOT: &str = "sslrootcert";
const CERTIFICATE: &str = "sslcert";
const KEY: &str = "sslkey";
const HOST: &str = "host";
const PORT: &str = "port";
/// Known to `sqlx` only.
const STATEMENTS: &str = "statement-cache-capacity";

/// Accepted spellings of parameters, and the name that both clients know.
const NAMES: [(&str, &str); 17] = [
    (MODE, MODE),
    ("ssl-mode", MODE),
    (ROOT, ROOT),
    ("ssl-root-cert", ROOT),
    ("ssl-ca", ROOT),
    (CERTIFICATE, CERTIFICATE),
    ("ssl-cert", CERTIFICATE),
    (KEY, KEY),
    ("ssl-key", KEY),
    (HOST, HOST),
    (PORT, PORT),
    ("dbname", "dbname"),
    ("user", "user"),
    ("password", "password"),
    ("application_name", "application_name"),
    ("options", "options"),
    (STATEMENTS, STATEMENTS),
];
/// Parameters that the client for messages does not get: it does no encryption itself here, and it
/// keeps no statements.
const SQLX_ONLY: [&str; 5] = [MODE, ROOT, CERTIFICATE, KEY, STATEMENTS];

/// Why a text is not the URL of a PostgreSQL server, or may mean different things to different
/// clients.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PostgresUrlError {
    /// The URL cannot be parsed.
    #[error("the database URL cannot be used: {0}; write postgres://user@host/database")]
    Invalid(String),
    /// The URL names no server.
    #[error("the database URL names no host; write postgres://user@host/database")]
    NoHost,
    /// It has a character at which some clients end the URL and others do not.
    #[error("the database URL holds a space, a control character or a #; escape it, a # as %23")]
    Unescaped,
    /// A parameter that one of the clients does not know or would read as another. The number is
    /// its position, from 1.
    #[error(
        "parameter {0} of the database URL is not understood; it is the name=value, with percent-escapes, of host, port, dbname, \
         user, password, application_name, options, sslmode, sslrootcert, sslcert, sslkey or statement-cache-capacity"
    )]
    UnknownParameter(usize),
    /// A parameter occurs twice, and clients differ in which one counts.
    #[error("parameter {0} occurs twice in the database URL; keep one")]
    Duplicate(&'static str),
    /// The value of `sslmode` is not a mode.
    #[error("unknown sslmode in the database URL; write verify-full, verify-ca, require, prefer or disable")]
    Mode,
    /// It names trusted authorities, and its mode verifies no certificate.
    #[error(
        "the database URL has sslrootcert, but its sslmode verifies no certificate; write sslmode=verify-full"
    )]
    Unverified,
    /// It names only one of certificate and key.
    #[error("the database URL has only one of sslcert and sslkey; set both")]
    HalfIdentity,
    /// It requires TLS, and no trusted authorities are given.
    #[error("the database URL requires TLS (sslmode), but no trusted authorities are configured here")]
    NoTrust,
}

/// How a connection is protected (libpq's `sslmode`). A Unix socket never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// Not encrypted. `allow` means this too: no client here tries TLS second.
    Disable,
    /// Encrypted if the server offers it; the server is not verified.
    Prefer,
    /// Encrypted; the server is not verified.
    Require,
    /// Encrypted, with a certificate from a trusted authority, whatever names are in it.
    VerifyCa,
    /// Encrypted, with a certificate from a trusted authority for the server's name.
    VerifyFull,
}

impl TlsMode {
    fn read(text: &str) -> Option<Self> {
        Some(match &*text.to_ascii_lowercase() {
            "disable" | "allow" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }

    /// Whether the server's certificate is verified.
    pub fn verifies(self) -> bool {
        matches!(self, Self::VerifyCa | Self::VerifyFull)
    }
}

/// The URL of a database on a server. `Debug` prints nothing of it.
#[derive(Clone)]
pub struct PostgresUrl {
    /// The part before the parameters.
    base: String,
    /// Parameters without their escapes. The mode is always among them.
    parameters: BTreeMap<&'static str, String>,
    mode: TlsMode,
    session: tokio_postgres::Config,
    addresses: Vec<Address>,
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Url").finish_non_exhaustive()
    }
}

impl PostgresUrl {
    /// Parses a URL as `sqlx` does, where `sqlx` says how. What clients may read differently is
    /// refused.
    ///
    /// # Errors
    /// [`PostgresUrlError`] says why the URL is refused.
    pub fn parse(text: &str) -> Result<Self, PostgresUrlError> {
        if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#') {
            return Err(PostgresUrlError::Unescaped);
        }
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        if !(place.starts_with("postgres://") || place.starts_with("postgresql://")) {
            return Err(PostgresUrlError::Invalid(
                "it does not begin with postgres:// or postgresql://".to_owned(),
            ));
        }
        let mut parameters = parameters(query)?;
        let mode = mode(&parameters)?;
        if parameters.contains_key(CERTIFICATE) != parameters.contains_key(KEY) {
            return Err(PostgresUrlError::HalfIdentity);
        }
        parameters.insert(MODE, mode.as_str().to_owned());
        let ours = parameters.iter().filter(|(name, _)| !SQLX_ONLY.contains(name));
        let session = write(place, ours).parse();
        let session: tokio_postgres::Config =
            session.map_err(|error| PostgresUrlError::Invalid(with_sources(&error)))?;
        let addresses = addresses(&session, &parameters)?;
        Ok(Self { base: place.to_owned(), parameters, mode, session, addresses })
    }

    /// The same URL, with the path of each file that it names mapped by `place`.
    #[must_use]
    pub fn with_files(mut self, place: impl Fn(&Path) -> PathBuf) -> Self {
        for name in [ROOT, CERTIFICATE, KEY] {
            if let Some(file) = self.parameters.get_mut(name) {
                *file = place(Path::new(file)).to_string_lossy().into_owned();
            }
        }
        self
    }

    /// The URL in a spelling that every PostgreSQL client reads the same way.
    pub fn text(&self) -> String {
        write(&self.base, self.parameters.iter())
    }

    /// How connections are protected.
    pub fn mode(&self) -> TlsMode {
        self.mode
    }

    /// PEM file with the authorities that the server's certificate comes from.
    pub fn root(&self) -> Option<&Path> {
        self.parameters.get(ROOT).map(Path::new)
    }

    /// PEM files with the client certificate and its key.
    pub fn identity(&self) -> Option<(&Path, &Path)> {
        let file = |name| self.parameters.get(name).map(Path::new);
        file(CERTIFICATE).zip(file(KEY))
    }

    /// User, database and other settings of a session.
    pub(super) fn session(&self) -> tokio_postgres::Config {
        self.session.clone()
    }

    /// Addresses of servers, in the order in which they are tried.
    pub(super) fn addresses(&self) -> Vec<Address> {
        self.addresses.clone()
    }
}

fn parameters(query: &str) -> Result<BTreeMap<&'static str, String>, PostgresUrlError> {
    let mut parameters = BTreeMap::new();
    for (at, pair) in query.split('&').enumerate().filter(|(_, pair)| !pair.is_empty()) {
        let read = || {
            let (name, value) = pair.split_once('=')?;
            let name = decode(name)?;
            let (_, name) = NAMES.iter().find(|(written, _)| *written == name)?;
            Some((*name, decode(value)?))
        };
        let (name, value) = read().ok_or(PostgresUrlError::UnknownParameter(at + 1))?;
        if parameters.insert(name, value).is_some() {
            return Err(PostgresUrlError::Duplicate(name));
        }
    }
    Ok(parameters)
}

fn mode(parameters: &BTreeMap<&'static str, String>) -> Result<TlsMode, PostgresUrlError> {
    let mode = match parameters.get(MODE) {
        Some(mode) => TlsMode::read(mode).ok_or(PostgresUrlError::Mode)?,
        None => TlsMode::Prefer,
    };
    match (mode, parameters.contains_key(ROOT)) {
        // As in libpq; `sqlx` would ignore the authorities.
        (TlsMode::Require, true) => Ok(TlsMode::VerifyCa),
        (TlsMode::Disable | TlsMode::Prefer, true) => Err(PostgresUrlError::Unverified),
        (mode, _) => Ok(mode),
    }
}

/// A parameter overrides the part before the parameters: `sqlx` reads them in that order, and
/// supports one host.
fn addresses(
    session: &tokio_postgres::Config,
    parameters: &BTreeMap<&'static str, String>,
) -> Result<Vec<Address>, PostgresUrlError> {
    let port = match parameters.get(PORT) {
        Some(port) => {
            let port =
                port.parse().map_err(|_| PostgresUrlError::Invalid("the port is not a number".to_owned()));
            Some(port?)
        }
        None => None,
    };
    let (hosts, ports) = (session.get_hosts(), session.get_ports());
    let port = |at: usize| {
        port.or_else(|| ports.get(at).copied()).or_else(|| ports.first().copied()).unwrap_or(5432)
    };
    let above = if parameters.contains_key(HOST) { hosts.len().saturating_sub(1) } else { 0 };
    let named = hosts.iter().enumerate().skip(above);
    let addresses: Vec<_> = named.map(|(at, host)| address(host, port(at - above))).collect();
    if addresses.is_empty() { Err(PostgresUrlError::NoHost) } else { Ok(addresses) }
}

fn address(host: &Host, port: u16) -> Address {
    match host {
        Host::Tcp(name) => Address::tcp(name.trim_matches(['[', ']']), port),
        Host::Unix(folder) => Address::Unix(folder.join(format!(".s.PGSQL.{port}"))),
    }
}

/// Without escapes, where a plus is a space as in `sqlx`; `None` when an escape is broken, or the
/// result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    String::from_utf8(percent_decode(&text.replace('+', "%20"))?).ok()
}

/// Removes percent-escapes (RFC 3986 §2.1); `None` when one is broken.
pub fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    Some(out)
}

fn write<'p>(place: &str, parameters: impl Iterator<Item = (&'p &'static str, &'p String)>) -> String {
    let mut url = place.to_owned();
    for (at, (name, value)) in parameters.enumerate() {
        url.push(if at == 0 { '?' } else { '&' });
        url.push_str(name);
        url.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                url.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(url, "%{byte:02X}");
            }
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> PostgresUrl {
        PostgresUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn it_names_hosts_in_order_and_keeps_its_secrets() {
        let url = parsed("postgres://postern:secret@one,two:5433/db");
        assert_eq!(url.addresses(), [Address::tcp("one", 5432), Address::tcp("two", 5433)]);
        assert!(!format!("{url:?} {:?}", url.session()).contains("secret"));
        let url = parsed("postgres://postern@%2Frun%2Fpostgresql/db");
        assert_eq!(url.addresses(), [Address::Unix("/run/postgresql/.s.PGSQL.5432".into())]);
        let url = parsed("postgres://postern@[::1]:77/db");
        assert_eq!(url.addresses(), [Address::tcp("::1", 77)]);
    }

    #[test]
    fn a_parameter_goes_before_what_the_place_says() {
        let url = parsed("postgres:///db?host=%2Frun&port=77");
        assert_eq!(url.addresses(), [Address::Unix("/run/.s.PGSQL.77".into())]);
        let url = parsed("postgresql://first:5433/db?host=second&user=else");
        assert_eq!(
            (url.addresses(), url.session().get_user()),
            (vec![Address::tcp("second", 5433)], Some("else"))
        );
        assert_eq!(parsed("postgres://one/db?port=6000").addresses(), [Address::tcp("one", 6000)]);
    }

    #[test]
    fn every_spelling_of_a_mode_is_the_same_mode() {
        for (parameters, mode) in [
            ("", TlsMode::Prefer),
            ("?", TlsMode::Prefer),
            ("?sslmode=disable", TlsMode::Disable),
            ("?sslmode=allow", TlsMode::Disable),
            ("?ssl-mode=Prefer", TlsMode::Prefer),
            ("?ssl-mode=require", TlsMode::Require),
            ("?sslmode=VERIFY-FULL", TlsMode::VerifyFull),
            ("?application_name=x&ssl%6Dode=verify%2Dca", TlsMode::VerifyCa),
            ("?sslmode=require&ssl-ca=ca.pem", TlsMode::VerifyCa),
        ] {
            let url = parsed(&format!("postgres://postern@one/db{parameters}"));
            assert_eq!(url.mode(), mode, "{parameters}");
            // `sqlx` reads the environment of the process only where the URL is silent.
            assert!(url.text().contains(&format!("sslmode={}", mode.as_str())), "{}", url.text());
            assert_eq!(parsed(&url.text()).text(), url.text());
        }
    }

    #[test]
    fn it_is_written_anew_as_both_clients_read_it() {
        let url = parsed(
            "postgres://postern:secret@one/db?ssl-mode=Verify-Full&ssl-ca=%2Fetc%2Fca+1.pem&ssl-cert=us.pem\
             &ssl-key=us.key&statement-cache-capacity=7&options=-c%20a%3Db",
        );
        assert_eq!(url.root(), Some(Path::new("/etc/ca 1.pem")));
        assert_eq!(url.identity(), Some((Path::new("us.pem"), Path::new("us.key"))));
        assert_eq!(url.session().get_options(), Some("-c a=b"));
        let url = url.with_files(|file| Path::new("/etc/postern").join(file));
        assert_eq!(
            url.text(),
            "postgres://postern:secret@one/db?options=-c%20a%3Db&sslcert=%2Fetc%2Fpostern%2Fus.pem\
             &sslkey=%2Fetc%2Fpostern%2Fus.key&sslmode=verify-full&sslrootcert=%2Fetc%2Fca%201.pem\
             &statement-cache-capacity=7"
        );
    }

    #[test]
    fn what_is_not_certain_is_refused_and_not_repeated() {
        for (text, expected) in [
            ("postgres://user:secret@host:port/db", "the database URL cannot be used"),
            ("postgres:secret@host/db", "the database URL cannot be used"),
            ("postgres://user:se?cret@host/db", "parameter 1"),
            ("postgres://user:secret@host/db?what=this", "parameter 1"),
            ("postgres://user:secret@host/db?sslmode=require&connect_timeout=3", "parameter 2"),
            ("postgres://user:secret@host/db?sslmode", "parameter 1"),
            ("postgres://host/db?password=50%secret", "parameter 1"),
            ("postgres://user:secret@host/db?user=%ff", "parameter 1"),
            ("postgres://user:sec ret@host/db", "the database URL holds a space"),
            ("postgres://user:secret@host/db#?sslmode=verify-full", "the database URL holds a space"),
            ("postgres://user:secret@host/db?ssl\nmode=verify-full", "the database URL holds a space"),
            ("postgres:///db?user=secret", "the database URL names no host"),
            ("postgres://user:secret@host/db?port=x", "the database URL cannot be used"),
            ("postgres://host/db?sslmode=secret", "unknown sslmode in the database URL"),
            ("postgres://host/db?sslmode=", "unknown sslmode in the database URL"),
            (
                "postgres://host/db?sslmode=disable&ssl-mode=verify-full",
                "parameter sslmode occurs twice in the database URL",
            ),
            ("postgres://host/db?sslrootcert=secret", "the database URL has sslrootcert"),
            ("postgres://host/db?sslmode=disable&ssl-ca=secret", "the database URL has sslrootcert"),
            ("postgres://host/db?sslmode=require&sslkey=secret", "the database URL has only one of sslcert"),
        ] {
            let error = PostgresUrl::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected) && !error.contains("secret"), "{text}: {error}");
        }
    }
}

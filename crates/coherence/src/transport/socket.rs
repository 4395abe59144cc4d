//! Sockets to message brokers.
//!
//! Owns: addresses, the options of a socket, TLS over it, and what an operator is told when one of
//! these fails. Does not own: the protocol on a socket, or when a connection is retried.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

/// Time between two checks whether the server answers.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(1_500);
/// Time without an answer after which a server is given up.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_millis(4_500);

/// Address on which a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A TCP host and port.
    Tcp {
        /// Name or IP address, without brackets.
        host: String,
        /// TCP port number.
        port: u16,
    },
    /// A Unix socket, which is never encrypted.
    Unix(PathBuf),
}

impl Address {
    /// Address of a server over TCP.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::Tcp { host: host.into(), port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Byte stream in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// A connection, encrypted or not.
pub(super) type Stream = Box<dyn Duplex>;

/// Opens a connection; the error says what to check.
pub(super) async fn open(address: &Address) -> Result<Stream, String> {
    let opened: io::Result<Stream> = match address {
        Address::Tcp { host, port } => tcp(host, *port).await.map(|stream| Box::new(stream) as Stream),
        Address::Unix(path) => UnixStream::connect(path).await.map(|stream| Box::new(stream) as Stream),
    };
    opened.map_err(|error| explain(&error))
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // Messages are small, and a request may wait for each.
    stream.set_nodelay(true)?;
    // Without this, the kernel retransmits unacknowledged bytes for a quarter of an hour.
    SockRef::from(&stream).set_tcp_user_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(stream)
}

/// Encrypts a connection; the error says what to check.
pub(super) async fn start_tls(
    stream: Stream,
    tls: &Arc<ClientConfig>,
    address: &Address,
) -> Result<Stream, String> {
    let Address::Tcp { host, .. } = address else { return Ok(stream) };
    let name = ServerName::try_from(host.clone())
        .map_err(|_| format!("no certificate can name {host:?}; check the address"))?;
    match TlsConnector::from(Arc::clone(tls)).connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(explain_tls(&error)),
    }
}

fn explain_tls(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let look = match tls {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "check the server's certificate, its names, and the trusted authorities here"
        }
        _ => "check that the server speaks TLS at this address, and its TLS versions",
    };
    format!("TLS: {error}; {look}")
}

/// An error of a socket, with what to check.
pub(super) fn explain(error: &io::Error) -> String {
    let look = match error.kind() {
        io::ErrorKind::ConnectionRefused => "check that it runs, and its address",
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "check the network in between"
        }
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::UnexpectedEof => return "it closed the connection; check its log".to_owned(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "it may have ended; check its log",
        _ => return error.to_string(),
    };
    format!("{}; {look}", without_os_code(error))
}

/// The error without the system's number for it.
fn without_os_code(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_say_what_to_look_at() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(explain(&refused), "connection refused; check that it runs, and its address");
        let ended = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(explain(&ended), "it closed the connection; check its log");
    }

    #[test]
    fn addresses_read_as_they_are_written_elsewhere() {
        assert_eq!(Address::tcp("nats.example", 4222).to_string(), "nats.example:4222");
        assert_eq!(Address::tcp("::1", 4222).to_string(), "[::1]:4222");
        assert_eq!(Address::Unix("/run/x".into()).to_string(), "/run/x");
    }
}

//! Target: the URL that is loaded, its resolved address, and how to connect to it.
//!
//! Owns: URL and TLS settings, connecting. Does not own: the protocol on the connection.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Failure, RequestFault};

/// HTTP version on connections to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 (RFC 9112).
    Http1,
    /// HTTP/2 (RFC 9113): with prior knowledge on `http`, through ALPN on `https`.
    Http2,
}

/// Which certificates of the target are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Only certificates that chain to a certificate in this PEM file.
    CertificateFile(PathBuf),
    /// Any certificate: for machines that create a new one for each run.
    AnyCertificate,
}

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The text is not an absolute `http` or `https` URL.
    #[error("`{0}` is not a URL this driver can load; give http://HOST[:PORT]/PATH or https://…")]
    Url(String),
    /// The host name cannot be resolved, or has no address.
    #[error("cannot resolve `{0}`: {1}")]
    Resolve(String, io::Error),
    /// An `https` URL without a choice of accepted certificates.
    #[error("`{0}` needs TLS: name the certificate authority with --ca FILE, or accept any with --insecure")]
    TrustMissing(String),
    /// The file of certificate authorities cannot be read or holds no certificate.
    #[error("cannot use the certificate authorities in `{0}`: {1}")]
    Authorities(PathBuf, String),
    /// The name cannot be used in a TLS handshake.
    #[error("`{0}` is not a name for a TLS handshake; give one with --server-name")]
    ServerName(String),
}

/// A target with a resolved address.
#[derive(Clone)]
pub struct Target {
    /// URL as it was given.
    pub url: String,
    /// HTTP version on the connections.
    pub protocol: Protocol,
    pub(crate) authority: String,
    pub(crate) path: String,
    pub(crate) address: SocketAddr,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("url", &self.url)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Target {
    /// Resolves `url`. `connect` replaces the address (`HOST:PORT`), `server_name` the name in the
    /// TLS handshake.
    ///
    /// # Errors
    /// The URL is invalid, a name cannot be resolved, or the TLS settings are missing or cannot be
    /// used.
    pub fn new(
        url: &str,
        protocol: Protocol,
        trust: Option<&Trust>,
        connect: Option<&str>,
        server_name: Option<&str>,
    ) -> Result<Self, TargetError> {
        let refused = || TargetError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| refused())?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(refused()),
        };
        let authority =
            uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(refused)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let address = match connect {
            Some(connect) => resolve(connect, ToSocketAddrs::to_socket_addrs)?,
            None => resolve(host, |name| (name, port).to_socket_addrs())?,
        };
        let tls = if secure {
            let trust = trust.ok_or_else(|| TargetError::TrustMissing(url.to_owned()))?;
            let name = server_name.unwrap_or(host).to_owned();
            let parsed = ServerName::try_from(name.clone()).map_err(|_| TargetError::ServerName(name))?;
            Some((TlsConnector::from(Arc::new(client_config(trust, protocol)?)), parsed))
        } else {
            None
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            url: url.to_owned(),
            protocol,
            authority: authority.as_str().to_owned(),
            path: path.to_owned(),
            address,
            tls,
        })
    }

    /// Whether connections use TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The same server and address, with another authority (host name, and port if it is to be
    /// sent), and another path.
    pub(crate) fn at(&self, authority: &str, path: &str) -> Self {
        Self { authority: authority.to_owned(), path: path.to_owned(), ..self.clone() }
    }

    /// Opens one connection, including the TLS handshake.
    pub(crate) async fn open(&self) -> Result<Io, Failure> {
        let failed = |fault| move |error: io::Error| Failure::new(fault, error.to_string());
        let stream = TcpStream::connect(self.address).await.map_err(failed(RequestFault::Connect))?;
        stream.set_nodelay(true).map_err(failed(RequestFault::Connect))?;
        let Some((connector, name)) = &self.tls else { return Ok(Io::Plain(stream)) };
        let stream = connector.connect(name.clone(), stream).await.map_err(failed(RequestFault::Tls))?;
        // A peer that ignores ALPN did not agree to HTTP/2, so HTTP/2 must not be sent to it.
        let agreed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        if self.protocol == Protocol::Http2 && !agreed {
            return Err(Failure::new(RequestFault::Tls, "the server did not agree to HTTP/2"));
        }
        Ok(Io::Tls(Box::new(stream)))
    }
}

fn resolve<I: Iterator<Item = SocketAddr>>(
    name: &str,
    lookup: impl Fn(&str) -> io::Result<I>,
) -> Result<SocketAddr, TargetError> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    lookup(name)
        .and_then(|mut found| found.next().ok_or_else(missing))
        .map_err(|error| TargetError::Resolve(name.to_owned(), error))
}

fn client_config(trust: &Trust, protocol: Protocol) -> Result<ClientConfig, TargetError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3");
    let mut config = match trust {
        Trust::CertificateFile(file) => {
            builder.with_root_certificates(authorities(file)?).with_no_client_auth()
        }
        Trust::AnyCertificate => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(&provider)))
            .with_no_client_auth(),
    };
    config.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
    };
    Ok(config)
}

fn authorities(file: &Path) -> Result<RootCertStore, TargetError> {
    let refused = |why: String| TargetError::Authorities(file.to_owned(), why);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| refused(error.to_string()))? {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        roots.add(certificate).map_err(|error| refused(error.to_string()))?;
    }
    if roots.is_empty() { Err(refused("the file holds no certificate".to_owned())) } else { Ok(roots) }
}

/// Accepts any certificate, but still verifies that the peer has its private key. The handshake
/// costs the same as with full verification.
#[derive(Debug)]
struct AnyCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyCertificate {
    fn new(provider: &CryptoProvider) -> Self {
        Self { algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A connection with or without TLS.
pub(crate) enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(url: &str) -> Result<Target, TargetError> {
        Target::new(url, Protocol::Http1, None, None, None)
    }

    #[test]
    fn takes_host_port_and_path_from_the_url() {
        let target = plain("http://127.0.0.1:8080/a?b=c").unwrap();
        assert_eq!((target.authority.as_str(), target.path.as_str()), ("127.0.0.1:8080", "/a?b=c"));
        assert_eq!(target.address.to_string(), "127.0.0.1:8080");
        assert_eq!(plain("http://[::1]:81").unwrap().address.to_string(), "[::1]:81");
        assert_eq!(plain("http://127.0.0.1").unwrap().address.port(), 80);
    }

    #[test]
    fn refuses_what_it_cannot_load() {
        for url in ["/path", "ftp://127.0.0.1/", "http://", "http://user@127.0.0.1/", "127.0.0.1:80"] {
            assert!(matches!(plain(url), Err(TargetError::Url(_))), "{url}");
        }
        assert!(matches!(plain("https://127.0.0.1/"), Err(TargetError::TrustMissing(_))));
    }

    #[test]
    fn another_address_can_be_connected_to() {
        let target =
            Target::new("http://app.test/", Protocol::Http1, None, Some("127.0.0.1:99"), None).unwrap();
        assert_eq!((target.authority.as_str(), target.address.port()), ("app.test", 99));
    }
}

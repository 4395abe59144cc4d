//! Certificate verification: what is checked of a server's certificate, by the mode of a URL.
//!
//! Owns: removing from a configuration that verifies everything what a weaker mode does not
//! require. Does not own: the trusted authorities.
//!
//! The weaker modes are PostgreSQL's, and the one to choose is `verify-full`. They exist because
//! the store's client has them: messages use the same server as the store, with the same
//! protection.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::TlsMode;

/// Trusted authorities, and the client certificate.
#[derive(Debug, Clone)]
pub struct Trust {
    /// Verifies a server fully, with `roots`.
    pub config: Arc<ClientConfig>,
    /// Authorities that a server's certificate may come from.
    pub roots: Arc<RootCertStore>,
}

impl Trust {
    /// The TLS configuration for a mode.
    pub(super) fn config_for(self, mode: TlsMode) -> Arc<ClientConfig> {
        let Self { mut config, roots } = self;
        let roots = match mode {
            TlsMode::VerifyFull => return config,
            TlsMode::VerifyCa => Some(roots),
            TlsMode::Require | TlsMode::Prefer | TlsMode::Disable => None,
        };
        let provider = config.crypto_provider().clone();
        let lenient = Arc::new(RelaxedVerifier { roots, provider });
        Arc::make_mut(&mut config).dangerous().set_certificate_verifier(lenient);
        config
    }
}

/// Does not check the names in a certificate. Without `roots` it checks only that the server holds
/// the certificate's key.
#[derive(Debug)]
struct RelaxedVerifier {
    roots: Option<Arc<RootCertStore>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for RelaxedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

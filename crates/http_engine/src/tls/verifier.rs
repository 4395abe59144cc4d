//! Verifiers: the decision about a peer's certificate in the handshake.
//!
//! Owns: what counts beside the chain: pinned certificates and names of servers, revocation lists of
//! clients, clients that are let in without a valid certificate. Does not own: which certificates are
//! trusted ([`super::TrustAnchors`], [`super::ClientCas`]).
//!
//! Chains and signatures are verified by webpki; nothing here can switch that off for a server.

use std::sync::Arc;

use outage::Outage;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, DnsName, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::PinnedCertificate;

/// A name that a server may have in its certificate, as a subject alternative name (RFC 5280 section
/// 4.2.1.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectName(Subject);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Host(ServerName<'static>),
    /// What follows `*.`, in lower case.
    Wildcard(Box<str>),
    Uri(Box<str>),
}

impl SubjectName {
    /// A DNS name, compared as that of a server is (RFC 9525 section 6.3): a wildcard in the
    /// certificate stands for one label. `*.example.com` is a wildcard itself: the same one in the
    /// certificate, or a name with one label in its place. `None` if the text is no DNS name.
    pub fn host(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let name = |text: &str| DnsName::try_from(text.to_owned()).ok();
        Some(Self(match text.strip_prefix("*.") {
            Some(parent) => name(parent).map(|_| Subject::Wildcard(parent.into()))?,
            None => Subject::Host(ServerName::DnsName(name(&text)?)),
        }))
    }

    /// A URI, such as a SPIFFE ID, compared byte for byte.
    pub fn uri(text: &str) -> Self {
        Self(Subject::Uri(text.into()))
    }

    fn is_in(&self, certificate: &ParsedCertificate<'_>, names: &[GeneralName<'_>]) -> bool {
        match &self.0 {
            Subject::Host(name) => verify_server_name(certificate, name).is_ok(),
            Subject::Wildcard(parent) => names.iter().any(|name| match name {
                GeneralName::DNSName(name) => name.split_once('.').is_some_and(|(label, rest)| {
                    !label.is_empty() && rest.eq_ignore_ascii_case(parent) && is_label(label)
                }),
                _ => false,
            }),
            Subject::Uri(uri) => {
                names.iter().any(|name| matches!(name, GeneralName::URI(own) if *own == &**uri))
            }
        }
    }
}

/// A whole wildcard, or a label without one: `a*` is neither (RFC 9525 section 6.3).
fn is_label(label: &str) -> bool {
    label == "*" || !label.contains('*')
}

/// Which names a server must have in its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Names {
    /// The one that it is connected to by.
    Own,
    /// One of these, whatever it is connected to by.
    OneOf(Arc<[SubjectName]>),
    /// None: its name is not known.
    Any,
}

impl Names {
    fn verify(
        &self,
        der: &CertificateDer<'_>,
        certificate: &ParsedCertificate<'_>,
        own: &ServerName<'_>,
    ) -> Result<(), Error> {
        let names = match self {
            Self::Any => return Ok(()),
            Self::Own => return verify_server_name(certificate, own),
            Self::OneOf(names) => names,
        };
        let (_, parsed) = X509Certificate::from_der(der).map_err(|_| CertificateError::BadEncoding)?;
        let extension = parsed.subject_alternative_name().map_err(|_| CertificateError::BadEncoding)?;
        let presented = extension.as_ref().map_or(&[][..], |extension| &extension.value.general_names);
        if names.iter().any(|name| name.is_in(certificate, presented)) {
            return Ok(());
        }
        Err(CertificateError::NotValidForName.into())
    }
}

/// Accepts the servers that present a pinned certificate, or one that the authorities issued, with
/// the right name.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    pub(super) pinned: Arc<[PinnedCertificate]>,
    pub(super) authorities: Arc<RootCertStore>,
    pub(super) names: Names,
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        match self.pinned.iter().find(|pinned| pinned.is(end_entity)) {
            Some(pinned) => pinned.check(now)?,
            None => verify_server_cert_signed_by_trust_anchor(
                &certificate,
                &self.authorities,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?,
        }
        self.names.verify(end_entity, &certificate, name)?;
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

/// Verifies clients as `inner` does, and ends in its own way.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    pub(super) inner: Arc<dyn ClientCertVerifier>,
    pub(super) ending: Ending,
}

/// What becomes of the verification of a client.
#[derive(Debug)]
pub(super) enum Ending {
    /// Every certificate whose key the client has is accepted. Whoever uses one has to ask
    /// [`super::ClientCas::accepts`] first.
    AdmitsOthers,
    /// Revocation lists that have expired are reported.
    ReportsLists(Outage),
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        matches!(self.ending, Ending::ReportsLists(_)) && self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let lists = match &self.ending {
            Ending::AdmitsOthers => return Ok(ClientCertVerified::assertion()),
            Ending::ReportsLists(lists) => lists,
        };
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now);
        if let Err(
            error @ Error::InvalidCertificate(
                CertificateError::ExpiredRevocationList
                | CertificateError::ExpiredRevocationListContext { .. },
            ),
        ) = &verified
        {
            // It stays expired: a new list comes with a new verifier.
            lists.failed(error);
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

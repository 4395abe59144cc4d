//! Tables of `[listener.tls]`: certificates of a listener, and what TLS it offers.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_default;

/// TLS of a listener. Its files are read again when they change.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerTls {
    /// PEM file with the certificate, followed by the chain up to the certificate authority. For
    /// several certificates, use `certificates` instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key (PKCS#8, PKCS#1 or SEC1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Several certificates. A client receives the one that has the server name that it asks for
    /// (SNI): one with exactly this name before one with a wildcard. The first is for all other
    /// clients. Two with the same names and different kinds of keys (RSA, ECDSA) are possible.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<ServerCertificate>,
    /// Versions, cipher suites and groups, as Mozilla recommends. Default: `intermediate`.
    /// `min_version`, `cipher_suites` and `groups` replace its parts.
    #[serde(skip_serializing_if = "is_default")]
    pub profile: TlsProfile,
    /// Lowest version of TLS. Default: that of the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_version: Option<TlsVersion>,
    /// Permitted cipher suites, by their IANA names. Default: all that exist here, for the versions
    /// of the profile; each of them is safe.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cipher_suites: Vec<CipherSuite>,
    /// Permitted groups for the key exchange, by their IANA names, preferred first. Default:
    /// `X25519MLKEM768` (resists quantum computers), `x25519`, `secp256r1`, `secp384r1`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<KeyExchangeGroup>,
    /// PEM file with the certificate authorities that verify client certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// Files with revocation lists (CRL, PEM or DER) of the authorities that issue client
    /// certificates: one for each authority in a chain. A revoked certificate is refused, and so
    /// is one whose issuer has no list here, or an expired one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client_crl: Vec<PathBuf>,
    /// Whether the listener requests client certificates.
    pub client_certificates: ClientCertificateDemand,
}

/// A certificate of a listener.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerCertificate {
    /// PEM file with the certificate, followed by the chain up to the certificate authority.
    pub certificate: PathBuf,
    /// PEM file with the certificate's private key (PKCS#8, PKCS#1 or SEC1).
    pub key: PathBuf,
}

/// Versions, cipher suites and groups, by the names of Mozilla's recommendations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TlsProfile {
    /// TLS 1.3 only.
    Modern,
    /// TLS 1.3 and 1.2, with forward secrecy and authenticated encryption in both.
    #[default]
    Intermediate,
}

/// Version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "1.3")]
    Tls13,
}

/// Cipher suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "names that IANA registers")]
pub enum CipherSuite {
    #[serde(rename = "TLS_AES_256_GCM_SHA384")]
    Aes256Gcm,
    #[serde(rename = "TLS_AES_128_GCM_SHA256")]
    Aes128Gcm,
    #[serde(rename = "TLS_CHACHA20_POLY1305_SHA256")]
    ChaCha20,
    #[serde(rename = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")]
    EcdheEcdsaAes256Gcm,
    #[serde(rename = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")]
    EcdheEcdsaAes128Gcm,
    #[serde(rename = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256")]
    EcdheEcdsaChaCha20,
    #[serde(rename = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")]
    EcdheRsaAes256Gcm,
    #[serde(rename = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")]
    EcdheRsaAes128Gcm,
    #[serde(rename = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256")]
    EcdheRsaChaCha20,
}

/// Group for the key exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "names that IANA registers")]
pub enum KeyExchangeGroup {
    X25519MLKEM768,
    SecP256r1MLKEM768,
    #[serde(rename = "x25519")]
    X25519,
    #[serde(rename = "secp256r1")]
    Secp256r1,
    #[serde(rename = "secp384r1")]
    Secp384r1,
    MLKEM768,
    MLKEM1024,
}

/// Whether the listener requests client certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificateDemand {
    /// The listener does not request a certificate.
    #[default]
    Off,
    /// The listener requests a certificate. A client without one may still send a token.
    Optional,
    /// The listener requests a certificate, and the handshake fails without one.
    Required,
}

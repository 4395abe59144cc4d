//! TLS policy: which versions, cipher suites and key exchange groups a listener offers.

use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs as provider};
use rustls::{CipherSuite, NamedGroup, SupportedCipherSuite, SupportedProtocolVersion};

/// Versions, cipher suites and groups of a listener. The default is everything that the TLS library
/// considers safe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsPolicy {
    /// Lowest version.
    pub min_version: TlsVersion,
    /// Permitted cipher suites. Empty: all that are safe.
    pub cipher_suites: Vec<CipherSuite>,
    /// Permitted groups, preferred first. Empty: all that are safe.
    pub groups: Vec<NamedGroup>,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// What makes a policy unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyFault {
    /// No cipher suite is left for this version.
    NoCipherSuite(TlsVersion),
    /// No group is left for this version.
    NoGroup(TlsVersion),
}

impl TlsPolicy {
    /// Checks that each permitted version has a cipher suite and a group.
    ///
    /// # Errors
    /// [`PolicyFault`] for the first version that lacks one.
    pub fn check(&self) -> Result<(), PolicyFault> {
        let provider = self.provider();
        for version in self.tls_versions() {
            let wanted = version.supported();
            if !provider.cipher_suites.iter().any(|suite| suite.version().version == wanted.version) {
                return Err(PolicyFault::NoCipherSuite(version));
            }
            if !provider.kx_groups.iter().any(|group| group.usable_for_version(wanted.version)) {
                return Err(PolicyFault::NoGroup(version));
            }
        }
        Ok(())
    }

    /// The cryptography that remains.
    pub(super) fn provider(&self) -> CryptoProvider {
        let mut all = provider::default_provider();
        if !self.cipher_suites.is_empty() {
            all.cipher_suites = self.cipher_suites.iter().filter_map(|suite| find_suite(*suite)).collect();
        }
        if !self.groups.is_empty() {
            all.kx_groups = self.groups.iter().filter_map(|group| find_group(*group)).collect();
        }
        all
    }

    /// The versions that remain.
    pub(super) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        self.tls_versions().map(TlsVersion::supported).collect()
    }

    fn tls_versions(&self) -> impl Iterator<Item = TlsVersion> {
        let lowest = self.min_version;
        [TlsVersion::Tls13, TlsVersion::Tls12].into_iter().filter(move |version| *version >= lowest)
    }
}

impl TlsVersion {
    fn supported(self) -> &'static SupportedProtocolVersion {
        match self {
            Self::Tls12 => &rustls::version::TLS12,
            Self::Tls13 => &rustls::version::TLS13,
        }
    }
}

impl std::fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        })
    }
}

fn find_suite(wanted: CipherSuite) -> Option<SupportedCipherSuite> {
    provider::ALL_CIPHER_SUITES.iter().find(|suite| suite.suite() == wanted).copied()
}

fn find_group(wanted: NamedGroup) -> Option<&'static dyn SupportedKxGroup> {
    provider::ALL_KX_GROUPS.iter().find(|group| group.name() == wanted).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_needs_a_suite_and_a_group() {
        let policy = |min_version, suites: &[CipherSuite], groups: &[NamedGroup]| {
            let policy = TlsPolicy { min_version, cipher_suites: suites.to_vec(), groups: groups.to_vec() };
            policy.check()
        };
        let (old, new) = (TlsVersion::Tls12, TlsVersion::Tls13);
        let aes13 = CipherSuite::TLS13_AES_128_GCM_SHA256;
        let aes12 = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
        let (hybrid, curve) = (NamedGroup::X25519MLKEM768, NamedGroup::X25519);
        assert_eq!(policy(old, &[], &[]), Ok(()));
        assert_eq!(policy(new, &[], &[]), Ok(()));
        assert_eq!(policy(old, &[aes13], &[]), Err(PolicyFault::NoCipherSuite(old)));
        assert_eq!(policy(new, &[aes12], &[]), Err(PolicyFault::NoCipherSuite(new)));
        assert_eq!(policy(old, &[aes13, aes12], &[curve]), Ok(()));
        assert_eq!(policy(old, &[], &[hybrid]), Err(PolicyFault::NoGroup(old)), "only TLS 1.3 has it");
        assert_eq!(policy(new, &[aes13], &[hybrid]), Ok(()));
    }

    #[test]
    fn everything_that_the_library_knows_can_be_named() {
        for suite in provider::ALL_CIPHER_SUITES {
            assert!(find_suite(suite.suite()).is_some(), "{suite:?}");
        }
        for group in provider::ALL_KX_GROUPS {
            assert!(find_group(group.name()).is_some(), "{group:?}");
        }
    }
}

//! Signature algorithms of RFC 7518 §3.1 and RFC 8037 that a public key can verify.
//!
//! There is no `none` and no HMAC here, so no later code can be made to use them.

/// An asymmetric JWS algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
    /// `EdDSA` on Curve25519.
    EdDsa,
}

impl Algorithm {
    /// Every algorithm, in declaration order.
    pub const ALL: [Self; 10] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::EdDsa,
    ];

    /// The name in a JOSE `alg` member.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The algorithm with this name in a JOSE `alg` member; letter case matters. `Ed25519`, of RFC
    /// 9864, is another name of `EdDSA` here, since Curve25519 is the only supported Edwards curve.
    pub fn from_name(name: &str) -> Option<Self> {
        if name == "Ed25519" {
            return Some(Self::EdDsa);
        }
        Self::ALL.into_iter().find(|a| a.as_str() == name)
    }
}

/// A set of algorithms: the allow list of an issuer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AlgorithmSet(u16);

impl AlgorithmSet {
    /// Every algorithm this crate verifies.
    pub const ALL: Self = Self((1 << Algorithm::ALL.len()) - 1);
    /// The set without members.
    pub const EMPTY: Self = Self(0);

    /// Whether `algorithm` is a member.
    pub const fn contains(self, algorithm: Algorithm) -> bool {
        self.0 & (1 << algorithm as u16) != 0
    }

    /// This set with `algorithm` added.
    #[must_use]
    pub const fn with(self, algorithm: Algorithm) -> Self {
        Self(self.0 | 1 << algorithm as u16)
    }

    /// Whether there is no member.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members in declaration order.
    pub fn iter(self) -> impl Iterator<Item = Algorithm> {
        Algorithm::ALL.into_iter().filter(move |a| self.contains(*a))
    }
}

impl FromIterator<Algorithm> for AlgorithmSet {
    fn from_iter<I: IntoIterator<Item = Algorithm>>(algorithms: I) -> Self {
        algorithms.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl std::fmt::Debug for AlgorithmSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_name(algorithm.as_str()), Some(algorithm));
        }
        assert_eq!(Algorithm::from_name("Ed25519"), Some(Algorithm::EdDsa));
        for wrong in ["rs256", "RS256 ", "", "none", "HS256", "ES256K", "Ed448"] {
            assert_eq!(Algorithm::from_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let set: AlgorithmSet = [Algorithm::Es256, Algorithm::Rs256].into_iter().collect();
        assert!(set.contains(Algorithm::Es256) && set.contains(Algorithm::Rs256));
        assert!(!set.contains(Algorithm::Rs384) && !set.contains(Algorithm::EdDsa));
        assert_eq!(set.iter().collect::<Vec<_>>(), [Algorithm::Rs256, Algorithm::Es256]);
        assert!(AlgorithmSet::EMPTY.is_empty());
        assert_eq!(AlgorithmSet::ALL.iter().count(), Algorithm::ALL.len());
    }
}

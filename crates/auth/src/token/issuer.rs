//! Issuer configuration: what is expected of one issuer's tokens, checked when the configuration is
//! read.

use std::time::Duration;

use crate::algorithm::AlgorithmSet;
use crate::mapping::ClaimMapping;

/// Largest permitted clock difference. A larger one would keep expired tokens valid.
pub const MAX_CLOCK_SKEW: Duration = Duration::from_mins(1);

/// Which `typ` headers count as an access token. Each variant accepts what the one before accepts,
/// and more.
///
/// With every variant, tokens that have the marks of another kind (ID token, logout token, request
/// object, refresh token) are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenTypes {
    /// Only `at+jwt`, with every claim that RFC 9068 §2.2 requires.
    Rfc9068,
    /// `at+jwt` or `JWT`: providers older than RFC 9068, Keycloak among them.
    Jwt,
    /// `at+jwt`, `JWT`, or no `typ` at all.
    Untyped,
}

/// An issuer: how its tokens are recognized, verified and mapped.
#[derive(Debug, Clone)]
pub struct IssuerConfig {
    name: Box<str>,
    issuer: Box<str>,
    audiences: Vec<Box<str>>,
    algorithms: AlgorithmSet,
    types: TokenTypes,
    clock_skew: Duration,
    mapping: ClaimMapping,
}

/// Why an [`IssuerConfig`] was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IssuerConfigError {
    /// The name is empty.
    #[error("issuer has no name")]
    NoName,
    /// The issuer identifier is empty.
    #[error("issuer identifier is empty; give the exact `iss` of its tokens")]
    NoIssuer,
    /// There is no audience, or an empty one.
    #[error("issuer has no audience or an empty one; give the `aud` its tokens for this gateway carry")]
    NoAudience,
    /// The algorithm set is empty.
    #[error("issuer has no allowed algorithm")]
    NoAlgorithm,
    /// The clock skew is larger than [`MAX_CLOCK_SKEW`].
    #[error("clock skew of {0:?} is more than 60 s; correct the clocks instead")]
    ClockSkew(Duration),
}

impl IssuerConfig {
    /// Creates an issuer from its configured `name`, its exact `iss`, and the audiences of which a
    /// token must name at least one. The defaults are all algorithms, [`TokenTypes::Jwt`], no clock
    /// skew and the default mapping.
    pub fn new(name: &str, issuer: &str, audiences: Vec<Box<str>>) -> Result<Self, IssuerConfigError> {
        if name.is_empty() {
            return Err(IssuerConfigError::NoName);
        }
        if issuer.is_empty() {
            return Err(IssuerConfigError::NoIssuer);
        }
        if audiences.is_empty() || audiences.iter().any(|a| a.is_empty()) {
            return Err(IssuerConfigError::NoAudience);
        }
        Ok(Self {
            name: name.into(),
            issuer: issuer.into(),
            audiences,
            algorithms: AlgorithmSet::ALL,
            types: TokenTypes::Jwt,
            clock_skew: Duration::ZERO,
            mapping: ClaimMapping::default(),
        })
    }

    /// Allows these algorithms only.
    pub fn with_algorithms(mut self, algorithms: AlgorithmSet) -> Result<Self, IssuerConfigError> {
        if algorithms.is_empty() {
            return Err(IssuerConfigError::NoAlgorithm);
        }
        self.algorithms = algorithms;
        Ok(self)
    }

    /// Accepts these token types.
    #[must_use]
    pub fn with_types(mut self, types: TokenTypes) -> Self {
        self.types = types;
        self
    }

    /// Tolerates a clock difference of at most [`MAX_CLOCK_SKEW`].
    pub fn with_clock_skew(mut self, clock_skew: Duration) -> Result<Self, IssuerConfigError> {
        if clock_skew > MAX_CLOCK_SKEW {
            return Err(IssuerConfigError::ClockSkew(clock_skew));
        }
        self.clock_skew = clock_skew;
        Ok(self)
    }

    /// Maps claims to identities with this mapping.
    #[must_use]
    pub fn with_mapping(mut self, mapping: ClaimMapping) -> Self {
        self.mapping = mapping;
        self
    }

    /// The configured name, which rules and metrics use.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The exact `iss` of its tokens.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Accepted audiences: a token must name one of these in `aud`.
    pub fn audiences(&self) -> &[Box<str>] {
        &self.audiences
    }

    /// The allow list of signature algorithms.
    pub fn algorithms(&self) -> AlgorithmSet {
        self.algorithms
    }

    /// The accepted token types.
    pub fn types(&self) -> TokenTypes {
        self.types
    }

    /// Tolerated clock difference.
    pub fn clock_skew(&self) -> Duration {
        self.clock_skew
    }

    /// Mapping of claims to an identity.
    pub fn mapping(&self) -> &ClaimMapping {
        &self.mapping
    }
}

//! What is expected of one issuer's tokens, checked when the configuration is read.

use std::time::Duration;

use crate::algorithm::AlgorithmSet;
use crate::mapping::Mapping;

/// The largest clock difference that may be forgiven. More would keep expired tokens alive.
pub const MAX_CLOCK_SKEW: Duration = Duration::from_mins(1);

/// Which `typ` headers count as an access token. Each step accepts what the one before does, and more.
///
/// Whatever the step, tokens that carry the marks of another kind (ID token, logout token, request object,
/// refresh token) are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenTypes {
    /// Only `at+jwt`, with every claim RFC 9068 §2.2 requires.
    Rfc9068,
    /// `at+jwt` or `JWT`: providers older than RFC 9068, Keycloak among them.
    Jwt,
    /// `at+jwt`, `JWT`, or no `typ` at all.
    Untyped,
}

/// An issuer: whom to believe, and what about.
#[derive(Debug, Clone)]
pub struct IssuerConfig {
    name: Box<str>,
    issuer: Box<str>,
    audiences: Vec<Box<str>>,
    algorithms: AlgorithmSet,
    types: TokenTypes,
    clock_skew: Duration,
    mapping: Mapping,
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
    /// No audience, or an empty one.
    #[error("issuer has no audience or an empty one; give the `aud` its tokens for this gateway carry")]
    NoAudience,
    /// The algorithm set is empty.
    #[error("issuer has no allowed algorithm")]
    NoAlgorithm,
    /// More than [`MAX_CLOCK_SKEW`].
    #[error("clock skew of {0:?} is more than 60 s; correct the clocks instead")]
    ClockSkew(Duration),
}

impl IssuerConfig {
    /// An issuer by its configured `name`, its exact `iss`, and the audiences of which a token must name at
    /// least one. All algorithms, [`TokenTypes::Jwt`], no clock skew and the default mapping, until told
    /// otherwise.
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
            mapping: Mapping::default(),
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

    /// Forgives clocks this far apart, at most [`MAX_CLOCK_SKEW`].
    pub fn with_clock_skew(mut self, clock_skew: Duration) -> Result<Self, IssuerConfigError> {
        if clock_skew > MAX_CLOCK_SKEW {
            return Err(IssuerConfigError::ClockSkew(clock_skew));
        }
        self.clock_skew = clock_skew;
        Ok(self)
    }

    /// Maps claims to identities this way.
    #[must_use]
    pub fn with_mapping(mut self, mapping: Mapping) -> Self {
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

    /// A token must name one of these in `aud`.
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

    /// How far apart the clocks may be.
    pub fn clock_skew(&self) -> Duration {
        self.clock_skew
    }

    /// How claims become an identity.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

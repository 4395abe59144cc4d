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

/// Where an issuer identifier of many tenants has the tenant: that of Microsoft Entra ID.
pub const TENANT: &str = "{tenantid}";

/// Whose tokens an issuer with [`TENANT`] in its identifier may issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenants {
    /// Those of these tenants.
    Listed(Vec<Box<str>>),
    /// Those of every tenant.
    Any,
}

/// An issuer: how its tokens are recognized, verified and mapped.
#[derive(Debug, Clone)]
pub struct IssuerConfig {
    name: Box<str>,
    issuer: Box<str>,
    tenants: Tenants,
    audiences: Vec<Box<str>>,
    audience_claim: Box<str>,
    algorithms: AlgorithmSet,
    types: TokenTypes,
    id_tokens: bool,
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
            tenants: Tenants::Listed(Vec::new()),
            audiences,
            audience_claim: "aud".into(),
            algorithms: AlgorithmSet::ALL,
            types: TokenTypes::Jwt,
            id_tokens: false,
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

    /// Accepts ID tokens too, and tokens that cannot be distinguished from them. Their audience is
    /// the client that logged its user in.
    #[must_use]
    pub fn with_id_tokens(mut self) -> Self {
        self.id_tokens = true;
        self
    }

    /// Reads the audience from this claim in place of `aud`.
    #[must_use]
    pub fn with_audience_claim(mut self, claim: &str) -> Self {
        self.audience_claim = claim.into();
        self
    }

    /// Accepts the tokens of these tenants, whose identifiers are in the place of [`TENANT`].
    #[must_use]
    pub fn with_tenants(mut self, tenants: Tenants) -> Self {
        self.tenants = tenants;
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

    /// The exact `iss` of its tokens, or a pattern with [`TENANT`].
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Whether tokens with this `iss` are of this issuer.
    pub fn is_issuer(&self, iss: &str) -> bool {
        *self.issuer == *iss || self.tenant(iss).is_some()
    }

    /// The tenant that an `iss` names, if it is one of those that are accepted.
    pub(super) fn tenant<'i>(&self, iss: &'i str) -> Option<&'i str> {
        let (before, after) = self.issuer.split_once(TENANT)?;
        let tenant = iss.strip_prefix(before)?.strip_suffix(after)?;
        let is_accepted = match &self.tenants {
            Tenants::Listed(tenants) => tenants.iter().any(|listed| **listed == *tenant),
            Tenants::Any => !tenant.is_empty(),
        };
        // Nothing that could be another part of a URL.
        let is_name = tenant.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (is_accepted && is_name).then_some(tenant)
    }

    /// Whether the identifier is a pattern with [`TENANT`].
    pub(super) fn has_tenants(&self) -> bool {
        self.issuer.contains(TENANT)
    }

    /// Accepted audiences: a token must name one of these in [`Self::audience_claim`].
    pub fn audiences(&self) -> &[Box<str>] {
        &self.audiences
    }

    /// Name of the claim with the audience.
    pub fn audience_claim(&self) -> &str {
        &self.audience_claim
    }

    /// Whether ID tokens are accepted.
    pub fn accepts_id_tokens(&self) -> bool {
        self.id_tokens
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

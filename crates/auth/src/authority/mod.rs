//! What an authority says of a token that it was asked about: the strict reading of its answer.
//!
//! Owns: the three kinds of answer ([`introspection`], which may be signed ([`signed_introspection`]), [`token_review`],
//! [`openshift_user`]) and what they prove ([`Facts`]). Does not own: which authority is asked about which token, asking it, and remembering what it said.
//!
//! An answer either says clearly that the token is good, or clearly that it is not ([`TokenError`], the client's fault, 401), or
//! it says nothing ([`IntrospectionUnclear`]): then nobody knows who is calling, which is 503, never remembered and never let through.

pub mod introspection;
pub mod openshift_user;
pub mod signed_introspection;
pub mod token_review;

use crate::identity::Facts;
use crate::json::{Document, JsonError, Value};
use crate::mapping::Mapping;
use crate::token_error::TokenError;

/// What is expected of an authority's answers.
#[derive(Debug, Clone)]
pub struct AuthorityConfig {
    /// The configured name, which rules and metrics use.
    pub name: Box<str>,
    /// A token must be for one of these; `None`: whomever it is for, it is good here.
    pub audiences: Option<Vec<Box<str>>>,
    /// Exact `iss` of an introspection, where it says one.
    pub issuer: Option<Box<str>>,
    /// How the members of an introspection become an identity.
    pub mapping: Mapping,
}

/// What an answer proves.
pub type IntrospectionVerdict = Result<Facts, TokenError>;

/// An answer that proves nothing either way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntrospectionUnclear {
    /// It cannot be read.
    #[error("the answer is {0}")]
    Json(#[from] JsonError),
    /// It is no object.
    #[error("the answer is not a json object")]
    NotAnObject,
    /// A member that decides is missing, or of another type.
    #[error("the answer has no usable member `{0}`")]
    Member(&'static str),
    /// It says that the token is good, and that it could not be checked.
    #[error(
        "the answer calls the token good beside an error that kept it from being checked; see the log of the api server"
    )]
    Contradictory,
    /// It has to be signed, and is not, or not as it has to be.
    #[error("the answer cannot be believed as a signed one: {0}")]
    Signed(TokenError),
    /// The same, but newer keys of whoever signed it may fit.
    #[error("the answer cannot be believed as a signed one, with the keys at hand: {0}")]
    Keys(TokenError),
}

/// The object of an answer.
fn object(document: &Document) -> Result<Value<'_>, IntrospectionUnclear> {
    let root = document.root();
    if root.is_object() { Ok(root) } else { Err(IntrospectionUnclear::NotAnObject) }
}

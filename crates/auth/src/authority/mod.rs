//! Token authority answers: the strict parsing of what an authority says about a token.
//!
//! Owns: the three kinds of answer ([`introspection`], which may be signed
//! ([`signed_introspection`]), [`token_review`], [`openshift_user`]) and what they prove
//! ([`Facts`]). Does not own: which authority is queried about which token, the query itself, and
//! caching its answer.
//!
//! An answer says clearly that the token is valid, or clearly that it is not ([`TokenError`], an
//! error of the client, 401). Otherwise it says nothing ([`AnswerUnclear`]): then the caller
//! is unknown, the response is 503, and the answer is never cached and never admits the request.

pub mod introspection;
pub mod openshift_user;
pub mod signed_introspection;
pub mod token_review;

use crate::identity::Facts;
use crate::json::{Document, JsonError, Value};
use crate::mapping::ClaimMapping;
use crate::token_error::TokenError;

/// What is expected of a token authority's answers.
#[derive(Debug, Clone)]
pub struct AuthorityConfig {
    /// The configured name, which rules and metrics use.
    pub name: Box<str>,
    /// Audiences of which a token must have one; `None`: the audience is not checked.
    pub audiences: Option<Vec<Box<str>>>,
    /// The exact `iss` of an introspection, if it has one.
    pub issuer: Option<Box<str>>,
    /// How the members of an introspection become an identity.
    pub mapping: ClaimMapping,
}

/// What an answer proves: facts about the caller, or why the token is refused.
pub type AuthorityVerdict = Result<Facts, TokenError>;

/// Why an answer proves nothing either way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerUnclear {
    /// The answer is not strict JSON.
    #[error("the answer is {0}")]
    Json(#[from] JsonError),
    /// The answer is JSON, but not an object.
    #[error("the answer is not a JSON object")]
    NotAnObject,
    /// A deciding member is missing, or has another type.
    #[error("the answer has no usable member `{0}`")]
    Member(&'static str),
    /// The answer says that the token is valid, and that it could not be checked.
    #[error(
        "the answer says that the token is valid and that it could not be checked; see the log of the API server"
    )]
    Contradictory,
    /// The answer must be signed, and is not, or not as required.
    #[error("the signed answer is not valid: {0}")]
    Signed(TokenError),
    /// As [`Self::Signed`], but newer keys of the signer may fit.
    #[error("the signed answer is not valid with the current keys: {0}")]
    Keys(TokenError),
}

/// The object of an answer.
fn object(document: &Document) -> Result<Value<'_>, AnswerUnclear> {
    let root = document.root();
    if root.is_object() { Ok(root) } else { Err(AnswerUnclear::NotAnObject) }
}

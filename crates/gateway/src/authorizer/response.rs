//! Response: an authorizer's response as it arrived, and why one is unusable.
//!
//! Owns: finding its fields. Does not own: what they mean ([`super::answer`]).

/// An authorizer's response as it arrived.
#[derive(Debug, Default)]
pub(crate) struct AuthorizerResponse {
    pub(crate) status: u16,
    /// Field names as received, with their values.
    pub(crate) fields: Vec<(Box<str>, Box<[u8]>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<Box<http::HeaderMap>>,
}

/// Why an answer is unusable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("the request has characters that an authorizer query cannot carry")]
    InvalidQuery,
    #[error("the answer is not valid HTTP, or its head is too large")]
    NotHttp,
    #[error("the answer's body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the answer has the invalid status {0}")]
    Status(u16),
    #[error("the call failed with the gRPC status {0}")]
    Call(u32),
    #[error("the answer is no CheckResponse of gRPC")]
    NotGrpc,
    #[error("the answer repeats the field {0}")]
    Repeated(Box<str>),
    #[error("the answer's field {0} is not valid UTF-8")]
    NotText(Box<str>),
    #[error("the answer's field {0} is not a number of milliseconds")]
    NotMillis(&'static str),
}

impl AuthorizerResponse {
    /// The value of a field that may occur once.
    pub(super) fn single_field(&self, name: &str) -> Result<Option<&[u8]>, AnswerError> {
        let mut of_name = self.fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        match (of_name.next(), of_name.next()) {
            (Some(_), Some(_)) => Err(AnswerError::Repeated(name.into())),
            (first, _) => Ok(first.map(|(_, value)| &**value)),
        }
    }

    /// The values of all fields of a name.
    pub(super) fn values(&self, name: &'static str) -> impl Iterator<Item = &[u8]> {
        let of_name = self.fields.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name));
        of_name.map(|(_, value)| &**value)
    }

    /// The members of a list in all fields of a name (RFC 9110 section 5.6.1); `None` for a value that
    /// is not UTF-8.
    pub(super) fn list(&self, name: &'static str) -> impl Iterator<Item = Option<&str>> {
        self.values(name).flat_map(|value| {
            let text = std::str::from_utf8(value).ok();
            let parts = text.into_iter().flat_map(|text| text.split(',').map(str::trim));
            let parts = parts.filter(|part| !part.is_empty()).map(Some);
            parts.chain(text.is_none().then_some(None))
        })
    }
}

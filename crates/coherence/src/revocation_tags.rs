//! Revocation tags: what an authority adds to an answer about a credential, so that the caller may
//! cache the answer.
//!
//! Owns: the text form, a header field of the HTTP response beside the answer. Does not own: the
//! answer.
//!
//! A server that only follows the authority may pass the field on. It then gives the head that it
//! has applied itself, and the issuer whose log that is ([`ISSUER_FIELD`]).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::log_types::{Epoch, LogHead, Tag};

/// Name of the header field.
pub const REVOCATION_FIELD: &str = "postern-revocable";

/// Name of the header field with the `iss` of the authority, when another server answers.
pub const ISSUER_FIELD: &str = "postern-revocable-by";

/// Head of the log when the answer was read, and what can revoke the credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationTags {
    /// Revocations up to this head are included in the answer.
    pub as_of: LogHead,
    /// When the credential was issued, in milliseconds since 1970.
    pub issued_at: i64,
    /// Tags of the credential; at least one.
    pub tags: Vec<Tag>,
}

impl RevocationTags {
    /// Parses what [`Display`](fmt::Display) writes; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let mut next = || parts.next();
        let (epoch, seq, issued_at, tags) = (next()?, next()?, next()?, next()?);
        let tags = STANDARD.decode(tags).ok()?;
        let (tags, rest) = tags.as_chunks::<{ Tag::LENGTH }>();
        let whole = rest.is_empty() && !tags.is_empty() && next().is_none();
        let epoch = Epoch(STANDARD.decode(epoch).ok()?.try_into().ok()?);
        let as_of = LogHead { epoch, seq: seq.parse().ok()? };
        let tags = tags.iter().map(|tag| Tag(*tag)).collect();
        whole.then_some(Self { as_of, issued_at: issued_at.parse().ok()?, tags })
    }
}

impl fmt::Display for RevocationTags {
    /// Epoch, sequence number, milliseconds, and the tags one after the other; bytes in base64.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags: Vec<u8> = self.tags.iter().flat_map(|tag| tag.0).collect();
        let (epoch, tags) = (STANDARD.encode(self.as_of.epoch.0), STANDARD.encode(tags));
        write!(f, "{epoch} {} {} {tags}", self.as_of.seq, self.issued_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_nothing_else_is() {
        let as_of = LogHead { epoch: Epoch([1; 16]), seq: 7 };
        let statement =
            RevocationTags { as_of, issued_at: 1_700_000_000_123, tags: vec![Tag([2; 16]), Tag([3; 16])] };
        let text = statement.to_string();
        assert_eq!(RevocationTags::parse(&text), Some(statement));
        let none = RevocationTags { as_of, issued_at: 0, tags: Vec::new() }.to_string();
        for bad in ["", " ", "x 1 2 y", &none, &format!("{text} more"), &text[..text.len() - 4], &text[1..]] {
            assert_eq!(RevocationTags::parse(bad), None, "{bad:?}");
        }
    }
}

//! The end of a head: found while its bytes arrive, without parsing it.
//!
//! Owns: where a head ends, and whether a known block ends it. Does not own: what it says ([`super`]),
//! what is known of a block ([`super::block`]).

use super::{Fields, HeadFault, HeaderBlock, MAX_FIELDS, RequestHead, ResponseHead};

/// How long a head is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLength {
    /// All of it, with its final empty line.
    pub bytes: usize,
    /// Its first line with the line end, if the known block follows.
    line: Option<usize>,
}

impl HeadLength {
    /// Parses the head of a response that ends with the known block; `None`: it does not, or
    /// [`super::parse_response`] must tell what is wrong with it.
    pub(crate) fn parse_repeated_response<'a>(
        &self,
        head: &'a [u8],
        known: Option<&'a HeaderBlock>,
        fields: &mut Fields<'a>,
    ) -> Option<ResponseHead<'a>> {
        known?.parse_response(head.get(..self.line?)?, fields)
    }

    /// Parses the head of a request that ends with the known block; `None`: it does not, or
    /// [`super::parse_to_remember`] must tell what is wrong with it.
    pub fn parse_repeated<'a>(
        &self,
        head: &'a [u8],
        known: Option<&'a HeaderBlock>,
        target_bytes: usize,
        fields: &mut Fields<'a>,
    ) -> Option<RequestHead<'a>> {
        known?.parse_request(head.get(..self.line?)?, target_bytes, fields)
    }
}

/// Length of the head at the front of `buf`, with its final empty line; `None`: it is incomplete.
///
/// # Errors
/// The lines so far cannot be those of a head, see [`HeadFault`].
pub fn head_length(buf: &[u8]) -> Result<Option<usize>, HeadFault> {
    HeadScanner::default().scan(buf, MAX_FIELDS)
}

/// Finds the end of a head while bytes arrive. Examines each byte once, however slowly they arrive.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct HeadScanner {
    /// Offset of the current line.
    line: usize,
    /// Number of bytes examined.
    scanned: usize,
    /// Number of complete lines, the first line included.
    lines: usize,
}

impl HeadScanner {
    /// As [`Self::scan`]. A head that arrives at once and ends with a known block is only compared with
    /// it.
    pub(crate) fn scan_known(
        &mut self,
        buf: &[u8],
        max_fields: usize,
        known: Option<&HeaderBlock>,
    ) -> Result<Option<HeadLength>, HeadFault> {
        if self.scanned == 0
            && let Some(block) = known
            && let Some(line) = block.line_in_front(buf)
        {
            return Ok(Some(HeadLength { bytes: line + block.len(), line: Some(line) }));
        }
        Ok(self.scan(buf, max_fields)?.map(|bytes| HeadLength { bytes, line: None }))
    }

    /// Length of the head in `buf` with its final empty line; `None`: it is incomplete. `buf` must
    /// start with the same bytes on each call. Empty lines before the request line count as part of
    /// the head: RFC 9112 §2.2 lets a server skip them, and the size of the head limits their
    /// number.
    pub(crate) fn scan(&mut self, buf: &[u8], max_fields: usize) -> Result<Option<usize>, HeadFault> {
        while let Some(offset) = memchr::memchr(b'\n', &buf[self.scanned..]) {
            let end = self.scanned + offset;
            if end == self.line || buf[end - 1] != b'\r' {
                return Err(HeadFault::BareLineEnd);
            }
            let empty = end - 1 == self.line;
            self.scanned = end + 1;
            self.line = end + 1;
            if !empty {
                self.lines += 1;
                if self.lines > max_fields.min(MAX_FIELDS) + 1 {
                    return Err(HeadFault::TooManyFields);
                }
            } else if self.lines > 0 {
                *self = Self::default();
                return Ok(Some(end + 1));
            }
        }
        self.scanned = buf.len();
        Ok(None)
    }
}

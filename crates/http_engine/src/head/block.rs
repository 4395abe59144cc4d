//! Header block: the part of a head after its first line, remembered with its meaning.
//!
//! Most clients send the same fields with every request of a connection. A block whose bytes were
//! parsed before is not parsed again: its end is found by a comparison, and its fields are taken from
//! where they were.
//!
//! Owns: the bytes of one block, where its fields are, what they say about framing and the
//! connection, and when a block is worth remembering. Does not own: the grammar ([`super`]), how long
//! a connection remembers, what else follows from a block.
//!
//! What follows from a block depends on its bytes, on the first line and on limits that stay the same
//! for a connection. Whatever is unusual about a head (empty lines in front, an invalid first line) is
//! parsed as a whole. Responses are remembered in the same way: those of one second often have the same
//! fields.

use std::cell::{Cell, OnceCell};
use std::ops::Range;

use auth::request::Field;

use super::{ConnectionFields, ControlFields, Fields, RequestHead, RequestLine, ResponseHead, StatusLine};

/// Largest block that is remembered, in bytes. Larger ones are rare, and a copy of each would cost the
/// memory of many connections.
pub(crate) const MAX_BLOCK: usize = 4 * 1024;
/// Longest status line that is remembered, in bytes.
const MAX_STATUS_LINE: usize = 128;

/// Identifies the bytes of a block within its connection. Two requests of a connection with the same
/// number have the same fields: no number is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockId(u32);

/// Decides which blocks a connection remembers, and numbers them.
#[derive(Default)]
pub(crate) struct Repetitions {
    /// Number of heads since one had the remembered block.
    misses: Cell<u32>,
    /// Number of blocks that were remembered so far.
    remembered: Cell<u32>,
}

impl Repetitions {
    /// Takes note of a head that has the remembered block.
    pub(crate) fn hit(&self) {
        self.misses.set(0);
    }

    /// Takes note of another head; the number of its block if that is to be remembered. It is if it is
    /// the second, fourth, eighth … in a row: a connection with one request has no use for it, and
    /// where all blocks differ, as from a proxy, ever fewer are copied.
    pub(crate) fn miss(&self) -> Option<BlockId> {
        let misses = self.misses.get().saturating_add(1);
        self.misses.set(misses);
        if misses < 2 || !misses.is_power_of_two() {
            return None;
        }
        // A connection that has used all numbers remembers no more.
        let id = self.remembered.get().checked_add(1)?;
        self.remembered.set(id);
        Some(BlockId(id))
    }

    /// Begins anew. Numbers are not used again.
    pub(crate) fn forget(&self) {
        self.misses.set(0);
    }
}

/// The block that a connection remembers.
#[derive(Default)]
pub struct BlockMemory {
    block: Option<Box<HeaderBlock>>,
    /// The block that takes its place at the next head: fields of the present one may borrow from it.
    next: Cell<Option<Box<HeaderBlock>>>,
    repetitions: Repetitions,
}

impl BlockMemory {
    /// Begins with a head. It may end with the block that [`Self::block`] returns. Returns whether that
    /// is another one than before.
    pub fn begin(&mut self) -> bool {
        let next = self.next.take();
        let is_other = next.is_some();
        if is_other {
            self.block = next;
        }
        is_other
    }

    /// The block to compare a head with.
    pub fn block(&self) -> Option<&HeaderBlock> {
        self.block.as_deref()
    }

    /// Takes note of a head that has the remembered block.
    pub fn hit(&self) {
        self.repetitions.hit();
    }

    /// Takes note of another head. Its block may be remembered instead.
    pub fn miss(&self, head: &[u8], fields: &Fields<'_>, facts: BlockFacts) {
        if let Some(id) = self.repetitions.miss() {
            self.next.set(HeaderBlock::new(id, head, fields, facts).map(Box::new));
        }
    }

    /// Forgets the block and frees its memory.
    pub fn forget(&mut self) {
        self.repetitions.forget();
        self.block = None;
        self.next.set(None);
    }
}

/// A block with what it means.
#[derive(Debug)]
pub struct HeaderBlock {
    id: BlockId,
    /// From the first field line to the final empty line.
    bytes: Box<[u8]>,
    /// The names of all fields, one after the other.
    names: Box<str>,
    fields: Box<[FieldPlace]>,
    facts: BlockFacts,
    /// The lines that a response forwards, once they were asked for.
    forwarded: OnceCell<Box<[u8]>>,
    /// The status line of the first response that was parsed with it, and what it says.
    status: OnceCell<(Box<[u8]>, StatusLine)>,
}

/// What a block says about framing and the connection. Values of fields are given by the position of
/// their field.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockFacts {
    coding: bool,
    length: Option<u64>,
    host: Option<u16>,
    protocol: Option<u16>,
    /// The other facts; its values are not used.
    connection: ConnectionFields<'static>,
}

/// Where a field is.
#[derive(Debug)]
struct FieldPlace {
    /// In the names.
    name: Range<u16>,
    /// In the bytes.
    value: Range<u16>,
}

impl BlockFacts {
    /// What a parsed block says.
    pub(super) fn new(control: &ControlFields<'_>) -> Self {
        let ControlFields { connection, coding, length, host_at, protocol_at, .. } = control;
        Self {
            coding: *coding,
            length: *length,
            host: *host_at,
            protocol: *protocol_at,
            connection: ConnectionFields { host: None, protocol: None, ..*connection },
        }
    }
}

impl HeaderBlock {
    /// Copies the block of a head that was parsed into `fields`; `None`: it is too large, or the head
    /// does not begin with its request line.
    fn new(id: BlockId, head: &[u8], fields: &Fields<'_>, facts: BlockFacts) -> Option<Self> {
        let line = first_line(head)?;
        let bytes = head.get(line..).filter(|bytes| bytes.len() <= MAX_BLOCK)?;
        let start = bytes.as_ptr().addr();
        let mut names = String::new();
        let mut places = Vec::with_capacity(fields.len());
        for field in fields {
            let value = field.value.as_ptr().addr().checked_sub(start)?;
            let at = names.len();
            names.push_str(field.name);
            places.push(FieldPlace {
                name: range(at, names.len())?,
                value: range(value, value + field.value.len())?,
            });
        }
        let (bytes, names) = (Box::from(bytes), names.into_boxed_str());
        let fields = places.into_boxed_slice();
        Some(Self { id, bytes, names, fields, facts, forwarded: OnceCell::new(), status: OnceCell::new() })
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The number of the block.
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// Length of the first line in front of this block, with its line end; `None`: `buf` does not begin
    /// with one line and this block.
    pub(crate) fn line_in_front(&self, buf: &[u8]) -> Option<usize> {
        let line = first_line(buf)?;
        buf[line..].starts_with(&self.bytes).then_some(line)
    }

    /// Parses a head that consists of this request line and this block. The result is that of
    /// [`super::parse_request`]; `None`: only that can tell.
    pub(super) fn parse_request<'a>(
        &'a self,
        line: &'a [u8],
        target_bytes: usize,
        fields: &mut Fields<'a>,
    ) -> Option<RequestHead<'a>> {
        let mut request = httparse::Request::new(&mut []);
        // The line is complete, and the fields are missing.
        let Ok(httparse::Status::Partial) = request.parse(line) else { return None };
        let line = RequestLine::new(&request, target_bytes).ok()?;
        let connection = self.fields(fields)?;
        line.head(connection, self.facts.coding, self.facts.length).ok()
    }

    /// Parses a head that consists of this status line and this block. The result is that of
    /// [`super::parse_response`]; `None`: only that can tell.
    pub(super) fn parse_response<'a>(
        &'a self,
        line: &[u8],
        fields: &mut Fields<'a>,
    ) -> Option<ResponseHead<'a>> {
        let status = match self.status.get() {
            Some((known, status)) if **known == *line => *status,
            _ => {
                let mut response = httparse::Response::new(&mut []);
                let Ok(httparse::Status::Partial) = response.parse(line) else { return None };
                let status = StatusLine::new(&response).ok()?;
                if line.len() <= MAX_STATUS_LINE {
                    self.status.get_or_init(|| (Box::from(line), status));
                }
                status
            }
        };
        let connection = self.fields(fields)?;
        status.head(connection, self.facts.coding, self.facts.length).ok()
    }

    /// The fields, and what they say about the connection.
    fn fields<'a>(&'a self, fields: &mut Fields<'a>) -> Option<ConnectionFields<'a>> {
        for FieldPlace { name, value } in &self.fields {
            let name = self.names.get(usize::from(name.start)..usize::from(name.end))?;
            let value = self.bytes.get(usize::from(value.start)..usize::from(value.end))?;
            fields.try_push(Field { name, value }).ok()?;
        }
        let value = |at: Option<u16>| at.and_then(|at| Some(fields.get(usize::from(at))?.value));
        let BlockFacts { host, protocol, connection, .. } = self.facts;
        Some(ConnectionFields { host: value(host), protocol: value(protocol), ..connection })
    }

    /// The lines with those fields that a response forwards. `put` writes them, once.
    pub(crate) fn forwarded(&self, put: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        self.forwarded.get_or_init(|| {
            let mut lines = Vec::new();
            put(&mut lines);
            lines.into_boxed_slice()
        })
    }
}

/// Length of the first line with its line end, if it is not empty and ends with CRLF.
fn first_line(buf: &[u8]) -> Option<usize> {
    let end = memchr::memchr(b'\n', buf)?;
    (end > 1 && buf[end - 1] == b'\r').then_some(end + 1)
}

pub(crate) fn range(start: usize, end: usize) -> Option<Range<u16>> {
    Some(u16::try_from(start).ok()?..u16::try_from(end).ok()?)
}

#[cfg(test)]
mod tests {
    use super::super::{HeadScanner, MAX_FIELDS, parse_response};
    use super::*;

    /// What is read of a response, and whether the remembered block was used.
    fn read(memory: &mut BlockMemory, text: &str) -> (String, bool) {
        memory.begin();
        let found = HeadScanner::default().scan_known(text.as_bytes(), MAX_FIELDS, memory.block());
        let found = found.unwrap().unwrap();
        assert_eq!(found.bytes, text.len());
        let mut fields = Fields::new();
        let repeated = found.parse_repeated_response(text.as_bytes(), memory.block(), &mut fields);
        let is_repeated = repeated.is_some();
        let head = match repeated {
            Some(head) => {
                memory.hit();
                head
            }
            None => {
                fields.clear();
                let (head, facts) = match parse_response(text.as_bytes(), &mut fields) {
                    Ok(read) => read,
                    Err(fault) => return (format!("{fault:?}"), false),
                };
                memory.miss(text.as_bytes(), &fields, facts);
                head
            }
        };
        (format!("{head:?} {fields:?}"), is_repeated)
    }

    #[test]
    fn a_response_with_a_known_block_is_read_as_any_other() {
        let block = "Date: now\r\nContent-Type: text/plain\r\nConnection: keep-alive, x-hop\r\nX-Hop: h\r\n\
                     Content-Length: 5\r\n\r\n";
        let other = "Transfer-Encoding: chunked\r\nDate: now\r\n\r\n";
        let heads = [
            (format!("HTTP/1.1 200 OK\r\n{block}"), false),
            (format!("HTTP/1.1 200 OK\r\n{block}"), false),
            (format!("HTTP/1.1 200 OK\r\n{block}"), true),
            (format!("HTTP/1.0 404\r\n{block}"), true),
            (format!("HTTP/1.1 304 Not Modified\r\n{block}"), true),
            (format!("HTTP/1.1 204 \r\n{block}"), true),
            (format!("HTTP/1.1 20 OK\r\n{block}"), false),
            (format!("HTTP/2 200 OK\r\n{block}"), false),
            (format!("\r\nHTTP/1.1 200 OK\r\n{block}"), false),
            (format!("HTTP/1.1 200 OK\r\n{other}"), false),
            (format!("HTTP/1.1 200 OK\r\n{other}"), true),
            (format!("HTTP/1.1 500 OK\r\n{other}"), true),
            // A coding that HTTP/1.0 does not have.
            (format!("HTTP/1.0 200 OK\r\n{other}"), false),
            (format!("HTTP/1.1 200 OK\r\n{block}"), false),
        ];
        let mut memory = BlockMemory::default();
        for (at, (text, expected)) in heads.iter().enumerate() {
            let (seen, is_repeated) = read(&mut memory, text);
            assert_eq!(seen, read(&mut BlockMemory::default(), text).0, "{at}: {text:?}");
            assert_eq!(is_repeated, *expected, "{at}: {text:?}");
        }
    }

    #[test]
    fn blocks_that_never_repeat_are_seldom_copied() {
        let mut memory = BlockMemory::default();
        for number in 0..100 {
            let (_, is_repeated) = read(&mut memory, &format!("HTTP/1.1 200 OK\r\nAge: {number}\r\n\r\n"));
            assert!(!is_repeated);
        }
        assert_eq!(memory.repetitions.remembered.get(), 6, "2, 4, 8, 16, 32, 64");
        memory.repetitions.remembered.set(u32::MAX - 1);
        let ids = |memory: &BlockMemory| (0..9).filter_map(|_| memory.repetitions.miss()).collect::<Vec<_>>();
        memory.forget();
        assert_eq!(ids(&memory), [BlockId(u32::MAX)], "no number is used twice");
        let large = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(MAX_BLOCK));
        let mut memory = BlockMemory::default();
        assert!((0..9).all(|_| !read(&mut memory, &large).1), "too large to be kept");
        assert!(memory.block().is_none());
        read(&mut memory, "HTTP/1.1 200 OK\r\n\r\n");
        memory.forget();
        assert!(memory.block().is_none() && memory.next.take().is_none());
    }
}

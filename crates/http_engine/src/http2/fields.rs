//! Fields of a request over HTTP/2, in the form of both codecs, and the memory of a connection for
//! them.
//!
//! Most clients send the same fields with every request of a connection. What followed from them is
//! then known, as with a header block of HTTP/1 ([`crate::head::BlockMemory`]).
//!
//! Owns: which fields are malformed, the cookies joined, whether the fields are those of a request
//! before. Does not own: pseudo-header fields and HPACK (the `h2` crate), how long a connection
//! remembers, what else follows from the fields.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use auth::request::Field;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_LENGTH, COOKIE, HOST};

use crate::head::{BlockId, Fields, HeadFault, MAX_BLOCK, Repetitions, names_html, range, trim};

/// What the fields of a request say about it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FieldFacts {
    /// Position of the `Host` field.
    host: Option<u16>,
    /// Whether the length of the body is stated, even if it is 0.
    pub has_length: bool,
    /// Whether `Accept` names HTML, as browsers do when they navigate.
    pub accepts_html: bool,
}

impl FieldFacts {
    /// Value of the `Host` field among the fields that were read with these facts.
    pub fn host<'a>(&self, fields: &[Field<'a>]) -> Option<&'a [u8]> {
        Some(fields.get(usize::from(self.host?))?.value)
    }
}

/// The cookies in one value, when the client sent several fields (RFC 9113 §8.2.3).
pub fn joined_cookies(map: &HeaderMap) -> Option<Vec<u8>> {
    let mut crumbs = map.get_all(COOKIE).iter();
    let (first, second) = (crumbs.next()?, crumbs.next()?);
    let mut joined = first.as_bytes().to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(crumb.as_bytes());
    }
    Some(joined)
}

/// Reads the fields of a request, of which `cookies` are the joined ones. At most `most` are
/// accepted.
///
/// # Errors
/// For a value with white space around it, several `Host` fields, and too many fields.
pub fn read_fields<'a>(
    map: &'a HeaderMap,
    cookies: Option<&'a [u8]>,
    most: usize,
    fields: &mut Fields<'a>,
) -> Result<FieldFacts, HeadFault> {
    if map.len() > most {
        return Err(HeadFault::TooManyFields);
    }
    let mut facts = FieldFacts::default();
    for (name, value) in map {
        let value = value.as_bytes();
        if name == HOST && facts.host.replace(position(fields)).is_some() {
            return Err(HeadFault::RepeatedHost);
        }
        // Malformed (RFC 9113 §8.2.1); also, an HTTP/1 upstream would read another value than the
        // decision did.
        if trim(value).len() != value.len() {
            return Err(HeadFault::FieldLine);
        }
        facts.accepts_html |= name == ACCEPT && names_html(value);
        facts.has_length |= name == CONTENT_LENGTH;
        if !(cookies.is_some() && name == COOKIE) {
            push(Field { name: name.as_str(), value }, fields)?;
        }
    }
    if let Some(value) = cookies {
        push(Field { name: "cookie", value }, fields)?;
    }
    Ok(facts)
}

fn push<'a>(field: Field<'a>, fields: &mut Fields<'a>) -> Result<(), HeadFault> {
    fields.try_push(field).map_err(|_| HeadFault::TooManyFields)
}

/// The position of the field that follows. There are not more than fit into [`Fields`].
fn position(fields: &Fields<'_>) -> u16 {
    u16::try_from(fields.len()).unwrap_or(u16::MAX)
}

/// The fields that a connection remembers. Its requests use it at the same time.
#[derive(Default)]
pub struct FieldMemory {
    block: RefCell<Option<Rc<FieldBlock>>>,
    repetitions: Repetitions,
}

impl FieldMemory {
    /// The remembered fields, if a request has the same in the same order.
    pub fn find(&self, map: &HeaderMap) -> Option<Rc<FieldBlock>> {
        let block = self.block.borrow().as_ref().filter(|block| block.is(map)).cloned()?;
        self.repetitions.hit();
        Some(block)
    }

    /// Takes note of a request with other fields, and of what was read of them. Returns whether they
    /// are remembered from now on, instead of those before.
    pub fn miss(&self, map: &HeaderMap, cookies: Option<&[u8]>, facts: FieldFacts) -> bool {
        let block = self.repetitions.miss().and_then(|id| FieldBlock::new(id, map, cookies, facts));
        let is_other = block.is_some();
        if is_other {
            self.block.replace(block.map(Rc::new));
        }
        is_other
    }

    /// Whether nothing is remembered.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.block.borrow().is_none()
    }

    /// Forgets the fields and frees their memory, unless a request uses it at the moment.
    pub fn forget(&self) {
        self.repetitions.forget();
        self.block.replace(None);
    }
}

/// Fields with what was read of them.
pub struct FieldBlock {
    id: BlockId,
    /// The names of all fields, one after the other.
    names: Box<str>,
    /// The values, likewise.
    values: Box<[u8]>,
    fields: Box<[FieldPlace]>,
    /// The cookies, if several fields were joined.
    cookies: Option<Box<[u8]>>,
    facts: FieldFacts,
}

/// Where a field is.
struct FieldPlace {
    name: Range<u16>,
    value: Range<u16>,
    /// Whether the cookies in one value take its place.
    is_joined: bool,
}

impl FieldBlock {
    /// Copies fields; `None`: they are too large.
    fn new(id: BlockId, map: &HeaderMap, cookies: Option<&[u8]>, facts: FieldFacts) -> Option<Self> {
        let (mut names, mut values) = (String::new(), Vec::new());
        let mut fields = Vec::with_capacity(map.len());
        for (name, value) in map {
            let (name_at, value_at) = (names.len(), values.len());
            names.push_str(name.as_str());
            values.extend_from_slice(value.as_bytes());
            if names.len() + values.len() > MAX_BLOCK {
                return None;
            }
            fields.push(FieldPlace {
                name: range(name_at, names.len())?,
                value: range(value_at, values.len())?,
                is_joined: cookies.is_some() && name == COOKIE,
            });
        }
        Some(Self {
            id,
            names: names.into_boxed_str(),
            values: values.into_boxed_slice(),
            fields: fields.into_boxed_slice(),
            cookies: cookies.map(Box::from),
            facts,
        })
    }

    /// The number of the block.
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// Whether the fields of a request are these, in this order.
    fn is(&self, map: &HeaderMap) -> bool {
        map.len() == self.fields.len()
            && map.iter().zip(&self.fields).all(|((name, value), place)| {
                // The values differ more often.
                self.value(place) == Some(value.as_bytes()) && self.name(place) == Some(name.as_str())
            })
    }

    /// Reads the fields, with the result of [`read_fields`]; `None`: only that can tell.
    pub fn read<'a>(&'a self, fields: &mut Fields<'a>) -> Option<FieldFacts> {
        for place in self.fields.iter().filter(|place| !place.is_joined) {
            push(Field { name: self.name(place)?, value: self.value(place)? }, fields).ok()?;
        }
        if let Some(value) = self.cookies.as_deref() {
            push(Field { name: "cookie", value }, fields).ok()?;
        }
        Some(self.facts)
    }

    fn name(&self, place: &FieldPlace) -> Option<&str> {
        self.names.get(usize::from(place.name.start)..usize::from(place.name.end))
    }

    fn value(&self, place: &FieldPlace) -> Option<&[u8]> {
        self.values.get(usize::from(place.value.start)..usize::from(place.value.end))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::head::MAX_FIELDS;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    /// What is read of a request, as text, and the number of its fields if they were remembered.
    fn read(memory: &FieldMemory, map: &HeaderMap) -> (String, Option<BlockId>) {
        let known = memory.find(map);
        let cookies = if known.is_some() { None } else { joined_cookies(map) };
        let mut fields = Fields::new();
        if let Some(block) = &known {
            let facts = block.read(&mut fields).unwrap();
            return (format!("{facts:?} {:?} {fields:?}", facts.host(&fields)), Some(block.id()));
        }
        match read_fields(map, cookies.as_deref(), 20, &mut fields) {
            Ok(facts) => {
                memory.miss(map, cookies.as_deref(), facts);
                (format!("{facts:?} {:?} {fields:?}", facts.host(&fields)), None)
            }
            Err(fault) => (format!("{fault:?}"), None),
        }
    }

    #[test]
    fn remembered_fields_are_read_as_any_others() {
        let first: &[(&str, &str)] = &[
            ("accept", "text/html,*/*"),
            ("cookie", "a=b"),
            ("host", "app.test"),
            ("x-own", "1"),
            ("cookie", "c=d"),
            ("x-own", ""),
            ("content-length", "0"),
        ];
        // Each differs from the first in one respect.
        let swapped = &[first[0], first[4], first[2], first[3], first[1], first[5], first[6]];
        let shorter = &first[..6];
        let renamed = &[&first[..3], &[("x-owm", "1")], &first[4..]].concat();
        let changed = &[&first[..3], &[("x-own", "2")], &first[4..]].concat();
        // The same bytes, cut in another way.
        let cut = &[("a", "bc"), ("d", "e")];
        let other_cut = &[("a", "b"), ("d", "ce")];
        for others in [&swapped[..], shorter, &renamed[..], &changed[..], &[], &[("cookie", "a=b; c=d")]] {
            let memory = FieldMemory::default();
            let fields = [first, first, first, others, first, others, others, others, first];
            for (at, fields) in fields.map(map).iter().enumerate() {
                let fresh = read(&FieldMemory::default(), fields).0;
                assert_eq!(read(&memory, fields).0, fresh, "{at}: {fields:?}");
            }
        }
        let memory = FieldMemory::default();
        for fields in [cut, cut, other_cut, cut, other_cut, other_cut].map(|fields| map(fields)) {
            assert_eq!(read(&memory, &fields).0, read(&FieldMemory::default(), &fields).0);
        }
    }

    #[test]
    fn a_number_stands_for_the_same_fields() {
        let memory = FieldMemory::default();
        let (a, b) = (map(&[("x", "a")]), map(&[("x", "b")]));
        let numbers: Vec<_> = [&a, &a, &a, &b, &a, &b, &b, &b, &a].map(|m| read(&memory, m).1).into();
        let (first, second) = (numbers[2].unwrap(), numbers[7].unwrap());
        assert_ne!(first, second);
        assert_eq!(numbers, [None, None, Some(first), None, Some(first), None, None, Some(second), None]);
        memory.forget();
        assert!(memory.is_empty());
        let numbers: Vec<_> = [&a, &a, &a].map(|m| read(&memory, m).1).into();
        assert!(numbers[2].is_some_and(|number| number != first && number != second), "{numbers:?}");
    }

    #[test]
    fn malformed_fields_are_refused_each_time() {
        let memory = FieldMemory::default();
        let many: Vec<_> = (0..21).map(|_| ("x", "y")).collect();
        for (fields, fault) in [
            (&[("host", "a"), ("host", "a")][..], "RepeatedHost"),
            (&[("x", " y")][..], "FieldLine"),
            (&[("x", "y\t")][..], "FieldLine"),
            (&many[..], "TooManyFields"),
        ] {
            for _ in 0..4 {
                assert_eq!(read(&memory, &map(fields)), (fault.to_owned(), None));
            }
        }
        assert!(memory.is_empty());
        let more: Vec<_> = (0..=MAX_FIELDS).map(|_| ("x", "y")).collect();
        let more = map(&more);
        let mut fields = Fields::new();
        assert_eq!(read_fields(&more, None, 1000, &mut fields), Err(HeadFault::TooManyFields));
    }

    #[test]
    fn large_fields_are_not_kept() {
        let memory = FieldMemory::default();
        let large = map(&[("x", &"y".repeat(MAX_BLOCK))]);
        assert!((0..9).all(|_| read(&memory, &large).1.is_none()));
        assert!(memory.is_empty());
    }
}

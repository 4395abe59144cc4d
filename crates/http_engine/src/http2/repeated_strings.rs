//! Repeated strings: long strings that a client sends again with each request, in Huffman code.
//!
//! HPACK indexes fields, so that one that repeats takes a byte. Many clients index no credentials (RFC
//! 7541 §7.1.3): they send a token of a kilobyte with each request, in Huffman code, whose decoding
//! was a third of what a request cost. Here a string that was decoded before takes a comparison: its
//! code is replaced by the string itself, which HPACK permits in each place (RFC 7541 §5.2). To the
//! decoder behind it the block means the same, with the same sizes of its table and of its fields.
//!
//! Owns: finding the strings of a header block, and which of them a connection remembers. Does not
//! own: frames ([`super::server_socket`]), decoding (the `h2` crate). What is invalid or unusual about
//! a block is left as it is, and the decoder says what is wrong.

use std::cell::{Cell, RefCell};

use arrayvec::ArrayVec;

use crate::buffer::borrow_vec;
use crate::head::MAX_BLOCK;
use crate::http2::huffman;

/// Shortest code that is worth a comparison, in bytes.
const MIN_LENGTH: usize = 64;
/// Maximum number of strings that a connection remembers: a token, and some cookies.
const MAX_STRINGS: usize = 4;
/// Number of strings that are recognised when they come a second time: those of two requests.
const RECOGNIZED: usize = 2 * MAX_STRINGS;

/// The strings that a connection remembers.
#[derive(Default)]
pub(super) struct RepeatedStrings {
    /// The one used last is at the end.
    known: RefCell<ArrayVec<KnownString, MAX_STRINGS>>,
    seen: SeenStrings,
    /// Number of blocks with strings that came before and are not remembered, since one without.
    misses: Cell<u32>,
}

/// Fingerprints of the last strings that are not remembered. One that differs each time, such as a
/// proof of possession (RFC 9449), is never worth a copy.
#[derive(Default)]
struct SeenStrings {
    prints: Cell<[u32; RECOGNIZED]>,
    next: Cell<usize>,
}

impl SeenStrings {
    /// Takes note of a string; `true`: it came before, or one like it.
    fn add(&self, encoded: &[u8]) -> bool {
        let print = fingerprint(encoded);
        let mut prints = self.prints.get();
        if prints.contains(&print) {
            return true;
        }
        let at = self.next.get() % RECOGNIZED;
        prints[at] = print;
        self.prints.set(prints);
        self.next.set(at + 1);
        false
    }
}

/// Length and end of a string: of a token, its signature. Two strings that look the same cost a copy.
fn fingerprint(encoded: &[u8]) -> u32 {
    let end = encoded.last_chunk().map_or(0, |end| u32::from_le_bytes(*end));
    let before = encoded.iter().rev().nth(8).copied().map_or(0, u32::from);
    end ^ u32::try_from(encoded.len()).unwrap_or(u32::MAX).rotate_left(16) ^ before << 8
}

struct KnownString {
    encoded: Box<[u8]>,
    decoded: Box<[u8]>,
}

/// Where a string in Huffman code is in a block.
struct LongString {
    /// Position of its length.
    start: usize,
    /// Position of its code.
    code: usize,
    end: usize,
}

impl RepeatedStrings {
    /// Whether no string is remembered.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.known.borrow().is_empty()
    }

    /// Forgets the strings and frees their memory.
    pub(super) fn forget(&self) {
        self.misses.set(0);
        self.seen.prints.take();
        self.known.borrow_mut().clear();
    }

    /// Appends `before` and a header block to `out`, with the remembered strings in the block decoded.
    /// `false`: there are none, and nothing was appended.
    pub(super) fn rewrite(&self, before: &[u8], block: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(strings) = long_strings(block) else { return false };
        if strings.is_empty() {
            return false;
        }
        let mut known = self.known.borrow_mut();
        let (mut copied, mut repeated) = (0, ArrayVec::<&[u8], MAX_STRINGS>::new());
        for LongString { start, code, end } in strings {
            let encoded = &block[code..end];
            let Some(at) = known.iter().position(|known| *known.encoded == *encoded) else {
                if self.seen.add(encoded) {
                    repeated.push(encoded);
                }
                continue;
            };
            known[at..].rotate_left(1);
            let Some(KnownString { decoded, .. }) = known.last() else { continue };
            if copied == 0 {
                if out.capacity() == 0 {
                    *out = borrow_vec();
                }
                out.extend_from_slice(before);
            }
            out.extend_from_slice(&block[copied..start]);
            put_length(out, decoded.len());
            out.extend_from_slice(decoded);
            copied = end;
        }
        let misses = if repeated.is_empty() { 0 } else { self.misses.get().saturating_add(1) };
        self.misses.set(misses);
        // The first, second, fourth, eighth … in a row: where more strings take turns than are
        // remembered, not each is copied.
        if misses.is_power_of_two() {
            for encoded in repeated {
                remember(&mut known, encoded);
            }
        }
        if copied > 0 {
            out.extend_from_slice(&block[copied..]);
        }
        copied > 0
    }
}

/// Remembers a string, in place of those used least recently. What is invalid or too long is not
/// remembered.
fn remember(known: &mut ArrayVec<KnownString, MAX_STRINGS>, encoded: &[u8]) {
    let Some(decoded) = huffman::decode(encoded, MAX_BLOCK) else { return };
    let size = |known: &[KnownString]| known.iter().map(|known| known.decoded.len()).sum::<usize>();
    while known.is_full() || size(&known[..]) + decoded.len() > MAX_BLOCK {
        known.remove(0);
    }
    known.push(KnownString { encoded: encoded.into(), decoded: decoded.into() });
}

/// The long values in Huffman code (RFC 7541 §6), the longest of them; `None`: the block is invalid or
/// incomplete.
fn long_strings(block: &[u8]) -> Option<ArrayVec<LongString, MAX_STRINGS>> {
    let mut found = ArrayVec::new();
    let mut at = 0;
    while let Some(byte) = block.get(at) {
        let (prefix, is_literal) = match byte {
            0b1000_0000.. => (7, false),
            0b0100_0000.. => (6, true),
            // A new size of the table.
            0b0010_0000.. => (5, false),
            _ => (4, true),
        };
        let (name, next) = integer(block, at, prefix)?;
        at = next;
        if !is_literal {
            continue;
        }
        if name == 0 {
            at = string(block, at)?.end;
        }
        let value = string(block, at)?;
        let is_encoded = block[at] & 0b1000_0000 != 0;
        at = value.end;
        if is_encoded && value.end - value.code >= MIN_LENGTH {
            put_longest(&mut found, value);
        }
    }
    Some(found)
}

/// Adds a string that follows the others, in place of a shorter one if there is no room.
fn put_longest(found: &mut ArrayVec<LongString, MAX_STRINGS>, value: LongString) {
    let length = |string: &LongString| string.end - string.code;
    if found.is_full() {
        let shortest = found.iter().enumerate().min_by_key(|(_, string)| length(string));
        match shortest.map(|(at, string)| (at, length(string))) {
            Some((at, shorter)) if shorter < length(&value) => drop(found.remove(at)),
            _ => return,
        }
    }
    found.push(value);
}

/// The string at a position (RFC 7541 §5.2).
fn string(block: &[u8], start: usize) -> Option<LongString> {
    let (length, code) = integer(block, start, 7)?;
    let end = code.checked_add(length).filter(|end| *end <= block.len())?;
    Some(LongString { start, code, end })
}

/// The integer at a position with a prefix of so many bits (RFC 7541 §5.1), and the position after it.
/// `None`: it is incomplete, or has more than three further bytes.
fn integer(block: &[u8], at: usize, prefix: u32) -> Option<(usize, usize)> {
    let full = (1 << prefix) - 1;
    let value = usize::from(*block.get(at)?) & full;
    if value < full {
        return Some((value, at + 1));
    }
    let mut value = value;
    for (index, byte) in block.get(at + 1..)?.iter().take(3).enumerate() {
        value += usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, at + 2 + index));
        }
    }
    None
}

/// Appends the length of a string that is not in Huffman code.
fn put_length(out: &mut Vec<u8>, length: usize) {
    if length < 0x7f {
        return out.push(length.to_le_bytes()[0]);
    }
    out.push(0x7f);
    let mut rest = length - 0x7f;
    while rest >= 0x80 {
        out.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http2::huffman::tests::string_literal;

    fn encoded(text: &[u8]) -> Vec<u8> {
        string_literal(text, true)
    }

    fn raw(text: &[u8]) -> Vec<u8> {
        string_literal(text, false)
    }

    fn rewritten(strings: &RepeatedStrings, block: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let is_rewritten = strings.rewrite(b"before", block, &mut out);
        assert_eq!(is_rewritten, !out.is_empty());
        is_rewritten.then(|| out.strip_prefix(b"before").unwrap().to_vec())
    }

    /// A block of each kind of field, with this token.
    fn block(token: &[u8]) -> Vec<u8> {
        let parts: [&[u8]; 9] = [
            &[0x3f, 0xe1, 0x1f],       // the size of the table is 4096
            &[0x82, 0xff, 0x80, 0x01], // indexed
            &[0x44],                   // a literal with a known name, indexed
            &encoded(b"/short"),
            &[0x40], // one with a new name
            &encoded(b"x-name"),
            &raw(&[b'v'; 200]),
            &[0x1f, 0x08], // `authorization`, never indexed
            token,
        ];
        [&parts.concat()[..], &[0x00], &raw(b"x-last"), &encoded(b"w")].concat()
    }

    #[test]
    fn a_string_that_repeats_is_replaced_by_what_it_means() {
        for length in [90, 126, 127, 128, 254, 255, 256, 956, 3000] {
            let token: Vec<u8> = (0..length).map(|n| b"eyJhbGciOi.-_09"[n % 15]).collect();
            let strings = RepeatedStrings::default();
            let sent = block(&encoded(&token));
            assert_eq!(rewritten(&strings, &sent), None, "the first");
            assert_eq!(rewritten(&strings, &sent), None, "the second, which is remembered");
            for _ in 0..3 {
                assert_eq!(rewritten(&strings, &sent), Some(block(&raw(&token))), "{length}");
            }
            let mut other = token.clone();
            other[length - 1] = b'x';
            assert_eq!(rewritten(&strings, &block(&encoded(&other))), None, "another token");
            assert_eq!(rewritten(&strings, &sent), Some(block(&raw(&token))));
            strings.forget();
            assert!(strings.is_empty());
            assert_eq!(rewritten(&strings, &sent), None, "forgotten");
        }
    }

    #[test]
    fn several_strings_are_remembered_and_the_latest_stay() {
        let strings = RepeatedStrings::default();
        let text = |kind: u8| vec![kind; 400];
        let literal = |string: Vec<u8>| [vec![0x0f, 0x11], string].concat();
        let both = |a: Vec<u8>, b: Vec<u8>| [literal(a), vec![0x82], literal(b)].concat();
        let (a, b) = (text(b'a'), text(b'b'));
        let sent = both(encoded(&a), encoded(&b));
        assert_eq!([0; 2].map(|_| rewritten(&strings, &sent)), [None, None]);
        assert_eq!(rewritten(&strings, &sent), Some(both(raw(&a), raw(&b))));
        // One that repeats beside one that differs each time.
        for number in 0..200_u32 {
            let other = format!("{number:x>200}");
            let sent = both(encoded(other.as_bytes()), encoded(&b));
            assert_eq!(rewritten(&strings, &sent), Some(both(encoded(other.as_bytes()), raw(&b))));
        }
        assert!(strings.known.borrow().len() <= MAX_STRINGS);
        // Strings over the size in total displace one another.
        let strings = RepeatedStrings::default();
        for kind in b"abcd" {
            let sent = literal(encoded(&vec![*kind; MAX_BLOCK / 2]));
            assert!((0..9).any(|_| rewritten(&strings, &sent).is_some()));
        }
        assert_eq!(strings.known.borrow().len(), 2);
        let strings = RepeatedStrings::default();
        let large = literal(encoded(&vec![b'a'; MAX_BLOCK + 1]));
        assert!((0..9).all(|_| rewritten(&strings, &large).is_none()));
        assert!(strings.is_empty());
    }

    #[test]
    fn the_longest_strings_of_a_block_are_remembered() {
        let strings = RepeatedStrings::default();
        let literal = |string: Vec<u8>| [vec![0x0f, 0x11], string].concat();
        let lengths = [120, 400, 130, 500, 600, 110, 700];
        let texts: Vec<_> = (b'a'..).zip(lengths).map(|(kind, length)| vec![kind; length]).collect();
        let sent: Vec<_> = texts.iter().flat_map(|text| literal(encoded(text))).collect();
        assert_eq!([0; 2].map(|_| rewritten(&strings, &sent)), [None, None]);
        let of = |text: &Vec<u8>| literal(if text.len() < 400 { encoded(text) } else { raw(text) });
        assert_eq!(rewritten(&strings, &sent), Some(texts.iter().flat_map(of).collect()));
    }

    #[test]
    fn a_new_token_is_remembered_at_once_beside_a_proof_that_always_differs() {
        let strings = RepeatedStrings::default();
        let literal = |text: &str| [vec![0x0f, 0x11], encoded(text.as_bytes())].concat();
        let mut proofs = (0..).map(|number| format!("proof-{number:x>200}{}", number * 7919));
        for token in ["a", "b", "c"].map(|kind| kind.repeat(500)) {
            let mut sent = || [literal(&token), literal(&proofs.next().unwrap())].concat();
            assert_eq!([0; 2].map(|_| rewritten(&strings, &sent())), [None, None]);
            assert!((0..100).all(|_| rewritten(&strings, &sent()).is_some()));
        }
        assert_eq!(strings.known.borrow().len(), 3, "no proof");
    }

    #[test]
    fn of_many_tokens_that_take_turns_not_each_is_copied() {
        let strings = RepeatedStrings::default();
        let sent: Vec<_> =
            (b'a'..=b'f').map(|kind| [vec![0x0f, 0x11], encoded(&[kind; 400])].concat()).collect();
        let copies = |strings: &RepeatedStrings| {
            strings.known.borrow().iter().map(|known| known.encoded.as_ptr()).collect::<BTreeSet<_>>()
        };
        let mut changes = 0;
        for _ in 0..100 {
            for block in &sent {
                let before = copies(&strings);
                rewritten(&strings, block);
                changes += usize::from(copies(&strings) != before);
            }
        }
        // Of 600 requests.
        assert!((1..400).contains(&changes), "{changes}");
    }

    #[test]
    fn what_is_invalid_is_left_to_the_decoder() {
        let token = vec![b'a'; 400];
        let valid = block(&encoded(&token));
        for end in 1..valid.len() {
            let strings = RepeatedStrings::default();
            assert_eq!([0; 3].map(|_| rewritten(&strings, &valid).is_some()), [false, false, true]);
            // Cut off: decoded only where the rest is whole fields, as the decoder reads them.
            if let Some(block) = rewritten(&strings, &valid[..end]) {
                assert!(long_strings(&valid[..end]).is_some());
                assert!(long_strings(&block).is_some_and(|strings| strings.is_empty()));
            }
        }
        let bad_padding = [&[0x0f, 0x11, 0xff, 0x01][..], &[0; 128]].concat();
        let too_long = [0x0f, 0x11, 0xff, 0xff, 0xff, 0xff, 0x0f];
        for block in [&bad_padding[..], &too_long, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]] {
            let strings = RepeatedStrings::default();
            assert!((0..9).all(|_| rewritten(&strings, block).is_none()));
            assert!(strings.is_empty());
        }
    }

    /// The fields of a block, with all strings decoded; `None`: it is invalid.
    fn decoded(block: &[u8]) -> Option<Vec<Vec<u8>>> {
        let (mut fields, mut at) = (Vec::new(), 0);
        while let Some(byte) = block.get(at) {
            let (prefix, is_literal) = match byte {
                0x80.. => (7, false),
                0x40.. => (6, true),
                0x20.. => (5, false),
                _ => (4, true),
            };
            let (name, next) = integer(block, at, prefix)?;
            let mut field = block[at..next].to_vec();
            at = next;
            for _ in 0..usize::from(is_literal) + usize::from(is_literal && name == 0) {
                let LongString { code, end, .. } = string(block, at)?;
                let bytes = &block[code..end];
                let is_encoded = block[at] & 0x80 != 0;
                let text = if is_encoded { huffman::decode(bytes, usize::MAX)? } else { bytes.to_vec() };
                field.extend_from_slice(&text.len().to_be_bytes());
                field.extend_from_slice(&text);
                at = end;
            }
            fields.push(field);
        }
        Some(fields)
    }

    #[test]
    fn any_block_means_the_same_afterwards() {
        let mut state = 1_usize;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let strings = RepeatedStrings::default();
        let mut changed = 0;
        for round in 0..2000 {
            if round % 20 == 0 {
                strings.forget();
            }
            let mut block = Vec::new();
            for _ in 0..random(6) {
                let length = [0, 10, 90, 127, 200, 900, 4096, 5000][random(8)];
                let text = vec![b"aX~\x01"[random(4)]; length];
                let text = if random(4) == 0 { raw(&text) } else { encoded(&text) };
                match random(5) {
                    0 => block.extend([0x82, 0xff, 0x01]),
                    1 => block.extend([&[0x40][..], &encoded(b"x-name"), &text].concat()),
                    2 => block.extend([&[0x7f, 0x01][..], &text].concat()),
                    _ => block.extend([&[0x1f, 0x08][..], &text].concat()),
                }
            }
            if random(4) == 0 && !block.is_empty() {
                let at = random(block.len());
                match random(2) {
                    0 => block.truncate(at),
                    _ => block[at] ^= 1 << random(8),
                }
            }
            if let Some(after) = rewritten(&strings, &block) {
                assert_eq!(decoded(&after), decoded(&block), "round {round}: {block:x?}");
                changed += 1;
            }
        }
        assert!(changed > 20, "{changed}");
    }
}

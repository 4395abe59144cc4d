//! W3C Trace Context: ids and the `traceparent` field.
//!
//! Owns: parsing and writing `traceparent` (W3C Trace Context level 2 §3.2), generating ids. Does
//! not own: whether a caller's context is trusted ([`crate::trace::Tracer`]).

/// Length of a version 00 `traceparent` in bytes.
const LENGTH: usize = 55;

/// Trace id: 16 bytes, not all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// Span id within a trace: 8 bytes, not all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// `None` for all zeros, which the standard forbids.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// The bytes as on the wire.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// 32 lower-case hexadecimal digits.
    pub fn hex(&self) -> Hex<32> {
        Hex::encode(&self.0)
    }

    /// The 56 bits that level 2 of the standard requires to be random; used for sampling by ratio.
    pub(super) fn randomness(self) -> u64 {
        let [_, _, _, _, _, _, _, _, tail @ ..] = self.0;
        u64::from_be_bytes(tail) & ((1 << 56) - 1)
    }
}

impl SpanId {
    /// `None` for all zeros, which the standard forbids.
    pub fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    /// The bytes as on the wire.
    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }

    /// 16 lower-case hexadecimal digits.
    pub fn hex(&self) -> Hex<16> {
        Hex::encode(&self.0)
    }
}

/// Text of `N` lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hex<const N: usize>([u8; N]);

impl<const N: usize> Hex<N> {
    fn encode(bytes: &[u8]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [b'0'; N];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 0xf)];
        }
        Self(digits)
    }

    /// The digits as a string slice.
    pub fn as_str(&self) -> &str {
        // contains only ASCII digits and letters
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// `trace-flags` (level 2 §3.2.2.5): the two defined bits. All others are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    const SAMPLED: u8 = 0x01;
    const RANDOM: u8 = 0x02;

    /// Flags of a trace that starts here: its id is random.
    pub(super) const fn new(sampled: bool) -> Self {
        Self(Self::RANDOM).with_sampled(sampled)
    }

    pub(super) const fn with_sampled(self, sampled: bool) -> Self {
        Self(if sampled { self.0 | Self::SAMPLED } else { self.0 & !Self::SAMPLED })
    }

    /// Whether the caller may have recorded this trace.
    pub const fn sampled(self) -> bool {
        self.0 & Self::SAMPLED != 0
    }

    /// The byte as on the wire.
    pub const fn as_byte(self) -> u8 {
        self.0
    }
}

/// Content of a `traceparent` field: the trace, the span of the sender, the flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// Id of the trace.
    pub trace: TraceId,
    /// The sender's span: the parent of the receiver's spans.
    pub span: SpanId,
    /// Flags of the trace.
    pub flags: Flags,
}

/// Why a `traceparent` is invalid. The standard requires the same in all cases: start a new trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TraceParentFault {
    /// Too short, too long for its version, or a hyphen in the wrong position.
    #[error("traceparent does not have the form version-trace-span-flags")]
    Format,
    /// The version is `ff`.
    #[error("traceparent has the forbidden version ff")]
    Version,
    /// A character is not a lower-case hexadecimal digit.
    #[error("traceparent has a digit that is not lower-case hexadecimal")]
    Digit,
    /// Trace id or span id is all zeros.
    #[error("traceparent has an identifier of zeroes")]
    ZeroId,
}

impl TraceParent {
    /// Parses a trimmed field value (level 2 §3.2).
    ///
    /// A version above 00 is parsed like version 00, if a hyphen or the end follows (§4.3).
    ///
    /// # Errors
    /// [`TraceParentFault`] when the value is invalid.
    pub fn parse(value: &[u8]) -> Result<Self, TraceParentFault> {
        let known = value.first_chunk::<LENGTH>().ok_or(TraceParentFault::Format)?;
        if [known[2], known[35], known[52]] != *b"---" {
            return Err(TraceParentFault::Format);
        }
        let [version] = unhex::<1>(&known[..2])?;
        match (version, value.get(LENGTH)) {
            (0xff, _) => return Err(TraceParentFault::Version),
            (_, None) | (1.., Some(b'-')) => {}
            _ => return Err(TraceParentFault::Format),
        }
        let trace = TraceId::from_bytes(unhex(&known[3..35])?).ok_or(TraceParentFault::ZeroId)?;
        let span = SpanId::from_bytes(unhex(&known[36..52])?).ok_or(TraceParentFault::ZeroId)?;
        let [flags] = unhex::<1>(&known[53..])?;
        Ok(Self { trace, span, flags: Flags(flags & (Flags::SAMPLED | Flags::RANDOM)) })
    }

    /// Appends the field value, version 00.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"00-");
        out.extend_from_slice(&self.trace.hex().0);
        out.push(b'-');
        out.extend_from_slice(&self.span.hex().0);
        out.push(b'-');
        out.extend_from_slice(&Hex::<2>::encode(&[self.flags.0]).0);
    }
}

/// Decodes exactly `2 * N` lower-case hexadecimal digits.
fn unhex<const N: usize>(digits: &[u8]) -> Result<[u8; N], TraceParentFault> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(TraceParentFault::Digit),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Ok(bytes)
}

/// Generates ids with xoshiro256++ from a seed. Fast and evenly distributed. Not unpredictable,
/// which is not needed for ids that every peer sees. One per worker, each with its own seed.
#[derive(Debug, Clone)]
pub struct IdGenerator([u64; 4]);

impl IdGenerator {
    /// A generator seeded with 32 random bytes. All zeros, the one state the generator cannot
    /// leave, is replaced.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let mut state = [0; 4];
        for (word, bytes) in state.iter_mut().zip(seed.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(if state == [0; 4] { [0x9e37_79b9_7f4a_7c15; 4] } else { state })
    }

    /// Generates a uniform random number, which is not secret.
    pub fn next_number(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Generates a trace id.
    pub fn next_trace_id(&mut self) -> TraceId {
        loop {
            let wide = u128::from(self.next_number()) << 64 | u128::from(self.next_number());
            if let Some(id) = TraceId::from_bytes(wide.to_be_bytes()) {
                return id;
            }
        }
    }

    /// Generates a span id.
    pub fn next_span_id(&mut self) -> SpanId {
        loop {
            if let Some(id) = SpanId::from_bytes(self.next_number().to_be_bytes()) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn written(parent: &TraceParent) -> String {
        let mut out = Vec::new();
        parent.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_traceparent_round_trips() {
        let parent = TraceParent::parse(GOOD.as_bytes()).unwrap();
        assert!(parent.flags.sampled());
        assert_eq!(parent.trace.hex().as_str(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.span.hex().as_str(), "00f067aa0ba902b7");
        assert_eq!(written(&parent), GOOD);
    }

    #[test]
    fn unknown_flags_are_dropped() {
        let parent = TraceParent::parse(GOOD.replace("-01", "-fe").as_bytes()).unwrap();
        assert!(!parent.flags.sampled());
        assert_eq!(written(&parent), GOOD.replace("-01", "-02"));
    }

    #[test]
    fn faults_by_class() {
        use TraceParentFault::{Digit, Format, Version, ZeroId};
        let zero_trace = GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let zero_span = GOOD.replace("00f067aa0ba902b7", &"0".repeat(16));
        for (value, fault) in [
            ("", Format),
            (&GOOD[..54], Format),
            (&format!("{GOOD}-more"), Format),
            (&format!("{GOOD} "), Format),
            (&GOOD.replace("00-4", "0004"), Format),
            (&GOOD.replace("-01", "_01"), Format),
            (&GOOD.replace("00-4", "01-4").replace("-01", "-01x"), Format),
            (&GOOD.replace("00-4", "ff-4"), Version),
            (&format!("{}-x", GOOD.replace("00-4", "ff-4")), Version),
            (&GOOD.to_uppercase(), Digit),
            (&GOOD.replace("00-4", "0x-4"), Digit),
            (&GOOD.replace("-01", "-0g"), Digit),
            (&GOOD.replace("4bf92f", "4b\u{e9}2f"), Digit),
            (&zero_trace, ZeroId),
            (&zero_span, ZeroId),
        ] {
            assert_eq!(TraceParent::parse(value.as_bytes()), Err(fault), "{value}");
        }
    }

    #[test]
    fn future_versions_are_read_as_far_as_known() {
        let expected = TraceParent::parse(GOOD.as_bytes()).unwrap();
        for value in [GOOD.replace("00-4", "01-4"), format!("{}-what-will-be", GOOD.replace("00-4", "fe-4"))]
        {
            assert_eq!(TraceParent::parse(value.as_bytes()), Ok(expected), "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_written_back(value in prop_oneof![
            "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,8})?".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..80),
        ]) {
            if let Ok(parent) = TraceParent::parse(&value) {
                let again = written(&parent);
                prop_assert_eq!(TraceParent::parse(again.as_bytes()), Ok(parent));
                prop_assert_eq!(&again.as_bytes()[3..52], &value[3..52]);
            }
        }
    }

    #[test]
    fn identifiers_differ_and_follow_the_seed() {
        let mut a = IdGenerator::from_seed([7; 32]);
        let mut b = IdGenerator::from_seed([7; 32]);
        let mut zero = IdGenerator::from_seed([0; 32]);
        let mut seen = HashSet::new();
        for _ in 0..10_000 {
            let id = a.next_trace_id();
            assert_eq!(id, b.next_trace_id());
            assert!(seen.insert(id) && seen.insert(zero.next_trace_id()));
        }
        let ones: u32 =
            (0..1000).map(|_| u64::from_be_bytes(*a.next_span_id().as_bytes()).count_ones()).sum();
        assert!((31_000..33_000).contains(&ones), "half of 64 000 bits: {ones}");
    }

    #[test]
    fn known_answers_of_the_generator() {
        // first outputs of xoshiro256++ from the state 1, 2, 3, 4
        let mut seed = [0; 32];
        for i in 0..4 {
            seed[8 * i] = u8::try_from(i).unwrap() + 1;
        }
        let mut ids = IdGenerator::from_seed(seed);
        assert_eq!(
            [ids.next_number(), ids.next_number(), ids.next_number()],
            [41_943_041, 58_720_359, 3_588_806_011_781_223]
        );
    }
}

//! Where the time of a request goes.
//!
//! Owns: the names of the phases, the recorder that travels with a request, and their rendering as a
//! `Server-Timing` field. Does not own: who may see them (the caller asks the configuration whether the
//! peer is trusted) nor their sums over many requests ([`crate::metrics`]).
//!
//! Flow: `Recorder::start → end(phase, now) … → server_timing | Worker::phases | trace events`.

use std::time::Instant;

/// A step every request goes through, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// Connection accepted to a protocol that can be read: PROXY header and TLS handshake. Before the request;
    /// only the first of a connection that had either has it.
    Accept,
    /// Whole head to a canonical request.
    Parse,
    /// Finding the route.
    Match,
    /// From credential to verified facts, waiting for keys included, or the cache lookup that replaces it.
    Authenticate,
    /// Evaluating the route's policy, and writing the request that it permits.
    Decide,
    /// Request handed on to response head received, connecting included; or to the end of waiting for one.
    Upstream,
    /// Response head received to last byte written.
    Respond,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 7] = [
        Self::Accept,
        Self::Parse,
        Self::Match,
        Self::Authenticate,
        Self::Decide,
        Self::Upstream,
        Self::Respond,
    ];

    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The lower-case word used in metrics, `Server-Timing` and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Parse => "parse",
            Self::Match => "match",
            Self::Authenticate => "authenticate",
            Self::Decide => "decide",
            Self::Upstream => "upstream",
            Self::Respond => "respond",
        }
    }
}

/// What the decision cache had to say about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CacheUse {
    /// Facts were there and still believed.
    Hit,
    /// The credential was verified.
    Miss,
    /// Another request was verifying the same credential; its answer was shared.
    Coalesced,
    /// A remembered denial answered.
    Denied,
}

impl CacheUse {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Hit, Self::Miss, Self::Coalesced, Self::Denied];

    /// The lower-case word used in metrics, `Server-Timing` and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Coalesced => "coalesced",
            Self::Denied => "denied",
        }
    }
}

/// Nanoseconds spent per phase of one request. Fixed size, no allocation; one clock reading per phase.
#[derive(Debug, Clone, Copy)]
pub struct Recorder {
    mark: Instant,
    nanos: [u64; Phase::COUNT],
    seen: u8,
}

impl Recorder {
    /// Begins at `now`, with no phase recorded.
    pub const fn start(now: Instant) -> Self {
        Self { mark: now, nanos: [0; Phase::COUNT], seen: 0 }
    }

    /// Gives the time since the previous call (or the start) to `phase`. A phase that ends twice, such as a
    /// second upstream attempt, adds up.
    #[inline]
    pub fn end(&mut self, phase: Phase, now: Instant) {
        let nanos = nanos_between(self.mark, now);
        self.mark = now;
        self.add(phase, nanos);
    }

    /// Gives the time since the previous call to no phase: waiting that is the client's own.
    #[inline]
    pub fn skip(&mut self, now: Instant) {
        self.mark = now;
    }

    /// Adds nanoseconds measured elsewhere, such as the connection's [`Phase::Accept`].
    #[inline]
    pub fn add(&mut self, phase: Phase, nanos: u64) {
        let slot = &mut self.nanos[phase as usize];
        *slot = slot.saturating_add(nanos);
        self.seen |= 1 << phase as u8;
    }

    /// Nanoseconds of `phase`; `None` when the request did not go through it.
    #[inline]
    pub const fn nanos(&self, phase: Phase) -> Option<u64> {
        if self.seen & (1 << phase as u8) == 0 { None } else { Some(self.nanos[phase as usize]) }
    }

    /// The recorded phases, in order, with their nanoseconds.
    pub fn iter(&self) -> impl Iterator<Item = (Phase, u64)> + '_ {
        Phase::ALL.into_iter().filter_map(|phase| Some((phase, self.nanos(phase)?)))
    }

    /// Calls `each` with the slot (`phase as usize`) and nanoseconds of every recorded phase.
    #[inline]
    pub(crate) fn for_each_slot(&self, mut each: impl FnMut(usize, u64)) {
        for (slot, nanos) in self.nanos.iter().enumerate() {
            if self.seen & (1 << slot) != 0 {
                each(slot, *nanos);
            }
        }
    }
}

/// Nanoseconds from `start` to `end`; 0 when `end` is earlier, saturating after 584 years.
#[inline]
pub fn nanos_between(start: Instant, end: Instant) -> u64 {
    // not as_nanos(): its 128 bits cost more than the rest of the recorder
    let between = end.saturating_duration_since(start);
    between.as_secs().saturating_mul(1_000_000_000).saturating_add(between.subsec_nanos().into())
}

/// Appends the value of a `Server-Timing` field (W3C Server Timing §3): one metric per recorded phase with
/// its duration in milliseconds, then `cache;desc=…` and `authority;desc="…"` where known. Appends nothing
/// when nothing was recorded.
///
/// Phase times tell an attacker whether a token was cached or a key fetched, so only peers the configuration
/// names may get this field. The caller asks; this function cannot know.
pub fn server_timing(
    recorder: &Recorder,
    cache: Option<CacheUse>,
    authority: Option<&str>,
    out: &mut Vec<u8>,
) {
    let begin = out.len();
    let separate = |out: &mut Vec<u8>| {
        if out.len() > begin {
            out.extend_from_slice(b", ");
        }
    };
    for (phase, nanos) in recorder.iter() {
        separate(out);
        out.extend_from_slice(phase.as_str().as_bytes());
        out.extend_from_slice(b";dur=");
        push_millis(out, nanos);
    }
    if let Some(cache) = cache {
        separate(out);
        out.extend_from_slice(b"cache;desc=");
        out.extend_from_slice(cache.as_str().as_bytes());
    }
    if let Some(authority) = authority {
        separate(out);
        out.extend_from_slice(b"authority;desc=\"");
        push_quoted(out, authority);
        out.push(b'"');
    }
}

/// The inside of a quoted-string (RFC 9110 §5.6.4). Bytes that may not stand there become `_`.
fn push_quoted(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => out.push(b'_'),
        }
    }
}

/// Appends nanoseconds as decimal milliseconds, exact, without trailing zeros: `12000` is `0.012`.
pub(crate) fn push_millis(out: &mut Vec<u8>, nanos: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(nanos / 1_000_000).as_bytes());
    let mut fraction = nanos % 1_000_000;
    if fraction == 0 {
        return;
    }
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(fraction % 10).unwrap_or(0);
        fraction /= 10;
    }
    let end = digits.iter().rposition(|d| *d != b'0').map_or(0, |last| last + 1);
    out.push(b'.');
    out.extend_from_slice(&digits[..end]);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn render(recorder: &Recorder, cache: Option<CacheUse>, authority: Option<&str>) -> String {
        let mut out = b"kept:".to_vec();
        server_timing(recorder, cache, authority, &mut out);
        String::from_utf8(out).unwrap().strip_prefix("kept:").unwrap().to_owned()
    }

    #[test]
    fn phases_are_measured_between_marks() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut recorder = Recorder::start(start);
        recorder.add(Phase::Accept, 5_000);
        recorder.end(Phase::Parse, at(3));
        recorder.skip(at(10));
        recorder.end(Phase::Upstream, at(30));
        recorder.end(Phase::Upstream, at(40));
        assert_eq!(
            recorder.iter().collect::<Vec<_>>(),
            [(Phase::Accept, 5_000), (Phase::Parse, 3_000), (Phase::Upstream, 30_000)]
        );
        assert_eq!(recorder.nanos(Phase::Decide), None);
    }

    #[test]
    fn a_clock_that_steps_back_counts_nothing() {
        let start = Instant::now() + Duration::from_secs(1);
        let mut recorder = Recorder::start(start);
        recorder.end(Phase::Parse, start.checked_sub(Duration::from_millis(1)).unwrap());
        assert_eq!(recorder.nanos(Phase::Parse), Some(0));
    }

    #[test]
    fn order_of_all_is_order_of_discriminants() {
        for (index, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, index);
        }
        const { assert!(Phase::COUNT <= 8, "Recorder::seen has a bit per phase") };
    }

    #[test]
    fn server_timing_syntax() {
        let mut recorder = Recorder::start(Instant::now());
        assert_eq!(render(&recorder, None, None), "");
        assert_eq!(render(&recorder, Some(CacheUse::Hit), None), "cache;desc=hit");
        recorder.add(Phase::Accept, 12_000);
        recorder.add(Phase::Match, 312);
        recorder.add(Phase::Upstream, 2_000_000);
        assert_eq!(
            render(&recorder, Some(CacheUse::Miss), Some("corp")),
            "accept;dur=0.012, match;dur=0.000312, upstream;dur=2, cache;desc=miss, authority;desc=\"corp\""
        );
    }

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        let recorder = Recorder::start(Instant::now());
        assert_eq!(
            render(&recorder, None, Some("a\"b\\c\r\nX: y\u{e9}")),
            r#"authority;desc="a\"b\\c__X: y__""#
        );
    }

    #[test]
    fn milliseconds_are_exact() {
        for (nanos, text) in
            [(0, "0"), (1, "0.000001"), (1_500_000, "1.5"), (999_999, "0.999999"), (10_000_000_000, "10000")]
        {
            let mut out = Vec::new();
            push_millis(&mut out, nanos);
            assert_eq!(out, text.as_bytes());
        }
    }
}

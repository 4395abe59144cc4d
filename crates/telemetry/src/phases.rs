//! Phases: where the time of a request is spent.
//!
//! Owns: the names of the phases, the recorder of a request, and their `Server-Timing` field. Does
//! not own: who may see them (the caller checks whether the configuration trusts the peer), sums
//! over many requests ([`crate::metrics`]).
//!
//! Flow: `Recorder::start → end(phase, now) … → server_timing | WorkerMetrics::phases | trace
//! events`.

use std::time::Instant;

/// A step of a request, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// From the accepted connection to the first readable protocol data: PROXY header and TLS
    /// handshake. Precedes the request; recorded only for the first request of a connection that
    /// had either.
    Accept,
    /// From the complete head to the canonical request.
    Parse,
    /// Finding the route.
    Match,
    /// From the credential to verified facts, including waits for keys; or the cache lookup that
    /// replaces it.
    Authenticate,
    /// Evaluating the route's policy, and writing the permitted request.
    Decide,
    /// From the start of forwarding, connecting included, to the response head or to the end of
    /// waiting for it.
    Upstream,
    /// From the response head to the last byte written.
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

    /// Number of phases.
    pub const COUNT: usize = Self::ALL.len();

    /// The lower-case name in metrics, `Server-Timing` and spans.
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

/// Result of the decision cache for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CacheUse {
    /// An entry was found and is valid.
    Hit,
    /// The credential was verified.
    Miss,
    /// Another request was verifying the same credential; its result was shared.
    Coalesced,
    /// A cached refusal was used.
    Denied,
}

impl CacheUse {
    /// All values, in order.
    pub const ALL: [Self; 4] = [Self::Hit, Self::Miss, Self::Coalesced, Self::Denied];

    /// The lower-case name in metrics, `Server-Timing` and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Coalesced => "coalesced",
            Self::Denied => "denied",
        }
    }
}

/// Nanoseconds per phase of one request. Fixed size, no allocation; one clock reading per phase.
#[derive(Debug, Clone, Copy)]
pub struct Recorder {
    last_reading: Instant,
    nanos: [u64; Phase::COUNT],
    recorded: u8,
}

impl Recorder {
    /// Starts at `now`, with no phase recorded.
    pub const fn start(now: Instant) -> Self {
        Self { last_reading: now, nanos: [0; Phase::COUNT], recorded: 0 }
    }

    /// Adds the time since the previous call (or the start) to `phase`. A phase that ends twice,
    /// such as a second upstream attempt, accumulates.
    #[inline]
    pub fn end_phase(&mut self, phase: Phase, now: Instant) {
        let nanos = nanos_between(self.last_reading, now);
        self.last_reading = now;
        self.add(phase, nanos);
    }

    /// Adds the time since the previous call to no phase: the client caused the wait.
    #[inline]
    pub fn skip(&mut self, now: Instant) {
        self.last_reading = now;
    }

    /// Adds nanoseconds measured elsewhere, such as the connection's [`Phase::Accept`].
    #[inline]
    pub fn add(&mut self, phase: Phase, nanos: u64) {
        let slot = &mut self.nanos[phase as usize];
        *slot = slot.saturating_add(nanos);
        self.recorded |= 1 << phase as u8;
    }

    /// Nanoseconds of `phase`; `None`: the request did not have it.
    #[inline]
    pub const fn nanos(&self, phase: Phase) -> Option<u64> {
        if self.recorded & (1 << phase as u8) == 0 { None } else { Some(self.nanos[phase as usize]) }
    }

    /// The recorded phases, in order, with their nanoseconds.
    pub fn iter(&self) -> impl Iterator<Item = (Phase, u64)> + '_ {
        Phase::ALL.into_iter().filter_map(|phase| Some((phase, self.nanos(phase)?)))
    }

    /// Calls `each` with the slot (`phase as usize`) and nanoseconds of every recorded phase.
    #[inline]
    pub(crate) fn for_each_slot(&self, mut each: impl FnMut(usize, u64)) {
        for (slot, nanos) in self.nanos.iter().enumerate() {
            if self.recorded & (1 << slot) != 0 {
                each(slot, *nanos);
            }
        }
    }
}

/// Nanoseconds from `start` to `end`; 0 if `end` is earlier, saturating after 584 years.
#[inline]
pub fn nanos_between(start: Instant, end: Instant) -> u64 {
    // not as_nanos(): its 128 bits cost more than the rest of the recorder
    let between = end.saturating_duration_since(start);
    between.as_secs().saturating_mul(1_000_000_000).saturating_add(between.subsec_nanos().into())
}

/// Appends the value of a `Server-Timing` field (W3C Server Timing §3): one metric per recorded
/// phase with its duration in milliseconds, then `cache;desc=…` and `authority;desc="…"` if known.
/// Appends nothing if nothing was recorded.
///
/// Phase times reveal whether a token was cached or a key fetched, so only peers named in the
/// configuration may get this field. The caller must check that; this function cannot.
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

/// Appends the content of a quoted-string (RFC 9110 §5.6.4). Bytes that are not allowed become `_`.
fn push_quoted(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => out.push(b'_'),
        }
    }
}

/// Appends nanoseconds as decimal milliseconds, exact, without trailing zeros: `12000` becomes
/// `0.012`.
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
        recorder.end_phase(Phase::Parse, at(3));
        recorder.skip(at(10));
        recorder.end_phase(Phase::Upstream, at(30));
        recorder.end_phase(Phase::Upstream, at(40));
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
        recorder.end_phase(Phase::Parse, start.checked_sub(Duration::from_millis(1)).unwrap());
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

//! How an issuer that is followed stands, for metrics.

use std::time::Duration;

use coherence::consumers;
use telemetry::metrics::{Collect, Encoder, FamilyKind};

/// How an issuer that is followed stands.
#[derive(Debug, Clone, PartialEq)]
pub struct RevocationSample {
    /// Its `iss`.
    pub issuer: Box<str>,
    /// For how long what is known may be believed; `None`: not any more.
    pub lease: Option<Duration>,
    /// Whether nothing was answered for a lease, so that nobody is asked about any more.
    pub silent: bool,
    /// Whether the way for messages is up, as far as anybody knows.
    pub up: bool,
    /// Number of the last event that is applied with all before it.
    pub contiguous: u64,
    /// Events that are known to be there and not applied so.
    pub lag: u64,
    /// Tombstones kept.
    pub tombstones: usize,
    /// Tags that are denied.
    pub denials: usize,
    /// Whether that is all of them.
    pub whole: bool,
    /// Events applied.
    pub revoked: u64,
    /// Times that everything was forgotten, by cause.
    pub flushes: Vec<(&'static str, u64)>,
    /// Messages made.
    pub sent: u64,
    /// Messages believed.
    pub received: u64,
    /// Bytes that were no message, or nobody's with the key.
    pub refused: u64,
    /// Tokens asked about that were not revoked.
    pub good: u64,
    /// Tokens asked about that were.
    pub denied: u64,
    /// Tokens asked about without an answer.
    pub unanswered: u64,
    /// Entries held against what the issuer says.
    pub audited: u64,
    /// Of those, believed although they were denied for longer than a lease.
    pub stale: u64,
    /// How long followers took to apply what this process appended to the issuer's log; `None`: it does not append.
    pub arrivals: Option<coherence::consumers::ApplyTimes>,
}

impl Collect for RevocationSample {
    fn collect(all: &[Self], e: &mut Encoder) {
        let mut gauge = |name, help, value: fn(&Self) -> f64| {
            let mut family = e.family(name, FamilyKind::Gauge, help);
            for follow in all {
                family.sample(&[("issuer", &*follow.issuer)], value(follow));
            }
        };
        gauge(
            "postern_coherence_lease_seconds",
            "For how long what is known of an issuer's revocations may be believed; 0: each token is asked about.",
            |follow| follow.lease.map_or(0.0, |left| left.as_secs_f64()),
        );
        gauge(
            "postern_coherence_silent",
            "1: no lease is left of an issuer, and it has answered nothing for as long, less half a second: what would have to be asked about is refused at once.",
            |follow| f64::from(u8::from(follow.silent)),
        );
        gauge("postern_coherence_up", "Whether the way for an issuer's messages is up.", |follow| {
            f64::from(u8::from(follow.up))
        });
        gauge("postern_coherence_sequence", "Last event of an issuer's log that is applied.", |follow| {
            follow.contiguous as f64
        });
        gauge(
            "postern_coherence_lag_events",
            "Events of an issuer's log that are known to be there and not applied.",
            |follow| follow.lag as f64,
        );
        gauge("postern_coherence_tombstones", "Tags that were revoked lately.", |follow| {
            follow.tombstones as f64
        });
        gauge(
            "postern_coherence_denials",
            "Tags whose tokens are denied although they have not expired.",
            |f| f.denials as f64,
        );
        gauge("postern_coherence_denials_whole", "Whether that is all of them.", |follow| {
            f64::from(u8::from(follow.whole))
        });
        let help = "Events of an issuer's log that were applied.";
        let mut family = e.family("postern_coherence_events", FamilyKind::Counter, help);
        for follow in all {
            family.sample(&[("issuer", &*follow.issuer)], follow.revoked);
        }
        let help = "Times that everything known of an issuer was forgotten, by cause.";
        let mut family = e.family("postern_coherence_flushes", FamilyKind::Counter, help);
        for follow in all {
            for (cause, count) in &follow.flushes {
                family.sample(&[("issuer", &*follow.issuer), ("cause", cause)], *count);
            }
        }
        let help = "Messages about revocations, by what became of them.";
        let mut family = e.family("postern_coherence_messages", FamilyKind::Counter, help);
        for follow in all {
            let kinds = [("sent", follow.sent), ("received", follow.received), ("refused", follow.refused)];
            for (kind, count) in kinds {
                family.sample(&[("issuer", &*follow.issuer), ("kind", kind)], count);
            }
        }
        let help =
            "Tokens that an issuer was asked about, since it was not known here whether they are revoked.";
        let mut family = e.family("postern_coherence_questions", FamilyKind::Counter, help);
        for follow in all {
            let results = [("good", follow.good), ("revoked", follow.denied), ("silent", follow.unanswered)];
            for (result, count) in results {
                family.sample(&[("issuer", &*follow.issuer), ("result", result)], count);
            }
        }
        let mut counter = |name, help, value: fn(&Self) -> u64| {
            let mut family = e.family(name, FamilyKind::Counter, help);
            for follow in all {
                family.sample(&[("issuer", &*follow.issuer)], value(follow));
            }
        };
        let help = "Entries in use that were held against what their issuer says.";
        counter("postern_coherence_audits", help, |follow| follow.audited);
        let help = "Of those, believed although denied for longer than a lease: must stay 0.";
        counter("postern_coherence_stale_admits", help, |follow| follow.stale);
        let help =
            "From when something was revoked at this node until a follower said that it has applied it.";
        let mut family = e.family("postern_coherence_refusal_seconds", FamilyKind::Histogram, help);
        for (follow, arrivals) in all.iter().filter_map(|one| one.arrivals.as_ref().map(|some| (one, some))) {
            let buckets = consumers::BOUNDS.into_iter().zip(arrivals.below);
            family.histogram(&[("issuer", &*follow.issuer)], buckets, arrivals.count, arrivals.sum);
        }
    }
}

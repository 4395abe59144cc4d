//! Metrics of a followed issuer.

use std::time::Duration;

use coherence::consumers;
use telemetry::metrics::{Collect, Encoder, FamilyKind};

/// State and counters of a followed issuer.
#[derive(Debug, Clone, PartialEq)]
pub struct RevocationSample {
    /// The `iss` value of its tokens.
    pub issuer: Box<str>,
    /// Remaining lease; `None`: expired.
    pub lease: Option<Duration>,
    /// Whether the issuer has not answered for a lease, so that queries are no longer sent.
    pub silent: bool,
    /// Whether the transport for messages is up, as far as is known.
    pub up: bool,
    /// Number of the last event that is applied with all before it.
    pub contiguous: u64,
    /// Known events of the log that are not applied yet.
    pub lag: u64,
    /// Tombstones stored.
    pub tombstones: usize,
    /// Tags in the denylist.
    pub denials: usize,
    /// Whether the denylist is complete.
    pub denylist_complete: bool,
    /// Events applied.
    pub revoked: u64,
    /// Flushes of all knowledge, by cause.
    pub flushes: Vec<(&'static str, u64)>,
    /// Messages created.
    pub sent: u64,
    /// Messages accepted.
    pub received: u64,
    /// Received bytes that were not a message, or whose MAC was invalid.
    pub refused: u64,
    /// Queries whose answer was: not revoked.
    pub queries_good: u64,
    /// Queries whose answer was: revoked.
    pub queries_revoked: u64,
    /// Queries without an answer.
    pub queries_unanswered: u64,
    /// Cache entries compared with the issuer's answer.
    pub audited: u64,
    /// Of those, entries still used after the issuer had denied them for longer than a lease.
    pub stale: u64,
    /// How long consumers took to apply what this process appended to the issuer's log; `None`:
    /// this process does not append.
    pub arrivals: Option<coherence::consumers::ApplyTimes>,
}

impl Collect for RevocationSample {
    fn collect(all: &[Self], e: &mut Encoder) {
        Self::gauges(all, e);
        Self::counters(all, e);
    }
}

impl RevocationSample {
    fn gauges(all: &[Self], e: &mut Encoder) {
        let mut gauge = |name, help, value: fn(&Self) -> f64| {
            let mut family = e.family(name, FamilyKind::Gauge, help);
            for follow in all {
                family.sample(&[("issuer", &*follow.issuer)], value(follow));
            }
        };
        gauge(
            "postern_revocation_lease_seconds",
            "Remaining lease of an issuer's revocation log in seconds; 0: the issuer is asked about each token.",
            |follow| follow.lease.map_or(0.0, |left| left.as_secs_f64()),
        );
        gauge(
            "postern_revocation_silent",
            "1: the lease has expired and the issuer has not answered for about a lease: tokens that need a query are refused at once.",
            |follow| f64::from(u8::from(follow.silent)),
        );
        gauge("postern_revocation_up", "Whether the transport for an issuer's messages is up.", |follow| {
            f64::from(u8::from(follow.up))
        });
        gauge(
            "postern_revocation_sequence",
            "Number of the last applied event of an issuer's log.",
            |follow| follow.contiguous as f64,
        );
        gauge(
            "postern_revocation_lag_events",
            "Known events of an issuer's log that are not applied yet.",
            |follow| follow.lag as f64,
        );
        gauge("postern_revocation_tombstones", "Tags that were revoked recently.", |follow| {
            follow.tombstones as f64
        });
        gauge(
            "postern_revocation_denylist_entries",
            "Tags in the denylist, whose tokens are denied before they expire.",
            |f| f.denials as f64,
        );
        gauge("postern_revocation_denylist_complete", "Whether the denylist is complete.", |follow| {
            f64::from(u8::from(follow.denylist_complete))
        });
    }

    fn counters(all: &[Self], e: &mut Encoder) {
        let help = "Events of an issuer's log that were applied.";
        let mut family = e.family("postern_revocation_events", FamilyKind::Counter, help);
        for follow in all {
            family.sample(&[("issuer", &*follow.issuer)], follow.revoked);
        }
        let help = "Flushes of all knowledge about an issuer's log, by cause.";
        let mut family = e.family("postern_revocation_cache_flushes", FamilyKind::Counter, help);
        for follow in all {
            for (cause, count) in &follow.flushes {
                family.sample(&[("issuer", &*follow.issuer), ("cause", cause)], *count);
            }
        }
        let help = "Revocation messages, by result.";
        let mut family = e.family("postern_revocation_messages", FamilyKind::Counter, help);
        for follow in all {
            let kinds = [("sent", follow.sent), ("received", follow.received), ("refused", follow.refused)];
            for (kind, count) in kinds {
                family.sample(&[("issuer", &*follow.issuer), ("kind", kind)], count);
            }
        }
        let help = "Queries to an issuer whether a token is revoked, by result.";
        let mut family = e.family("postern_revocation_queries", FamilyKind::Counter, help);
        for follow in all {
            let results = [
                ("good", follow.queries_good),
                ("revoked", follow.queries_revoked),
                ("silent", follow.queries_unanswered),
            ];
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
        let help = "Cache entries in use that were compared with their issuer's answer.";
        counter("postern_revocation_audits", help, |follow| follow.audited);
        let help = "Of those, still accepted after a denial older than a lease: must stay 0.";
        counter("postern_revocation_stale_admits", help, |follow| follow.stale);
        let help = "Time from a revocation at this node until a consumer confirmed that it applied it.";
        let mut family = e.family("postern_revocation_refusal_seconds", FamilyKind::Histogram, help);
        for (follow, arrivals) in all.iter().filter_map(|one| one.arrivals.as_ref().map(|some| (one, some))) {
            let buckets = consumers::BOUNDS.into_iter().zip(arrivals.below);
            family.histogram(&[("issuer", &*follow.issuer)], buckets, arrivals.count, arrivals.sum);
        }
    }
}

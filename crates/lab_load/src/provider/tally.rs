//! Transaction tally: counts transactions and their requests.
//!
//! Only what *ends* inside the window counts. In a steady closed loop this is unbiased, and it is
//! what the rate is computed from.
//!
//! Owns: failure classes, histograms per kind of request, and the measured window. Does not own:
//! presentation.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::load::{Failure, Latencies, RequestFault, Slices};

/// Kind of request in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The authorization request.
    Authorize,
    /// A request that follows a redirect.
    Redirect,
    /// Submission of user name and password.
    Login,
    /// Submission of the consent.
    Consent,
    /// A request to the token endpoint.
    Token,
    /// A request to the revocation endpoint.
    Revoke,
    /// A request to the introspection endpoint.
    Introspect,
}

impl Step {
    /// Name of the step in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Authorize => "authorize",
            Self::Redirect => "redirect",
            Self::Login => "login",
            Self::Consent => "consent",
            Self::Token => "token",
            Self::Revoke => "revoke",
            Self::Introspect => "introspect",
        }
    }
}

/// Why a transaction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The connection or its TLS handshake failed.
    Connect,
    /// No complete response within the timeout.
    Timeout,
    /// The peer reset or closed the connection before the response was complete.
    Closed,
    /// The response breaks the HTTP protocol.
    Protocol,
    /// The response has another status than expected.
    Status,
    /// The response has the expected status, but not the expected content.
    Content,
}

impl FailureClass {
    /// Name of the class in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::Status => "status",
            Self::Content => "content",
        }
    }
}

/// A failed transaction: the step, the class, and a description.
#[derive(Debug)]
pub(crate) struct TransactionFailure {
    pub(crate) step: Step,
    pub(crate) class: FailureClass,
    /// The unexpected status, if the class is [`FailureClass::Status`].
    pub(crate) status: Option<u16>,
    pub(crate) why: String,
}

impl TransactionFailure {
    pub(crate) fn content(step: Step, why: impl Into<String>) -> Self {
        Self { step, class: FailureClass::Content, status: None, why: why.into() }
    }

    pub(crate) fn of(step: Step, failure: &Failure) -> Self {
        let class = match failure.fault {
            RequestFault::Connect | RequestFault::Tls => FailureClass::Connect,
            RequestFault::Timeout | RequestFault::Unsent => FailureClass::Timeout,
            RequestFault::Reset | RequestFault::Closed => FailureClass::Closed,
            RequestFault::Protocol | RequestFault::GrpcStatus => FailureClass::Protocol,
        };
        Self { step, class, status: None, why: failure.why.to_string() }
    }
}

/// Statistics of the requests of one kind.
pub(crate) struct StepStats {
    pub(crate) answered: Latencies,
    pub(crate) failed: u64,
}

/// Statistics of the transactions that failed in one way.
pub(crate) struct FailureStats {
    pub(crate) count: u64,
    pub(crate) example: String,
    /// Durations of those that ended in the window.
    pub(crate) measured: Latencies,
}

/// Counts and distributions of a run.
pub(crate) struct TransactionTally {
    /// Begin and end of the window, nanoseconds since the start. The window begins when the warm-up
    /// ends.
    pub(crate) window: (u64, u64),
    pub(crate) ok: Latencies,
    pub(crate) failed: u64,
    pub(crate) steps: BTreeMap<Step, StepStats>,
    /// Failures by step, class and unexpected status.
    pub(crate) failures: BTreeMap<(Step, FailureClass, Option<u16>), FailureStats>,
    /// Successful transactions in each second of the window.
    pub(crate) per_second: Vec<u64>,
    /// Transactions that ended before the window: total, and failed.
    pub(crate) before: (u64, u64),
    /// Transactions that ended after the window: total, and failed.
    pub(crate) after: (u64, u64),
    /// Transactions over time, including the warm-up, if requested.
    pub(crate) slices: Option<Slices>,
}

impl TransactionTally {
    pub(crate) fn new() -> Self {
        Self {
            window: (u64::MAX, u64::MAX),
            ok: Latencies::new(),
            failed: 0,
            steps: BTreeMap::new(),
            failures: BTreeMap::new(),
            per_second: Vec::new(),
            before: (0, 0),
            after: (0, 0),
            slices: None,
        }
    }

    /// Ends the window now, if it has not ended before.
    pub(crate) fn close_window(&mut self, now: u64) {
        self.window.1 = self.window.1.min(now);
    }

    fn inside(&self, ended: u64) -> bool {
        (self.window.0..self.window.1).contains(&ended)
    }

    /// Records a request that ended.
    pub(crate) fn record_request(&mut self, step: Step, took: u64, ended: u64, answered: bool) {
        if !self.inside(ended) {
            return;
        }
        let requests =
            self.steps.entry(step).or_insert_with(|| StepStats { answered: Latencies::new(), failed: 0 });
        if answered {
            requests.answered.record(took);
        } else {
            requests.failed += 1;
        }
    }

    /// Records a transaction that ended.
    pub(crate) fn record_transaction(
        &mut self,
        took: u64,
        ended: u64,
        ending: Result<(), TransactionFailure>,
    ) {
        let failed = u64::from(ending.is_err());
        let inside = self.inside(ended);
        if ended < self.window.1
            && let Some(slices) = &mut self.slices
        {
            slices.record(ended, (failed == 0).then_some(took));
        }
        if let Err(trouble) = ending {
            // Failures during warm-up and drain are reported too, because they affect the validity
            // of the figures.
            let key = (trouble.step, trouble.class, trouble.status);
            let new = || FailureStats { count: 0, example: trouble.why, measured: Latencies::new() };
            let seen = self.failures.entry(key).or_insert_with(new);
            seen.count += 1;
            if inside {
                seen.measured.record(took);
            }
        }
        let outside = if ended < self.window.0 { &mut self.before } else { &mut self.after };
        if !inside {
            outside.0 += 1;
            outside.1 += failed;
            return;
        }
        self.failed += failed;
        if failed == 0 {
            self.ok.record(took);
            let second = usize::try_from((ended - self.window.0) / 1_000_000_000).unwrap_or(usize::MAX);
            if second >= self.per_second.len() && second < 100_000 {
                self.per_second.resize(second + 1, 0);
            }
            if let Some(count) = self.per_second.get_mut(second) {
                *count += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_have_the_warm_up_and_end_with_the_window() {
        let mut tally = TransactionTally::new();
        tally.slices = Some(Slices::new(100, None));
        tally.record_transaction(5, 50_000_000, Ok(()));
        tally.window = (100_000_000, 300_000_000);
        tally.record_transaction(7000, 150_000_000, Ok(()));
        tally.record_transaction(5, 160_000_000, Err(TransactionFailure::content(Step::Token, "no token")));
        tally.record_transaction(5, 300_000_000, Ok(()));
        let mut slices = tally.slices.take().unwrap();
        slices.finish(300_000_000);
        let seen: Vec<_> = slices.take().iter().map(|slice| (slice.at_ms, slice.ok, slice.bad)).collect();
        assert_eq!(seen, [(0, 1, 0), (100, 1, 1), (200, 0, 0)]);
    }

    #[test]
    fn only_what_ends_in_the_window_counts() {
        let mut tally = TransactionTally::new();
        let bad = || Err(TransactionFailure::content(Step::Token, "no token"));
        tally.record_transaction(5, 10, Ok(()));
        tally.record_transaction(5, 10, bad());
        tally.window = (100, 2_000_000_100);
        tally.record_transaction(95, 100, Ok(()));
        tally.record_request(Step::Token, 95, 100, true);
        tally.record_request(Step::Token, 95, 99, true);
        tally.record_transaction(5, 1_500_000_000, Ok(()));
        tally.record_transaction(5, 1_500_000_000, bad());
        tally.record_transaction(5, 2_000_000_100, Ok(()));
        assert_eq!((tally.ok.count(), tally.failed), (2, 1));
        assert_eq!((tally.before, tally.after), ((2, 1), (1, 0)));
        assert_eq!(tally.per_second, [1, 1]);
        assert_eq!(tally.steps[&Step::Token].answered.count(), 1);
        let troubles = &tally.failures[&(Step::Token, FailureClass::Content, None)];
        assert_eq!((troubles.count, troubles.measured.count()), (2, 1));
    }

    #[test]
    fn statuses_that_were_not_expected_are_told_apart() {
        let mut tally = TransactionTally::new();
        tally.window = (0, 1000);
        for status in [503, 429, 503] {
            let trouble = TransactionFailure {
                step: Step::Token,
                class: FailureClass::Status,
                status: Some(status),
                why: "busy".to_owned(),
            };
            tally.record_transaction(5, 10, Err(trouble));
        }
        let of = |status| tally.failures[&(Step::Token, FailureClass::Status, Some(status))].count;
        assert_eq!((of(503), of(429)), (2, 1));
    }
}

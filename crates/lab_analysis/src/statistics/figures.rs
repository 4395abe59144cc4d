//! Figures: reads one number per iteration, which the statistics are computed from.
//!
//! Owns: how each figure is read from an iteration, and how iterations of two variants become
//! pairs.
//! Does not own: the statistics.
//!
//! A figure that an iteration does not have is absent, never 0. Where an iteration has no
//! histogram, the figure that another tool stated is used.

use std::fmt;

use super::streams::StreamFigure;
use super::{CoreWait, CpuUse};
use crate::record::{
    Class, Component, Distribution, Iteration, Outcome, SCRAPE_WINDOW, ScrapeWindows, Slice, Variant,
};
use crate::units::truncated;

/// A figure of an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Figure {
    /// Mean latency of successful responses, µs.
    Mean,
    /// A percentile of the latency of successful responses, µs. The value is its share in units of
    /// 1/100 000.
    Percentile(u32),
    /// Longest latency of a successful response, µs.
    Max,
    /// Successful responses per second.
    PerSecond,
    /// Share of requests that were refused, failed or never sent.
    BadShare,
    /// User and system CPU of a component per completed request, µs.
    CpuPerRequest(String),
    /// Time for which threads of a component were ready to run and waited for a core, per completed
    /// request, µs.
    CoreWaitPerRequest(String),
    /// User and system CPU of several components together per completed request, µs.
    CpuPerRequestSum(Vec<String>),
    /// Cores that a component used on average.
    Cores(String),
    /// A percentile of the latency of refusals, µs. The value is its share in units of 1/100 000.
    Refused(u32),
    /// Share of requests without a response, or with a status from 500 other than 503. Unknown
    /// where a tool counted refusals without their statuses.
    FailureShare,
    /// Highest memory use of a component, bytes.
    Memory(String),
    /// Highest memory use of a component in the last third of the window, divided by that in the
    /// first third.
    MemoryGrowth(String),
    /// Memory of a component per held connection, bytes: its growth since before the connections
    /// were opened.
    MemoryPerConnection(String),
    /// Longest time for which a held connection was open, µs, whether the server closed it or it
    /// was still open at the end.
    HeldLongest,
    /// A percentile of the latency of revocation requests, µs. The value is its share in units of
    /// 1/100 000.
    RevocationLatency(u32),
    /// Duration of a bulk revocation, from its first request to its last response, µs.
    BulkRevocation,
    /// How often a credential of a bulk revocation was still accepted after the bound, among the
    /// sampled ones.
    BulkRevocationAccepted,
    /// A percentile of the time until changes of a cluster are in force, µs. The value is its share
    /// in units of 1/100 000.
    ChangeInForce(u32),
    /// Changes of a cluster that were not written or that no request saw.
    ChangesFailed,
    /// Longest scrape of a component's metrics, µs.
    ScrapeLongest,
    /// Size of the largest scrape, bytes.
    ScrapeSize,
    /// 99th percentile of the latency of requests that were due in the window after the beginning of a
    /// scrape, less that of the window between two scrapes, µs.
    ScrapeDelay,
    /// Time from the last event until the end of the last slice with an unsuccessful request, µs.
    Recovery,
    /// 99th percentile of the time by which the lab sent requests later than due and possible, µs.
    Lateness,
    /// Growth of a counter that a component exposes. The values are the names of the component and
    /// of the counter.
    Counter(String, String),
    /// A figure of streams or WebSockets.
    Stream(StreamFigure),
}

impl Figure {
    /// Median latency of successful responses.
    pub const P50: Self = Self::Percentile(50_000);
    /// 95th percentile of the latency of successful responses.
    pub const P95: Self = Self::Percentile(95_000);
    /// 99th percentile of the latency of successful responses.
    pub const P99: Self = Self::Percentile(99_000);

    /// Whether a larger value is better.
    pub fn more_is_better(&self) -> bool {
        matches!(self, Self::PerSecond)
    }

    /// Whether the figure is a time in µs; CPU times are not included.
    pub fn is_latency(&self) -> bool {
        if let Self::Stream(figure) = self {
            return figure.is_time();
        }
        matches!(
            self,
            Self::Mean
                | Self::Percentile(_)
                | Self::Max
                | Self::Refused(_)
                | Self::HeldLongest
                | Self::RevocationLatency(_)
                | Self::BulkRevocation
                | Self::ChangeInForce(_)
                | Self::ScrapeLongest
                | Self::ScrapeDelay
                | Self::Recovery
                | Self::Lateness
        )
    }

    /// Value of the figure for an iteration; `None` when it is not known.
    pub fn value(&self, iteration: &Iteration) -> Option<f64> {
        // A tool states its figures over refusals too. Without a successful response they say
        // nothing about one.
        let stated = iteration.stated.as_ref().filter(|_| iteration.count(Outcome::Ok) > 0);
        let latency = || iteration.latency(Outcome::Ok).filter(|latency| !latency.is_empty());
        match self {
            Self::Mean => latency().map(|l| l.mean() / 1e3).or_else(|| stated?.mean_us),
            Self::Max => latency().map(|l| l.max() as f64 / 1e3).or_else(|| stated?.max_us),
            Self::Percentile(share) => {
                let share = f64::from(*share) / 1e5;
                let printed =
                    || stated?.percentiles.iter().find(|p| (p.share - share).abs() < 1e-9).map(|p| p.us);
                latency().map(|l| l.micros(share)).or_else(printed)
            }
            Self::PerSecond => {
                let ok = iteration.count(Outcome::Ok) as f64;
                Some(ok / iteration.seconds).filter(|rate| *rate > 0.0 || !iteration.classes.is_empty())
            }
            Self::BadShare => {
                let all = ended(iteration) + iteration.unsent as f64;
                let ok = iteration.count(Outcome::Ok) as f64;
                (all > 0.0).then(|| (all - ok) / all)
            }
            Self::CpuPerRequest(name) => per_request(iteration, &CpuUse::in_window(iteration, name)?),
            Self::CpuPerRequestSum(names) => {
                let each = names.iter().map(|name| CpuUse::in_window(iteration, name));
                per_request(iteration, &CpuUse::sum(&each.collect::<Option<Vec<_>>>()?)?)
            }
            Self::CoreWaitPerRequest(name) => CoreWait::in_window(iteration, name)?.per_request_us(),
            Self::Cores(name) => CpuUse::in_window(iteration, name)?.cores(),
            Self::Refused(share) => {
                let refused = iteration.latency(Outcome::Refused).filter(|latency| !latency.is_empty());
                refused.map(|latency| latency.micros(f64::from(*share) / 1e5))
            }
            Self::FailureShare => failure_share(iteration),
            Self::Memory(name) => most_memory(iteration, name, 0.0, 1.0),
            Self::MemoryGrowth(name) => {
                let early = most_memory(iteration, name, 0.0, 1.0 / 3.0).filter(|bytes| *bytes > 0.0)?;
                Some(most_memory(iteration, name, 2.0 / 3.0, 1.0)? / early)
            }
            Self::MemoryPerConnection(name) => {
                let held = iteration.held.as_ref().filter(|held| held.open_at_end > 0)?;
                let before = *held.memory_before.get(name)? as f64;
                let more = most_memory(iteration, name, 0.0, 1.0)? - before;
                Some(more.max(0.0) / held.open_at_end as f64)
            }
            Self::HeldLongest => {
                let held = iteration.held.as_ref()?;
                [held.lifetime_max_us, held.open_longest_us].into_iter().flatten().reduce(f64::max)
            }
            Self::RevocationLatency(share) => {
                let answer =
                    iteration.revocations.as_ref()?.answer.as_ref().filter(|answer| !answer.is_empty())?;
                Some(answer.micros(f64::from(*share) / 1e5))
            }
            Self::BulkRevocation => {
                let flood = iteration.revocations.as_ref()?.flood.as_ref()?;
                // A refused list takes no time, so the duration counts only when no revocation
                // failed.
                (flood.failed == 0).then_some(flood.took_s * 1e6)
            }
            Self::BulkRevocationAccepted => {
                let flood = iteration.revocations.as_ref()?.flood.as_ref()?;
                (flood.unclear == 0 && flood.refused + flood.admitted > 0).then_some(flood.admitted as f64)
            }
            Self::ChangeInForce(share) => iteration.changes.as_ref()?.micros(f64::from(*share) / 1e5),
            Self::ChangesFailed => {
                let changes = iteration.changes.as_ref()?;
                Some((changes.failed + changes.never) as f64)
            }
            Self::ScrapeLongest | Self::ScrapeSize | Self::ScrapeDelay => self.of_scrapes(iteration),
            Self::Recovery => healing(iteration),
            Self::Stream(figure) => figure.value(iteration),
            Self::Lateness => iteration.generator.as_ref()?.lag_p99_us,
            Self::Counter(component, name) => {
                let component = iteration.observed(component)?;
                component.counters.get(name).map(|grown| *grown as f64)
            }
        }
    }

    /// Value of a figure of scrapes. A scrape without a response has no time and no size.
    fn of_scrapes(&self, iteration: &Iteration) -> Option<f64> {
        let scrapes = iteration.scrapes.as_ref()?;
        let is_complete = scrapes.failed == 0 && !scrapes.duration.is_empty();
        match self {
            Self::ScrapeLongest => is_complete.then(|| scrapes.duration.micros(1.0)),
            Self::ScrapeSize => is_complete.then_some(scrapes.largest_bytes as f64),
            _ => {
                let ScrapeWindows { after, between } = scrapes.windows.as_ref()?;
                // Otherwise the window ends before the scrape.
                let is_covered = is_complete
                    && scrapes.duration.micros(0.99) <= SCRAPE_WINDOW.as_secs_f64() * 1e6
                    && !after.is_empty()
                    && !between.is_empty();
                is_covered.then(|| after.micros(0.99) - between.micros(0.99))
            }
        }
    }
}

/// Share of requests without a proper answer: failed, not sent, or answered with a status from 500,
/// except 503, which is a refusal. `None` if the statuses are not known.
fn failure_share(iteration: &Iteration) -> Option<f64> {
    let all = ended(iteration) + iteration.unsent as f64;
    // A step of a flow names its own fault for a response whose status is not a
    // refusal.
    let unknown =
        |class: &Class| class.outcome == Outcome::Refused && class.status.is_none() && class.fault.is_none();
    if iteration.classes.iter().any(|class| class.count > 0 && unknown(class)) {
        return None;
    }
    let busy = |status: Option<u16>| matches!(status, Some(503));
    let wrong = iteration.classes.iter().filter(|class| {
        class.outcome == Outcome::Failed
            || class.status.is_some_and(|status| status >= 500) && !busy(class.status)
    });
    let failed = wrong.map(|class| class.count).sum::<u64>() + iteration.unsent;
    (all > 0.0).then(|| failed as f64 / all)
}

/// Microseconds from the last event to the end of the last slice with errors.
fn healing(iteration: &Iteration) -> Option<f64> {
    let last = iteration.events.last()?.at_ms;
    let ends = |slice: &Slice| slice.at_ms + slice.ms;
    // Recovery is only known when the last slice is without errors and after the event.
    iteration.timeline.last().filter(|slice| slice.bad == 0 && slice.at_ms > last)?;
    let bad = iteration.timeline.iter().filter(|slice| slice.bad > 0).map(ends).max();
    Some(bad.map_or(0, |end| end.saturating_sub(last)) as f64 * 1e3)
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => write!(f, "mean"),
            Self::Max => write!(f, "max"),
            Self::Percentile(share) => write!(f, "P{}", f64::from(*share) / 1e3),
            Self::PerSecond => write!(f, "throughput"),
            Self::BadShare => write!(f, "errors"),
            Self::CpuPerRequest(name) => write!(f, "CPU per request, {name}"),
            Self::CpuPerRequestSum(_) => write!(f, "CPU per request"),
            Self::CoreWaitPerRequest(name) => write!(f, "wait for a core per request, {name}"),
            Self::Cores(name) => write!(f, "cores, {name}"),
            Self::Refused(share) => write!(f, "P{} of refusals", f64::from(*share) / 1e3),
            Self::FailureShare => write!(f, "failures"),
            Self::Memory(name) => write!(f, "memory, {name}"),
            Self::MemoryGrowth(name) => write!(f, "growth of memory, {name}"),
            Self::MemoryPerConnection(name) => write!(f, "memory per held connection, {name}"),
            Self::HeldLongest => write!(f, "longest lifetime of a held connection"),
            Self::RevocationLatency(share) => write!(f, "P{} of revocation latency", f64::from(*share) / 1e3),
            Self::BulkRevocation => write!(f, "duration of the bulk revocation"),
            Self::BulkRevocationAccepted => write!(f, "accepted after the bulk revocation"),
            Self::ChangeInForce(share) => write!(f, "P{} of changes in force", f64::from(*share) / 1e3),
            Self::ChangesFailed => write!(f, "changes that failed"),
            Self::ScrapeLongest => write!(f, "longest scrape"),
            Self::ScrapeSize => write!(f, "size of a scrape"),
            Self::ScrapeDelay => write!(f, "delay beside scrapes"),
            Self::Recovery => write!(f, "recovery time"),
            Self::Lateness => write!(f, "P99 of lateness"),
            Self::Counter(component, name) => write!(f, "{name}, {component}"),
            Self::Stream(figure) => figure.fmt(f),
        }
    }
}

fn ended(iteration: &Iteration) -> f64 {
    iteration.classes.iter().map(|class| class.count).sum::<u64>() as f64
}

/// Highest memory use of a component in a part of the window. `from` and `until` are shares of the
/// window.
fn most_memory(iteration: &Iteration, name: &str, from: f64, until: f64) -> Option<f64> {
    let component = iteration.observed(name)?;
    let at = |share: f64| truncated((iteration.warmup_s + iteration.seconds * share) * 1e3);
    let inside = component.samples.iter().filter(|sample| (at(from)..=at(until)).contains(&sample.at_ms));
    inside.map(|sample| sample.rss_bytes).max().map(|bytes| bytes as f64)
}

/// CPU per request, µs; `None` when the CPU is not exact enough.
fn per_request(iteration: &Iteration, cpu: &CpuUse) -> Option<f64> {
    let rate = ended(iteration) / iteration.seconds;
    (rate > 0.0).then(|| cpu.exact_cores()).flatten().map(|cores| cores / rate * 1e6)
}

/// First and last sample of a component in the measured window. `None` when fewer than two samples
/// lie in it.
pub(crate) fn window<'a>(
    iteration: &Iteration,
    component: &'a Component,
) -> Option<(&'a crate::record::Sample, &'a crate::record::Sample)> {
    let from = truncated(iteration.warmup_s * 1e3);
    let until = truncated(((iteration.warmup_s + iteration.seconds) * 1e3).ceil());
    let mut inside = component.samples.iter().filter(|sample| (from..=until).contains(&sample.at_ms));
    let first = inside.next()?;
    Some((first, inside.next_back()?))
}

/// The figure of each iteration that has it, in order.
pub fn figures(variant: &Variant, figure: &Figure) -> Vec<f64> {
    variant.iterations.iter().filter_map(|iteration| figure.value(iteration)).collect()
}

/// Figures of two variants, paired by iteration number: iterations of one number ran next to each
/// other.
pub fn paired(a: &Variant, b: &Variant, figure: &Figure) -> Vec<(f64, f64)> {
    paired_figures((a, figure), (b, figure))
}

/// A figure of one variant and a figure of another, paired by iteration number. The figures differ
/// where each variant has its own components.
pub fn paired_figures(a: (&Variant, &Figure), b: (&Variant, &Figure)) -> Vec<(f64, f64)> {
    let of_b = |number| b.0.iterations.iter().find(|iteration| iteration.number == number);
    let iterations = a.0.iterations.iter();
    iterations.filter_map(|left| Some((a.1.value(left)?, b.1.value(of_b(left.number)?)?))).collect()
}

/// Latencies of all iterations merged into one distribution; `None` where an iteration with this
/// outcome has no histogram.
pub fn pooled(variant: &Variant, outcome: Outcome) -> Option<Distribution> {
    let mut all: Option<Distribution> = None;
    for iteration in variant.iterations.iter().filter(|iteration| iteration.count(outcome) > 0) {
        let latency = iteration.latency(outcome)?;
        match &mut all {
            None => all = Some(latency),
            Some(all) => all.add(&latency),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::record::{Sample, StatedFigures, StatedPercentile};

    fn iteration() -> Iteration {
        let latency = Distribution::of((1..=90).map(|ms| ms * 1_000_000), 4);
        let class = |outcome, status, count, latency| Class {
            outcome,
            status: Some(status),
            fault: None,
            count,
            latency,
            example: None,
        };
        let look = |at_ms, user_ms| Sample { at_ms, user_ms, ..Sample::default() };
        Iteration {
            warmup_s: 1.0,
            classes: vec![class(Outcome::Ok, 200, 90, Some(latency)), class(Outcome::Refused, 503, 10, None)],
            components: vec![Component {
                name: "gateway".to_owned(),
                cpu_limit_cores: None,
                memory_limit_bytes: None,
                cpu_error_us: None,
                samples: vec![look(0, 0), look(1000, 500), look(3000, 1500), look(9000, 9000)],
                counters: BTreeMap::new(),
                ended: false,
            }],
            ..Iteration::new(1, 2.0)
        }
    }

    fn is(figure: &Figure, expected: f64) {
        let found = figure.value(&iteration()).unwrap();
        assert!((found / expected - 1.0).abs() < 1e-3, "{figure}: {found} is not {expected}");
    }

    #[test]
    fn figures_are_those_of_the_window() {
        is(&Figure::PerSecond, 45.0);
        is(&Figure::BadShare, 0.1);
        is(&Figure::P50, 45_000.0);
        is(&Figure::Cores("gateway".to_owned()), 0.5);
        is(&Figure::CpuPerRequest("gateway".to_owned()), 10_000.0);
        assert_eq!(Figure::Cores("nobody".to_owned()).value(&iteration()), None);
    }

    #[test]
    fn what_is_only_stated_is_used_as_it_is_and_nothing_is_made_up() {
        let mut summary = iteration();
        summary.classes[0].latency = None;
        let percentiles = vec![StatedPercentile { share: 0.5, us: 7.0 }];
        summary.stated = Some(StatedFigures {
            tool: "wrk".to_owned(),
            rule: String::new(),
            mean_us: None,
            min_us: None,
            max_us: Some(9.0),
            per_s: None,
            percentiles,
            sent_percentiles: Vec::new(),
        });
        assert_eq!(Figure::P50.value(&summary), Some(7.0));
        assert_eq!(Figure::P99.value(&summary), None);
        assert_eq!(Figure::Mean.value(&summary), None);
        assert_eq!(Figure::Max.value(&summary), Some(9.0));
        summary.classes.remove(0);
        assert_eq!(Figure::P50.value(&summary), None, "all of it was refused");
        assert_eq!(Figure::Max.value(&summary), None);
    }

    #[test]
    fn what_nobody_answered_and_servers_own_faults_are_failures_and_503_is_none() {
        let mut iteration = iteration();
        assert_eq!(Figure::FailureShare.value(&iteration), Some(0.0));
        iteration.classes.push(Class {
            outcome: Outcome::Refused,
            status: Some(502),
            count: 7,
            ..iteration.classes[1].clone()
        });
        let fault = Some("reset".to_owned());
        iteration.classes.push(Class {
            outcome: Outcome::Failed,
            status: None,
            fault,
            count: 2,
            ..iteration.classes[1].clone()
        });
        iteration.unsent = 1;
        assert_eq!(Figure::FailureShare.value(&iteration), Some(10.0 / 110.0));
        // wrk, h2load and k6 count refusals without their statuses.
        let unnamed = |count, fault| Class { status: None, count, fault, ..iteration.classes[1].clone() };
        let with =
            |class| Iteration { classes: vec![iteration.classes[0].clone(), class], ..iteration.clone() };
        assert_eq!(Figure::FailureShare.value(&with(unnamed(10, None))), None);
        assert_eq!(Figure::FailureShare.value(&with(unnamed(0, None))), Some(1.0 / 91.0));
        let step = unnamed(10, Some("revoke: status".to_owned()));
        assert_eq!(Figure::FailureShare.value(&with(step)), Some(1.0 / 101.0), "a flow knows its statuses");
    }

    #[test]
    fn memory_is_that_of_the_window_and_grows_from_its_first_third_to_its_last() {
        let mut iteration = Iteration { seconds: 9.0, ..iteration() };
        let looks = [(0, 99), (1000, 10), (3000, 20), (5000, 70), (8000, 30), (10_000, 40), (11_000, 99)];
        iteration.components[0].samples =
            looks.map(|(at_ms, rss_bytes)| Sample { at_ms, rss_bytes, ..Sample::default() }).to_vec();
        let of = |figure: fn(String) -> Figure| figure("gateway".to_owned()).value(&iteration);
        assert_eq!((of(Figure::Memory), of(Figure::MemoryGrowth)), (Some(70.0), Some(2.0)));
    }

    #[test]
    fn names_are_as_people_write_them() {
        let named =
            [Figure::P50, Figure::P99, Figure::Percentile(99_900), Figure::CpuPerRequest("x".to_owned())];
        assert_eq!(named.map(|figure| figure.to_string()), ["P50", "P99", "P99.9", "CPU per request, x"]);
    }
}

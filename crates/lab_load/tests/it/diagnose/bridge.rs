//! Bridge: converts a real run of the load generator, the log of the servers and the samples to an
//! iteration of a record.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab_analysis::record::{
    Arrivals, Class, Component, Distribution, Event, GeneratorUse, Iteration, LoadShape, Outcome, Record,
    Sample, Slice, Variant,
};
use lab_analysis::test_support::sample;
use lab_load::load::{self, Latency, Plan, RequestFault};
use lab_load::observe::{ProcessSampler, Series, WatchedProcess};
use lab_load::report::{LoadReport, run_load};

use super::control_group::CpuLimit;
use super::faulty::{Answer, FaultyServer, Log, now};

/// Length of a slice in ms.
const SLICE: u64 = 50;
/// Time between two samples of a process.
const LOOK: Duration = Duration::from_millis(50);
const MS: u64 = 1_000_000;

/// A server whose process is sampled.
pub(crate) struct ObservedServer<'a> {
    pub(crate) name: &'a str,
    pub(crate) server: &'a FaultyServer,
    pub(crate) limit: Option<&'a CpuLimit>,
}

/// Loads the first of `watched` with `plan`. Meanwhile `meanwhile` performs an action and returns
/// its description.
pub(crate) fn iteration(
    number: u32,
    plan: &Plan,
    watched: &[ObservedServer<'_>],
    meanwhile: &(dyn Fn() -> Option<&'static str> + Sync),
) -> Iteration {
    for seen in watched {
        seen.server.log();
    }
    let named =
        watched.iter().map(|seen| WatchedProcess { name: seen.name.to_owned(), pid: seen.server.pid() });
    let (origin, clock) = (now(), Instant::now());
    let watch = ProcessSampler::start(&named.collect::<Vec<_>>(), LOOK, clock).unwrap();
    let limit = watched.iter().find_map(|seen| seen.limit);
    let over = AtomicBool::new(false);
    let (report, events, periods) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut periods = Vec::new();
            while let Some(limit) = limit.filter(|_| !over.load(Ordering::SeqCst)) {
                periods.push((now() - origin, limit.read()));
                std::thread::sleep(LOOK / 2);
            }
            periods
        });
        let happening = scope.spawn(|| {
            let what = meanwhile()?;
            Some(Event { at_ms: (now() - origin) / MS, what: what.to_owned() })
        });
        let report = run_load(plan).unwrap();
        over.store(true, Ordering::SeqCst);
        (report, happening.join().unwrap(), looking.join().unwrap())
    });
    let series = watch.stop();
    let logs: Vec<Log> = watched.iter().map(|seen| seen.server.log()).collect();
    let begun = logs[0].answers.iter().map(|answer| answer.at - answer.took).min().unwrap_or(origin);
    let components = watched.iter().zip(&series).zip(&logs).map(|((seen, series), log)| {
        let periods = if seen.limit.is_some() { &periods[..] } else { &[] };
        component(seen, series, log, origin, periods)
    });
    Iteration {
        warmup_s: (begun - origin) as f64 / 1e9 + plan.warmup.as_secs_f64(),
        classes: classes(&report),
        unsent: report
            .faults
            .iter()
            .filter(|fault| fault.class == RequestFault::Unsent)
            .map(|fault| fault.count)
            .sum(),
        service: Some(distribution_from_summary(&report.service_us)),
        mean_in_flight: Some(report.totals.mean_in_flight),
        generator: Some(GeneratorUse {
            cpu_share: report.generator.cpu_share,
            core_wait_share: report.generator.core_wait_share,
            stolen_share: report.generator.stolen_share,
            lag_p99_us: Some(report.generator.lag_us.p99),
            limited: report.generator.limited,
        }),
        timeline: timeline(&logs[0].answers, begun, origin),
        components: components.collect(),
        events: events.into_iter().collect(),
        streams: report.streams.clone(),
        ..Iteration::new(number, report.totals.seconds)
    }
}

fn classes(report: &LoadReport) -> Vec<Class> {
    let answered = report.statuses.iter().map(|row| Class {
        outcome: if row.status < 400 { Outcome::Ok } else { Outcome::Refused },
        status: Some(row.status),
        fault: None,
        count: row.count,
        latency: Some(distribution_from_summary(&row.latency_us)),
        example: None,
    });
    let failed = report.faults.iter().filter(|row| row.class != RequestFault::Unsent).map(|row| Class {
        outcome: Outcome::Failed,
        status: None,
        fault: Some(format!("{:?}", row.class).to_ascii_lowercase()),
        count: row.count,
        latency: Some(distribution_from_summary(&row.latency_us)),
        example: Some(row.example.clone()),
    });
    answered.chain(failed).collect()
}

/// A distribution with these percentiles and this mean. Between two percentiles it follows the
/// power that gives the mean.
fn distribution_from_summary(summary: &Latency) -> Distribution {
    let points = [
        (0.0, summary.min),
        (0.5, summary.p50),
        (0.75, summary.p75),
        (0.9, summary.p90),
        (0.95, summary.p95),
        (0.99, summary.p99),
        (0.999, summary.p999),
        (1.0, summary.max),
    ];
    let value = |share: f64, power: f64| {
        let upper = points.iter().position(|point| point.0 >= share).unwrap().max(1);
        let ((from, low), (until, high)) = (points[upper - 1], points[upper]);
        (low + (high - low) * ((share - from) / (until - from)).powf(power)).max(0.0)
    };
    let shares = || (0..summary.count).map(|at| (at as f64 + 0.5) / summary.count as f64);
    // The higher the power, the lower the mean.
    let (mut low, mut high) = (0.01, 100.0);
    for _ in 0..40 {
        let power = f64::sqrt(low * high);
        let mean = shares().map(|share| value(share, power)).sum::<f64>() / summary.count as f64;
        (low, high) = if mean > summary.mean { (power, high) } else { (low, power) };
    }
    Distribution::of(shares().map(|share| (value(share, low) * 1e3) as u64), 3)
}

/// Responses over time, in slices that begin with the first request.
fn timeline(answers: &[Answer], begun: u64, origin: u64) -> Vec<Slice> {
    let first = (begun - origin) / MS;
    let place = |answer: &Answer| ((answer.at - origin) / MS).saturating_sub(first) / SLICE;
    let last = answers.iter().map(place).max().unwrap_or(0);
    let mut times: Vec<Vec<u64>> = vec![Vec::new(); usize::try_from(last + 1).unwrap()];
    let mut bad = vec![0; times.len()];
    for answer in answers {
        let at = usize::try_from(place(answer)).unwrap();
        if answer.status < 400 {
            times[at].push(answer.took);
        } else {
            bad[at] += 1;
        }
    }
    let slice = |(at, (mut times, bad)): (u64, (Vec<u64>, u64))| {
        times.sort_unstable();
        let micros = |share: usize| {
            times.get((times.len() * share / 100).min(times.len().max(1) - 1)).map(|ns| *ns as f64 / 1e3)
        };
        Slice {
            at_ms: first + at * SLICE,
            ms: SLICE,
            ok: times.len() as u64,
            bad,
            p50_us: micros(50),
            p99_us: micros(99),
            max_us: micros(100),
        }
    };
    (0..).zip(times.into_iter().zip(bad)).map(slice).collect()
}

fn component(
    seen: &ObservedServer<'_>,
    series: &Series,
    log: &Log,
    origin: u64,
    periods: &[(u64, [u64; 3])],
) -> Component {
    let mut samples: Vec<Sample> = Vec::new();
    for look in &series.samples {
        let at = origin + look.at_ms * MS;
        let of = |which: usize| {
            let known = periods.iter().rev().find(|(when, _)| origin + when <= at).or(periods.first());
            known.map(|(_, counts)| counts[which])
        };
        let before = samples.last();
        // An ended thread no longer reports its context switches, so the earlier value is kept.
        let grown = |now: u64, earlier: fn(&Sample) -> u64| now.max(before.map_or(0, earlier));
        samples.push(Sample {
            at_ms: look.at_ms,
            user_ms: look.usage.user_ms,
            system_ms: look.usage.system_ms,
            cpu_us: Some(look.usage.cpu_ns / 1000),
            rss_bytes: look.usage.rss_bytes,
            threads: look.usage.threads,
            voluntary_switches: grown(look.usage.voluntary_switches, |sample| sample.voluntary_switches),
            involuntary_switches: grown(look.usage.involuntary_switches, |sample| {
                sample.involuntary_switches
            }),
            core_wait_us: look
                .usage
                .core_wait_ns
                .map(|ns| ns / 1000)
                .max(before.and_then(|b| b.core_wait_us)),
            connections_opened: Some(log.opened.iter().filter(|opened| **opened <= at).count() as u64),
            calls_received: Some(log.answers.iter().filter(|answer| answer.at <= at).count() as u64),
            periods: of(0),
            throttled_periods: of(1),
            throttled_ms: of(2),
            ..Sample::default()
        });
    }
    Component {
        name: seen.name.to_owned(),
        cpu_limit_cores: seen.limit.map(|limit| limit.cores),
        memory_limit_bytes: None,
        cpu_error_us: series.samples.iter().map(|look| look.usage.cpu_error_ns / 1000).max(),
        samples,
        counters: BTreeMap::new(),
        ended: series.ended,
    }
}

/// A variant of these iterations, with the load of `plan`.
pub(crate) fn variant(name: &str, plan: &Plan, iterations: Vec<Iteration>) -> Variant {
    let (arrivals, rate) = match &plan.schedule {
        load::Schedule::Closed { .. } => (Arrivals::Closed, None),
        load::Schedule::Open(open) => (Arrivals::Open, Some(open.steps[0].rate)),
    };
    Variant {
        name: name.to_owned(),
        topology: String::new(),
        path: Vec::new(),
        labels: std::collections::BTreeMap::new(),
        load: LoadShape {
            arrivals,
            concurrency: u32::try_from(plan.slots()).ok(),
            rate_per_s: rate,
            stages: Vec::new(),
            flow: "request".to_owned(),
            protocol: Some("http/1.1".to_owned()),
            tokens: Some(plan.flow.tokens.len() as u64),
            timeout_s: Some(plan.timeout.as_secs_f64()),
        },
        iterations,
        missing: Vec::new(),
        counters: BTreeMap::new(),
        profile: None,
    }
}

/// A record of these variants, measured on this machine.
pub(crate) fn record(variants: Vec<Variant>) -> Record {
    sample::measured(variants, std::thread::available_parallelism().unwrap().get().try_into().unwrap())
}

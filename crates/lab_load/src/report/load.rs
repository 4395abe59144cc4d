//! Report of a load run.

use std::time::Duration;

use lab_analysis::record::Streams;
use lab_analysis::units::{ratio, seconds};
use serde::Serialize;

use super::SCHEMA;
use super::finding::Finding;
use crate::load::stream_recorder::StreamRecorder;
use crate::load::{
    InterArrival, Latency, LoadOutcome, Plan, Protocol, RequestFault, Schedule, Second, Step, Stop,
    TokenChoice,
};
use crate::observe::Observation;

/// What a load run measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadReport {
    /// Name and version of the shape: [`SCHEMA`].
    pub schema: &'static str,
    /// Kind of report: `load`.
    pub kind: &'static str,
    /// What makes the figures doubtful, the generator's own limits first.
    pub findings: Vec<Finding>,
    /// What the generator itself used.
    pub generator: GeneratorUse,
    /// The plan of the run.
    pub plan: PlanFacts,
    /// Counts of the measured phase.
    pub totals: Totals,
    /// Latency of requests answered with a status below 400, µs, from their *intended* start to the
    /// end of the response.
    pub latency_us: Latency,
    /// Latency of the same requests from the moment at which they were sent, µs: without the wait
    /// for a free connection.
    pub service_us: Latency,
    /// How long due requests waited for a free connection, µs.
    pub connection_wait_us: Latency,
    /// Latency of every measured request, failed ones included, µs, from the intended start.
    pub all_us: Latency,
    /// Cumulative distribution of `latency_us`: pairs of share and µs.
    pub latency_curve: Vec<(f64, f64)>,
    /// Responses by status.
    pub statuses: Vec<StatusCount>,
    /// Requests without a response, by class.
    pub faults: Vec<FaultCount>,
    /// The run second by second, warm-up included.
    pub timeline: Vec<Second>,
    /// Streams and WebSockets; absent where requests begin none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
    /// Processes observed during the run, over the measured phase.
    pub watched: Vec<Observation>,
}

/// What the generator itself used while requests of the measured phase were due.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GeneratorUse {
    /// Version of this crate.
    pub version: &'static str,
    /// Share of one core that its thread used; absent where the kernel does not report it.
    pub cpu_share: Option<f64>,
    /// CPU microseconds per completed request.
    pub cpu_us_per_request: Option<f64>,
    /// Share of the time in which its thread was ready to run and waited for a core.
    pub core_wait_share: Option<f64>,
    /// Share of CPU time that the host gave to other virtual machines (steal); absent where the
    /// kernel does not report it.
    pub stolen_share: Option<f64>,
    /// Time by which requests were sent later than due *and* possible, µs.
    pub lag_us: Latency,
    /// Whether the generator, not the target, limits or distorts the figures.
    pub limited: bool,
}

/// The plan of a load run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanFacts {
    /// URL of the target.
    pub url: String,
    /// Protocol: `http/1.1` or `h2`.
    pub protocol: &'static str,
    /// Whether connections use TLS.
    pub tls: bool,
    /// Arrivals: `closed`, `constant` or `poisson`.
    pub arrivals: &'static str,
    /// Requests per second and seconds, one pair per step; empty for a closed loop.
    pub steps: Vec<(f64, f64)>,
    /// Rates at the ends of the steps, where one of them changes; empty otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps_to: Vec<f64>,
    /// Number of connections.
    pub connections: usize,
    /// Requests in flight at once on one connection.
    pub streams: usize,
    /// Whether a connection carries more than one request.
    pub keep_alive: bool,
    /// Length of the warm-up, seconds.
    pub warmup_s: f64,
    /// Length of the measured phase, seconds; absent when requests are counted.
    pub duration_s: Option<f64>,
    /// Number of measured requests; absent when the run ends by time.
    pub requests: Option<u64>,
    /// Timeout of a request, seconds.
    pub timeout_s: f64,
    /// HTTP method of the requests.
    pub method: String,
    /// Bytes of content per request.
    pub body_bytes: usize,
    /// Number of different bearer tokens.
    pub tokens: usize,
    /// Exponent of the Zipf choice of tokens; absent for round robin.
    pub zipf: Option<f64>,
    /// Seed of arrivals and token choice.
    pub seed: u64,
}

/// Counts of the measured phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Totals {
    /// Requests that should have started in the measured phase.
    pub planned: u64,
    /// Of these, answered with a status below 400.
    pub ok: u64,
    /// Of these, answered with a status from 400.
    pub refused: u64,
    /// Of these, without a valid response.
    pub failed: u64,
    /// Length of the measured phase, seconds.
    pub seconds: f64,
    /// Responses below 400 per second of the measured phase, counted when they ended.
    pub ok_per_s: f64,
    /// Requests that ended per second of the measured phase, successful or not; without those that
    /// were never sent.
    pub ended_per_s: f64,
    /// Average number of requests in flight: by Little's law, rate × time in flight.
    pub mean_in_flight: f64,
    /// The same while requests were due: without the end of the run, when only responses were
    /// awaited.
    pub mean_in_flight_while_due: f64,
    /// Connections opened during the whole run.
    pub connections_opened: u64,
    /// Bytes received during the whole run (HTTP/2: content only).
    pub bytes_received: u64,
}

/// Responses with one status.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatusCount {
    /// The status; 0 collects the rarer ones.
    pub status: u16,
    /// Number of responses.
    pub count: u64,
    /// Latency of these responses, µs from the intended start.
    pub latency_us: Latency,
}

/// Requests that failed in the same way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FaultCount {
    /// Class of the failure.
    pub class: RequestFault,
    /// Number of requests.
    pub count: u64,
    /// Time until the failure, µs from the intended start.
    pub latency_us: Latency,
    /// Description of the first of them.
    pub example: String,
}

impl LoadReport {
    /// Creates the report of a run without findings.
    pub(super) fn without_findings(plan: &Plan, outcome: &LoadOutcome) -> Self {
        let recorder = &outcome.recorder;
        let totals = totals(outcome);
        let (from, until) = recorder.window.bounds();
        let window = (Duration::from_nanos(from), Duration::from_nanos(until));
        Self {
            schema: SCHEMA,
            kind: "load",
            findings: Vec::new(),
            generator: generator(outcome),
            plan: PlanFacts::new(plan, outcome.connections),
            latency_us: recorder.ok.summary(),
            service_us: recorder.service.summary(),
            connection_wait_us: recorder.wait.summary(),
            all_us: recorder.all.summary(),
            latency_curve: recorder.ok.curve(),
            statuses: statuses(outcome),
            faults: faults(outcome),
            timeline: recorder.timeline.clone(),
            streams: recorder.streams.as_ref().map(StreamRecorder::streams),
            watched: outcome
                .watched
                .iter()
                .map(|series| series.in_window(window.0, window.1, Some(totals.ended_per_s)))
                .collect(),
            totals,
        }
    }

    /// Measured requests that were not answered with a status below 400.
    pub fn unsuccessful(&self) -> u64 {
        self.totals.refused + self.totals.failed
    }
}

impl PlanFacts {
    fn new(plan: &Plan, connections: usize) -> Self {
        let (arrivals, steps): (_, &[Step]) = match &plan.schedule {
            Schedule::Closed { .. } => ("closed", &[]),
            Schedule::Open(open) => {
                let name = if open.spacing == InterArrival::Constant { "constant" } else { "poisson" };
                (name, &open.steps)
            }
        };
        let (duration, requests) = match plan.stop {
            Stop::After(duration) => (Some(duration.as_secs_f64()), None),
            Stop::Count(count) => (None, Some(count)),
        };
        Self {
            url: plan.target.url.clone(),
            protocol: if plan.target.protocol == Protocol::Http1 { "http/1.1" } else { "h2" },
            tls: plan.target.is_tls(),
            arrivals,
            steps: steps.iter().map(|step| (step.rate, step.duration.as_secs_f64())).collect(),
            steps_to: if steps.iter().all(Step::is_steady) {
                Vec::new()
            } else {
                steps.iter().map(|step| step.to).collect()
            },
            connections,
            streams: plan.streams,
            keep_alive: plan.flow.keep_alive,
            warmup_s: plan.warmup.as_secs_f64(),
            duration_s: duration,
            requests,
            timeout_s: plan.timeout.as_secs_f64(),
            method: plan.flow.method.to_string(),
            body_bytes: plan.flow.body.len(),
            tokens: plan.flow.tokens.len(),
            zipf: match plan.flow.choice {
                TokenChoice::RoundRobin => None,
                TokenChoice::Zipf(exponent) => Some(exponent),
            },
            seed: plan.seed,
        }
    }
}

fn totals(outcome: &LoadOutcome) -> Totals {
    let recorder = &outcome.recorder;
    let answered: u64 = recorder.statuses.values().map(crate::load::Latencies::count).sum();
    let window = &recorder.window;
    let (from, until) = window.bounds();
    let length = seconds(until.saturating_sub(from));
    Totals {
        planned: outcome.planned,
        ok: recorder.ok.count(),
        refused: answered - recorder.ok.count(),
        failed: recorder.all.count() - answered,
        seconds: length,
        ok_per_s: ratio(window.ok() as f64, length),
        ended_per_s: ratio(window.ended() as f64, length),
        mean_in_flight: window.mean_in_flight(),
        mean_in_flight_while_due: window.mean_in_flight_while_due(),
        connections_opened: outcome.opened,
        bytes_received: outcome.received,
    }
}

fn generator(outcome: &LoadOutcome) -> GeneratorUse {
    let wall = outcome.self_usage.wall as f64;
    let share = |part: Option<u64>| part.map(|part| ratio(part as f64, wall));
    let ended = outcome.recorder.window.ended();
    GeneratorUse {
        version: env!("CARGO_PKG_VERSION"),
        cpu_share: share(outcome.self_usage.running),
        cpu_us_per_request: outcome
            .self_usage
            .running
            .filter(|_| ended > 0)
            .map(|running| ratio(running as f64 / 1e3, ended as f64)),
        core_wait_share: share(outcome.self_usage.waiting),
        stolen_share: outcome.self_usage.stolen_share(),
        lag_us: outcome.recorder.lag.summary(),
        limited: false,
    }
}

fn statuses(outcome: &LoadOutcome) -> Vec<StatusCount> {
    let rows = outcome.recorder.statuses.iter();
    rows.map(|(&status, seen)| StatusCount { status, count: seen.count(), latency_us: seen.summary() })
        .collect()
}

fn faults(outcome: &LoadOutcome) -> Vec<FaultCount> {
    let rows = outcome.recorder.faults.iter();
    rows.map(|(&class, seen)| FaultCount {
        class,
        count: seen.count(),
        latency_us: seen.summary(),
        example: outcome.examples.get(&class).map_or_else(String::new, ToString::to_string),
    })
    .collect()
}

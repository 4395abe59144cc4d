//! Load table: the TOML form of a load.
//!
//! Owns: keys and their permitted values. Does not own: the checked form ([`super::load`]).

use std::time::Duration;

use lab_analysis::amount;
use lab_analysis::record::IdentifiedBy;
use lab_load::cluster::{ChangeSchedule, ChangedObjects};
use lab_load::load::{Exchange, InterArrival, Stop};
use lab_load::provider::Flow;
use lab_load::revoke::{Flood, RevocationSchedule};
use serde::Deserialize;

use super::event::{self, EventTable};
use super::exchange_table::{StreamTable, WebSocketTable, exchange};
use super::hold_table::HoldTable;
use super::load::{ArrivalPattern, Load};
use super::rate::{RateProfile, RateTable, stages};

/// Default number of connections of an open loop.
const DEFAULT_CONNECTIONS: u32 = 64;
/// Default duration of the warm-up.
const WARMUP: Duration = Duration::from_secs(1);
/// Default timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Default interval of revocations, and default time for which a revoked credential is watched.
const DEFAULT_REVOCATION_INTERVAL: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(30);
/// Shortest value of either time.
pub(super) const MIN_REVOCATION_INTERVAL: Duration = Duration::from_millis(1);
/// Default time for which requests look for a change of a cluster.
const CHANGE_PATIENCE: Duration = Duration::from_secs(10);
/// Largest number of changes of a cluster per second.
const MAX_CHANGE_RATE: f64 = 10_000.0;
/// Fewest rates of a load with several rates.
const MIN_RATES: usize = 3;
/// Largest number of workers or connections: each takes a port.
const MOST: u32 = 10_000;
/// Largest number of tokens in a revocation flood.
const MAX_FLOOD_TOKENS: u32 = 1_000_000;
/// Largest number of tokens in a population.
const MAX_TOKENS: u32 = 100_000;

/// A load, and the suffix of its name if its table stands for several loads.
pub(super) type Part = (Option<String>, Load);

/// A load as it is in a file. Every key is optional, and `[quick.load.NAME]` can override it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadTable {
    flow: Option<String>,
    arrivals: Option<ArrivalsName>,
    concurrency: Option<u32>,
    connections: Option<u32>,
    rate: Option<RateTable>,
    /// Several rates; the table stands for one load per rate.
    rates: Option<Vec<RateTable>>,
    steps: Option<Vec<String>>,
    requests: Option<u64>,
    duration: Option<String>,
    rounds: Option<u32>,
    warmup: Option<String>,
    path: Option<String>,
    tokens: Option<u32>,
    zipf: Option<f64>,
    timeout: Option<String>,
    streams: Option<u32>,
    hold: Option<HoldTable>,
    revocations: Option<RevocationsTable>,
    changes: Option<ChangesTable>,
    scrape_every: Option<String>,
    event: Option<Vec<EventTable>>,
    every_request: Option<bool>,
    stream: Option<StreamTable>,
    websocket: Option<WebSocketTable>,
}

/// Revocations during load as they are in a file. Every key is optional.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RevocationsTable {
    every: Option<String>,
    patience: Option<String>,
    bound: Option<String>,
    after_window: Option<String>,
    flood: Option<FloodTable>,
}

/// Changes of a cluster during load as they are in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangesTable {
    of: ChangedObjects,
    rate: f64,
    patience: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct FloodTable {
    at: String,
    tokens: u32,
    within: String,
    #[serde(default)]
    by: IdentifiedBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ArrivalsName {
    Closed,
    Constant,
    Poisson,
}

impl LoadTable {
    /// Returns the table with the values of `other` where it has them.
    pub(super) fn with(self, other: &Self) -> Self {
        let other = other.clone();
        // A number of requests and a duration exclude each other: a new value of one removes the
        // other.
        let ends = other.requests.is_some() || other.duration.is_some() || other.steps.is_some();
        let paced = other.rate.is_some() || other.rates.is_some() || other.steps.is_some();
        Self {
            flow: other.flow.or(self.flow),
            arrivals: other.arrivals.or(self.arrivals),
            concurrency: other.concurrency.or(self.concurrency),
            connections: other.connections.or(self.connections),
            rate: if paced { other.rate } else { self.rate },
            rates: if paced { other.rates } else { self.rates },
            steps: if paced { other.steps } else { self.steps },
            requests: if ends { other.requests } else { self.requests },
            duration: if ends { other.duration } else { self.duration },
            rounds: other.rounds.or(self.rounds),
            warmup: other.warmup.or(self.warmup),
            path: other.path.or(self.path),
            tokens: other.tokens.or(self.tokens),
            zipf: other.zipf.or(self.zipf),
            timeout: other.timeout.or(self.timeout),
            streams: other.streams.or(self.streams),
            hold: other.hold.or(self.hold),
            revocations: match (self.revocations, other.revocations) {
                (Some(whole), Some(other)) => Some(RevocationsTable {
                    every: other.every.or(whole.every),
                    patience: other.patience.or(whole.patience),
                    bound: other.bound.or(whole.bound),
                    after_window: other.after_window.or(whole.after_window),
                    flood: other.flood.or(whole.flood),
                }),
                (whole, other) => other.or(whole),
            },
            changes: other.changes.or(self.changes),
            scrape_every: other.scrape_every.or(self.scrape_every),
            event: other.event.or(self.event),
            every_request: other.every_request.or(self.every_request),
            stream: other.stream.or(self.stream),
            websocket: other.websocket.or(self.websocket),
        }
    }

    /// How requests arrive.
    ///
    /// # Errors
    /// The wrong key, and the reason.
    fn arrivals(&self) -> Result<ArrivalPattern, (&'static str, String)> {
        let wrong = |key, message: &str| Err((key, message.to_owned()));
        let in_flight = |key, number: u32| {
            if (1..=MOST).contains(&number) {
                Ok(number)
            } else {
                Err((key, format!("must be from 1 to {MOST}")))
            }
        };
        match self.arrivals {
            None => wrong(
                "arrivals",
                "missing; set \"poisson\" or \"constant\" (open loop, with `rate`, `rates` or `steps`), or \"closed\" (with `concurrency`)",
            ),
            Some(ArrivalsName::Closed) => match (self.concurrency, &self.rate, &self.steps) {
                (Some(workers), None, None) => Ok(ArrivalPattern::Closed(in_flight("concurrency", workers)?)),
                (_, Some(_), _) => {
                    wrong("rate", "not allowed in a closed loop: its rate is workers ÷ latency")
                }
                (_, _, Some(_)) => {
                    wrong("steps", "not allowed in a closed loop: its rate is workers ÷ latency")
                }
                (None, None, None) => {
                    wrong("concurrency", "missing; a closed loop needs a number of workers")
                }
            },
            Some(word) => {
                let course = match (&self.rate, &self.steps) {
                    (Some(rate), None) => RateProfile::Steady(rate.rate()?),
                    (None, Some(steps)) => {
                        RateProfile::Stages(stages(steps).map_err(|message| ("steps", message))?)
                    }
                    (Some(_), Some(_)) => return wrong("steps", "cannot be combined with `rate`"),
                    (None, None) => {
                        return wrong(
                            "rate",
                            "missing; set requests per second, a share of what the slowest variant serves (\"60%\"), `rates` or `steps`",
                        );
                    }
                };
                Ok(ArrivalPattern::Open {
                    spacing: if word == ArrivalsName::Constant {
                        InterArrival::Constant
                    } else {
                        InterArrival::Poisson
                    },
                    rates: course,
                    connections: in_flight("connections", self.connections.unwrap_or(DEFAULT_CONNECTIONS))?,
                })
            }
        }
    }

    /// The loads of the table, each with the suffix of its name: the load itself, or one load for
    /// each of its `rates`.
    ///
    /// # Errors
    /// The wrong key, and the reason.
    pub(super) fn each(self) -> Result<Vec<Part>, (&'static str, String)> {
        let Some(rates) = self.rates.clone() else { return Ok(vec![(None, self.load()?)]) };
        let wrong = |message: &str| Err(("rates", message.to_owned()));
        if matches!(self.arrivals, Some(ArrivalsName::Closed)) {
            return wrong("not allowed in a closed loop: its rate is workers ÷ latency");
        }
        if self.rate.is_some() || self.steps.is_some() {
            return wrong("cannot be combined with `rate` or `steps`");
        }
        if rates.len() < MIN_RATES {
            return wrong(
                "needs at least three rates to show the knee; use separate loads with `rate` for fewer",
            );
        }
        let one = |rate: RateTable| {
            let name = rate.to_string();
            let table = Self { rates: None, rate: Some(rate), ..self.clone() };
            Ok((Some(name), table.load()?))
        };
        let all: Vec<Part> = rates.into_iter().map(one).collect::<Result<_, _>>()?;
        let mut names: Vec<_> = all.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        if names.len() < all.len() { wrong("contains a rate twice") } else { Ok(all) }
    }

    /// The flow of each virtual user, and whether the other keys fit one.
    ///
    /// # Errors
    /// The wrong key, and the reason.
    fn parsed_flow(&self) -> Result<Option<Flow>, (&'static str, String)> {
        let wrong = |key, message: &str| Err((key, message.to_owned()));
        let flow = self.flow.as_deref().map(str::parse::<Flow>).transpose();
        let Some(flow) = flow.map_err(|message| ("flow", message))? else { return Ok(None) };
        if !matches!(self.arrivals, None | Some(ArrivalsName::Closed)) {
            return wrong("arrivals", "a flow needs a closed loop of virtual users: \"closed\"");
        }
        if self.requests.is_some() {
            return wrong("requests", "not allowed with a flow: set `duration`");
        }
        if self.tokens.is_some() || self.zipf.is_some() {
            return wrong("tokens", "not allowed with a flow: it gets tokens from the provider");
        }
        if self.path.is_some() {
            return wrong("path", "not allowed with a flow: it uses the endpoints of the provider");
        }
        Ok(Some(flow))
    }

    /// The revocations during a load that ends like this.
    fn revocations(&self, flow: Option<Flow>, stop: Stop) -> Result<Option<RevocationSchedule>, String> {
        let Some(pace) = self.revocations.as_ref().map(RevocationsTable::pace).transpose()? else {
            return Ok(None);
        };
        if flow.is_none() && pace.after_window.is_some() {
            return Err("after_window: needs a `flow`".to_owned());
        }
        let ends = |flood: Flood| match stop {
            Stop::After(duration) => flood.at + flood.within <= duration,
            Stop::Count(_) => false,
        };
        if pace.flood.is_some_and(|flood| !ends(flood)) {
            return Err("flood: must end before the load, which needs a `duration`".to_owned());
        }
        Ok(Some(pace))
    }

    /// Checks the table and converts it to a load.
    ///
    /// # Errors
    /// The wrong key, and the reason.
    fn load(self) -> Result<Load, (&'static str, String)> {
        let time = |key: &'static str, text: &Option<String>| {
            text.as_deref().map(amount::duration).transpose().map_err(|message| (key, message))
        };
        let wrong = |key, message: &str| Err((key, message.to_owned()));
        let flow = self.parsed_flow()?;
        let arrivals = self.arrivals()?;
        let stages = match &arrivals {
            ArrivalPattern::Open { rates: RateProfile::Stages(stages), .. } => Some(stages),
            _ => None,
        };
        let stop = match (self.requests, time("duration", &self.duration)?, stages) {
            (Some(1..), None, None) => Stop::Count(self.requests.unwrap_or(1)),
            (None, Some(duration), None) if !duration.is_zero() => Stop::After(duration),
            (None, None, Some(stages)) => Stop::After(stages.iter().map(|stage| stage.duration).sum()),
            (_, _, Some(_)) => {
                return wrong("duration", "not allowed with `steps`, which contain the durations");
            }
            _ => return wrong("duration", "set either `duration` or `requests`, above 0"),
        };
        if self.rounds == Some(0) {
            return wrong("rounds", "must be above 0");
        }
        let timeout = time("timeout", &self.timeout)?.unwrap_or(TIMEOUT);
        if timeout.is_zero() {
            return wrong("timeout", "must be above 0");
        }
        let slots = match &arrivals {
            ArrivalPattern::Closed(workers) => *workers,
            ArrivalPattern::Open { connections, .. } => *connections,
        };
        if self.streams.is_some_and(|streams| streams == 0 || slots % streams != 0) {
            let message = format!("must be a divisor of the {slots} requests in flight");
            return Err(("streams", message));
        }
        let hold =
            self.hold.as_ref().map(HoldTable::parse).transpose().map_err(|message| ("hold", message))?;
        let tokens = self.tokens.unwrap_or(1);
        if tokens > MAX_TOKENS {
            return Err(("tokens", format!("must be from 0 to {MAX_TOKENS}")));
        }
        if let Some(path) = self.path.as_ref().filter(|path| !path.starts_with('/')) {
            return Err(("path", format!("`{path}` must begin with `/`")));
        }
        let revocations = self.revocations(flow, stop).map_err(|message| ("revocations", message))?;
        let changes = self.changes.as_ref().map(ChangesTable::schedule).transpose();
        let changes = changes.map_err(|message| ("changes", message))?;
        let scrape_every = time("scrape_every", &self.scrape_every)?;
        if scrape_every.is_some_and(|every| every < MIN_REVOCATION_INTERVAL) {
            return wrong("scrape_every", "must be at least 1ms");
        }
        let exchange = exchange(self.stream.as_ref(), self.websocket.as_ref(), timeout)?;
        if flow.is_some() && exchange != Exchange::Request {
            return wrong("flow", "cannot be combined with `stream` or `websocket`");
        }
        let warmup = time("warmup", &self.warmup)?.unwrap_or(WARMUP);
        let events = event::planned_events(self.event.unwrap_or_default(), warmup, stop);
        Ok(Load {
            flow,
            exchange,
            arrivals,
            stop,
            rounds: self.rounds,
            warmup,
            path: self.path,
            tokens,
            zipf: self.zipf,
            timeout,
            streams: self.streams,
            hold,
            revocations,
            changes,
            scrape_every,
            events: events.map_err(|message| ("event", message))?,
            every_request: self.every_request.unwrap_or(false),
        })
    }
}

impl RevocationsTable {
    fn pace(&self) -> Result<RevocationSchedule, String> {
        let time = |key: &str, text: &Option<String>| {
            let time = text.as_deref().map(amount::duration).transpose();
            match time.map_err(|message| format!("{key}: {message}"))? {
                Some(time) if time < MIN_REVOCATION_INTERVAL => Err(format!("{key}: must be at least 1ms")),
                time => Ok(time),
            }
        };
        Ok(RevocationSchedule {
            every: time("every", &self.every)?.unwrap_or(DEFAULT_REVOCATION_INTERVAL),
            patience: time("patience", &self.patience)?.unwrap_or(PATIENCE),
            bound: time("bound", &self.bound)?,
            after_window: time("after_window", &self.after_window)?,
            flood: self.flood.as_ref().map(FloodTable::flood).transpose()?,
        })
    }
}

impl ChangesTable {
    fn schedule(&self) -> Result<ChangeSchedule, String> {
        if !(self.rate > 0.0 && self.rate <= MAX_CHANGE_RATE) {
            return Err(format!("rate: must be above 0 and at most {MAX_CHANGE_RATE} changes per second"));
        }
        let patience = self.patience.as_deref().map(amount::duration).transpose();
        let patience = patience.map_err(|message| format!("patience: {message}"))?.unwrap_or(CHANGE_PATIENCE);
        if patience < MIN_REVOCATION_INTERVAL {
            return Err("patience: must be at least 1ms".to_owned());
        }
        Ok(ChangeSchedule { of: self.of, rate: self.rate, patience })
    }
}

impl FloodTable {
    fn flood(&self) -> Result<Flood, String> {
        let time =
            |key, text: &str| amount::duration(text).map_err(|message| format!("flood.{key}: {message}"));
        if !(1..=MAX_FLOOD_TOKENS).contains(&self.tokens) {
            return Err(format!("flood.tokens: must be from 1 to {MAX_FLOOD_TOKENS}"));
        }
        let (at, within) = (time("at", &self.at)?, time("within", &self.within)?);
        Ok(Flood { at, tokens: self.tokens, within, identified_by: self.by })
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate::{Rate, RateStage};
    use super::*;

    fn load(text: &str) -> Result<Load, (&'static str, String)> {
        toml::from_str::<LoadTable>(text).unwrap().load()
    }

    #[test]
    fn a_quick_form_changes_what_it_names() {
        let whole: LoadTable =
            toml::from_str("arrivals = 'closed'\nconcurrency = 50\nrequests = 10000\nwarmup = '2s'").unwrap();
        let quick: LoadTable = toml::from_str("duration = '3s'").unwrap();
        let load = whole.with(&quick).load().unwrap();
        assert_eq!(
            (load.arrivals, load.stop),
            (ArrivalPattern::Closed(50), Stop::After(Duration::from_secs(3)))
        );
        assert_eq!(load.warmup, Duration::from_secs(2));
    }

    #[test]
    fn a_load_can_change_a_cluster_and_scrape_metrics() {
        let text = "arrivals = 'poisson'\nrate = 5\nduration = '1s'\nscrape_every = '2s'";
        let load = load(&format!("{text}\nchanges = {{ of = 'notebooks', rate = 10 }}")).unwrap();
        let changes = load.changes.unwrap();
        assert_eq!((changes.of, changes.patience), (ChangedObjects::Notebooks, CHANGE_PATIENCE));
        assert!((changes.rate - 10.0).abs() < 1e-9);
        assert_eq!(load.scrape_every, Some(Duration::from_secs(2)));
    }

    #[test]
    fn a_load_can_be_a_flow() {
        let text = "arrivals = 'closed'\nconcurrency = 5\nduration = '1s'";
        assert_eq!(load(text).unwrap().flow, None);
        let flow = load(&format!("flow = 'code_consent'\n{text}")).unwrap().flow;
        assert_eq!(flow, Some(Flow::CodeConsent));
    }

    #[test]
    fn rates_are_numbers_or_shares() {
        let rate = |text: &str| match load(&format!("arrivals = 'poisson'\nrate = {text}\nduration = '1s'")) {
            Ok(Load { arrivals: ArrivalPattern::Open { rates: RateProfile::Steady(rate), .. }, .. }) => {
                Ok(rate)
            }
            Ok(_) => panic!("not open"),
            Err((key, message)) => Err((key, message)),
        };
        assert_eq!(
            (rate("250"), rate("0.5"), rate("'60%'")),
            (Ok(Rate::PerSecond(250.0)), Ok(Rate::PerSecond(0.5)), Ok(Rate::OfSlowest(0.6)))
        );
        for text in ["0", "-1", "nan", "1e9", "'60'", "'0%'", "'2000%'", "'x%'"] {
            assert_eq!(rate(text).unwrap_err().0, "rate", "{text}");
        }
    }

    #[test]
    fn steps_are_rates_for_a_time_and_changes_from_one_to_another() {
        let steps = |text: &str| load(&format!("arrivals = 'poisson'\nsteps = {text}"));
        let found = steps("['500@10s', '0@5s', '10%..120%@1m']").unwrap();
        assert_eq!(found.stop, Stop::After(Duration::from_secs(75)));
        let stage = |from, to, seconds| RateStage { from, to, duration: Duration::from_secs(seconds) };
        let (steady, pause) = (Rate::PerSecond(500.0), Rate::PerSecond(0.0));
        let expected = vec![
            stage(steady, steady, 10),
            stage(pause, pause, 5),
            stage(Rate::OfSlowest(0.1), Rate::OfSlowest(1.2), 60),
        ];
        let ArrivalPattern::Open { rates: RateProfile::Stages(stages), .. } = found.arrivals else {
            panic!("{found:?}")
        };
        assert_eq!(stages, expected);
        for text in
            ["[]", "['0@5s']", "['500']", "['500@0s']", "['-1@5s']", "['a@5s']", "['1..@5s']", "['1@5']"]
        {
            assert_eq!(steps(text).unwrap_err().0, "steps", "{text}");
        }
    }

    #[test]
    fn a_load_with_several_rates_stands_for_one_of_each() {
        let each = |text: &str| toml::from_str::<LoadTable>(text).unwrap().each();
        let text = "arrivals = 'poisson'\nduration = '1s'\nrates = ['20%', 500, '120%']";
        let all = each(text).unwrap();
        let names: Vec<&str> = all.iter().filter_map(|(name, _)| name.as_deref()).collect();
        assert_eq!(names, ["20%", "500", "120%"]);
        let course = |rate| ArrivalPattern::Open {
            spacing: InterArrival::Poisson,
            rates: RateProfile::Steady(rate),
            connections: DEFAULT_CONNECTIONS,
        };
        assert_eq!(all[1].1.arrivals, course(Rate::PerSecond(500.0)));
        for text in [
            "arrivals = 'poisson'\nduration = '1s'\nrates = [1, 2]",
            "arrivals = 'poisson'\nduration = '1s'\nrates = [1, 2, 1]",
            "arrivals = 'poisson'\nduration = '1s'\nrate = 3\nrates = [1, 2, 3]",
            "arrivals = 'closed'\nconcurrency = 1\nduration = '1s'\nrates = [1, 2, 3]",
        ] {
            assert_eq!(each(text).unwrap_err().0, "rates", "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_together_is_named() {
        for (text, key) in [
            ("concurrency = 1\nrequests = 1", "arrivals"),
            ("arrivals = 'closed'\nrequests = 1", "concurrency"),
            ("arrivals = 'closed'\nconcurrency = 0\nrequests = 1", "concurrency"),
            ("arrivals = 'closed'\nconcurrency = 1\nrate = 5\nrequests = 1", "rate"),
            ("arrivals = 'constant'\nrequests = 1", "rate"),
            ("arrivals = 'constant'\nrate = 1\nsteps = ['1@1s']", "steps"),
            ("arrivals = 'constant'\nsteps = ['1@1s']\nduration = '1s'", "duration"),
            ("arrivals = 'closed'\nconcurrency = 1\nsteps = ['1@1s']", "steps"),
            ("arrivals = 'closed'\nconcurrency = 1", "duration"),
            ("arrivals = 'closed'\nconcurrency = 1\nrequests = 1\nduration = '1s'", "duration"),
            ("arrivals = 'closed'\nconcurrency = 1\nrequests = 0", "duration"),
            ("arrivals = 'closed'\nconcurrency = 1\nduration = '1'", "duration"),
            ("arrivals = 'closed'\nconcurrency = 1\nrequests = 1\ntokens = 100001", "tokens"),
            ("arrivals = 'closed'\nconcurrency = 1\nrequests = 1\ntimeout = '0s'", "timeout"),
            ("arrivals = 'closed'\nconcurrency = 1\nrequests = 1\nrounds = 0", "rounds"),
            ("arrivals = 'closed'\nconcurrency = 50\nrequests = 1\nstreams = 4", "streams"),
            (
                "arrivals = 'closed'\nconcurrency = 1\nrequests = 1\nhold = { manner = 'idle', connections = 0 }",
                "hold",
            ),
            (
                "arrivals = 'closed'\nconcurrency = 1\nrequests = 1\nhold = { manner = 'slow-loris', connections = 1 }",
                "hold",
            ),
            (
                "arrivals = 'closed'\nconcurrency = 1\nrequests = 1\nhold = { manner = 'idle', connections = 1, interval = '1s' }",
                "hold",
            ),
            (
                "arrivals = 'closed'\nconcurrency = 1\nduration = '1s'\nrevocations = { after_window = '1s' }",
                "revocations",
            ),
            (
                "arrivals = 'closed'\nconcurrency = 1\nduration = '1s'\nchanges = { of = 'routes', rate = 0 }",
                "changes",
            ),
            ("arrivals = 'closed'\nconcurrency = 1\nduration = '1s'\nscrape_every = '0s'", "scrape_every"),
            ("flow = 'walk'\narrivals = 'closed'\nconcurrency = 1\nduration = '1s'", "flow"),
            ("flow = 'refresh'\narrivals = 'constant'\nrate = 1\nduration = '1s'", "arrivals"),
            ("flow = 'refresh'\narrivals = 'closed'\nconcurrency = 1\nrequests = 1", "requests"),
            ("flow = 'refresh'\narrivals = 'closed'\nconcurrency = 1\nduration = '1s'\ntokens = 2", "tokens"),
            ("flow = 'refresh'\narrivals = 'closed'\nconcurrency = 1\nduration = '1s'\npath = '/a'", "path"),
        ] {
            assert_eq!(load(text).unwrap_err().0, key, "{text}");
        }
    }
}

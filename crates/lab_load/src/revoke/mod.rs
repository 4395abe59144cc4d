//! Revocation measurement: revokes credentials during load, and probes every place until it refuses
//! them.
//!
//! Owns: when a credential is revoked, which places are probed and how often, and the figures
//! ([`Staleness`], [`Revocations`]). Does not own: the endpoints, the load ([`crate::load`]), and
//! conclusions from the figures ([`lab_analysis::diagnose`]).
//!
//! One revocation ([`memory_growth`]):
//!
//! 1. A credential is issued at one node.
//! 2. Every place is probed until it accepts the credential, so that it is cached.
//! 3. The credential is revoked at a node.
//! 4. Every place is probed until it refuses the credential.
//!
//! Staleness is the time from the response to the revocation until the begin of the last accepted
//! request.
//!
//! Revocations have a schedule of their own: one in each interval, at a random time, independent of
//! earlier ones. Therefore slow and fast refusals are sampled equally. Everything runs on one
//! thread, separate from the load.

mod flood;
mod memory_growth;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http::HeaderMap;
use lab_analysis::record::{BulkRevocation, Distribution, Revocations, Staleness};
use lab_analysis::units::{count, nanos, ratio};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::flood::Flood;
use self::flood::PreparedFlood;
use self::memory_growth::{RevocationResult, RevocationRun};
use crate::interrupt::Interrupt;
use crate::load::{Random, SelfUsage, Target};

/// Largest number of revocations in progress: more would be a load of their own.
const MAX_CONCURRENT_REVOCATIONS: usize = 64;
/// Significant digits of the recorded distributions.
const DIGITS: u8 = 3;

/// Endpoints where credentials are issued, revoked and probed.
#[derive(Debug, Clone)]
pub struct RevocationSite {
    /// Token endpoints; each credential is requested from one of them.
    pub issue: Vec<Target>,
    /// Revocation endpoints (RFC 7009); each revocation is sent to one of them.
    pub revoke: Vec<Target>,
    /// Header fields that authenticate the client at both endpoints.
    pub client: HeaderMap,
    /// Admin endpoints that revoke lists of tokens; empty if the topology has none.
    pub bulk_revoke: Vec<Target>,
    /// Header fields that authenticate the client for the admin endpoints.
    pub operator: Option<HeaderMap>,
    /// Places that are probed for each credential.
    pub places: Vec<ProbedPlace>,
}

/// A place that accepts or refuses a credential.
#[derive(Debug, Clone)]
pub struct ProbedPlace {
    /// Name of the node.
    pub node: String,
    /// Cluster of the node; `None` if there is only one.
    pub cluster: Option<String>,
    /// Endpoint that is probed.
    pub target: Target,
    /// How it is probed.
    pub method: ProbeMethod,
}

/// How a place is probed.
#[derive(Debug, Clone)]
pub enum ProbeMethod {
    /// A `GET` with the credential. A status below 400 means accepted; 401 and 403 mean refused.
    /// With any other status the probe is repeated.
    Request,
    /// Introspection (RFC 7662); holds the header fields that authenticate the client.
    Introspection(HeaderMap),
}

/// Frequency and duration of revocations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RevocationSchedule {
    /// One revocation in each interval of this length.
    pub every: Duration,
    /// How long a place is probed that still accepts a revoked credential.
    pub patience: Duration,
    /// Longest permitted staleness; `None` without a requirement.
    pub bound: Option<Duration>,
    /// Revokes credentials for this time after the window, while the load continues, so that the
    /// probes do not affect the measurement. `None` to revoke in the window.
    pub after_window: Option<Duration>,
    /// Flood of further revocations during this time.
    pub flood: Option<Flood>,
}

/// Results of all revocations of a load.
#[derive(Debug)]
pub struct RevocationReport {
    /// How long each place accepted revoked credentials.
    pub staleness: Vec<Staleness>,
    /// The revocations themselves.
    pub revocations: Revocations,
}

/// A thread that revokes credentials and probes places.
pub struct RevocationThread {
    thread: JoinHandle<io::Result<RevocationReport>>,
    first: mpsc::Sender<Instant>,
    end: watch::Sender<bool>,
}

impl RevocationThread {
    /// Starts a thread that waits for the start time from [`RevocationThread::start_sender`]. If
    /// there is a flood, its tokens are ready when this returns.
    ///
    /// # Errors
    /// The thread cannot be started, or the tokens of the flood cannot be obtained.
    pub fn prepare(
        site: RevocationSite,
        pace: RevocationSchedule,
        seed: u64,
        interrupt: Interrupt,
    ) -> io::Result<Self> {
        let (first, start) = mpsc::channel();
        let (end, ended) = watch::channel(false);
        let (prepared, ready) = mpsc::channel();
        let thread = std::thread::Builder::new().name("revoke".to_owned()).spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
            let course = Rc::new(RevocationRun::new(site, pace, ended.clone()));
            let lists = match pace.flood {
                Some(flood) => runtime.block_on(async {
                    tokio::select! {
                        lists = flood::prepare(&course, flood) => lists.map(Some).map_err(io::Error::other),
                        () = interrupt.wait() => Ok(None),
                    }
                })?,
                None => None,
            };
            // The receiver exists as long as the caller waits.
            let _ = prepared.send(());
            // Without a start time the load never began, and nothing is revoked.
            let from = start.recv().ok();
            runtime.block_on(run_revocations(
                course,
                pace,
                lists,
                Random::new(seed),
                from,
                Stop { ended, interrupt },
            ))
        })?;
        if ready.recv().is_err() {
            return Err(match thread.join() {
                Ok(Err(error)) => error,
                _ => io::Error::other("the revocation thread panicked"),
            });
        }
        Ok(Self { thread, first, end })
    }

    /// Sender for the time at which revocations start.
    pub fn start_sender(&self) -> mpsc::Sender<Instant> {
        self.first.clone()
    }

    /// Stops revoking, and waits until the revoked credentials are refused everywhere or `patience`
    /// has passed.
    pub fn finish(self) -> io::Result<RevocationReport> {
        drop(self.first);
        self.end.send_replace(true);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the revocation thread panicked")))
    }
}

/// What ends the revocations: the end of the load, or an interrupt.
struct Stop {
    ended: watch::Receiver<bool>,
    interrupt: Interrupt,
}

/// Revokes credentials on schedule until the end, then waits for the last ones.
async fn run_revocations(
    course: Rc<RevocationRun>,
    pace: RevocationSchedule,
    lists: Option<PreparedFlood>,
    mut random: Random,
    from: Option<Instant>,
    mut stop: Stop,
) -> io::Result<RevocationReport> {
    let before = SelfUsage::read();
    let flood =
        lists.zip(from).map(|(lists, from)| tokio::task::spawn_local(lists.send(Rc::clone(&course), from)));
    let tally = Tally::default();
    let mut under_way = JoinSet::new();
    let mut interval = from.unwrap_or_else(Instant::now);
    let last = pace.after_window.map(|after| interval + after);
    let beyond = |at: Instant| last.is_some_and(|last| at >= last);
    let mut at = interval + pace.every.mul_f64(random.unit());
    let mut over = from.is_none() || beyond(at);
    while !over || !under_way.is_empty() {
        tokio::select! {
            _ = stop.ended.wait_for(|ended| *ended), if !over => over = true,
            () = stop.interrupt.wait() => {
                // An incomplete revocation gives no figure.
                under_way.abort_all();
                flood.iter().for_each(tokio::task::JoinHandle::abort);
                break;
            }
            Some(seen) = under_way.join_next() => tally.add(seen.map_err(io::Error::other)?),
            () = tokio::time::sleep_until(at.into()), if !over => {
                interval += pace.every;
                at = interval + pace.every.mul_f64(random.unit());
                over = beyond(at);
                if under_way.len() < MAX_CONCURRENT_REVOCATIONS {
                    let (issue, revoke) = (random.next_u64(), random.next_u64());
                    under_way.spawn_local(Rc::clone(&course).run(issue, revoke));
                } else {
                    tally.add(RevocationResult::Failed(format!("{MAX_CONCURRENT_REVOCATIONS} earlier revocations were still in progress")));
                }
            }
        }
    }
    let flood = match flood {
        // An aborted flood gives no figures.
        Some(flood) => flood.await.ok(),
        None => None,
    };
    Ok(tally.watched(&course, pace, flood, before.delta(SelfUsage::read())))
}

/// Results so far.
#[derive(Default)]
struct Tally {
    /// Delays in nanoseconds, by place.
    delays: RefCell<BTreeMap<usize, Vec<u64>>>,
    /// Response times of revocations, in nanoseconds.
    answers: RefCell<Vec<u64>>,
    never: RefCell<BTreeMap<usize, u64>>,
    revoked: Cell<u64>,
    failed: Cell<u64>,
    example: RefCell<Option<String>>,
}

impl Tally {
    fn add(&self, result: RevocationResult) {
        match result {
            RevocationResult::Dropped => {}
            RevocationResult::Failed(why) => {
                self.failed.set(self.failed.get() + 1);
                self.example.borrow_mut().get_or_insert(why);
            }
            RevocationResult::Revoked { answer, delays } => {
                self.revoked.set(self.revoked.get() + 1);
                self.answers.borrow_mut().push(nanos(answer));
                for (place, delay) in delays.into_iter().enumerate() {
                    match delay {
                        Some(delay) => {
                            self.delays.borrow_mut().entry(place).or_default().push(nanos(delay));
                        }
                        None => *self.never.borrow_mut().entry(place).or_default() += 1,
                    }
                }
            }
        }
    }

    fn watched(
        self,
        course: &RevocationRun,
        pace: RevocationSchedule,
        flood: Option<BulkRevocation>,
        own: SelfUsage,
    ) -> RevocationReport {
        let (mut delays, mut never) = (self.delays.into_inner(), self.never.into_inner());
        let places = course.site.places.iter().enumerate();
        let staleness = places.map(|(index, place)| Staleness {
            node: place.node.clone(),
            cluster: place.cluster.clone(),
            delay: Distribution::of(delays.remove(&index).unwrap_or_default(), DIGITS),
            never: never.remove(&index).unwrap_or(0),
        });
        RevocationReport {
            staleness: staleness.collect(),
            revocations: Revocations {
                revoked: self.revoked.get(),
                failed: self.failed.get(),
                example: self.example.into_inner(),
                bound_s: pace.bound.map(|bound| bound.as_secs_f64()),
                patience_s: pace.patience.as_secs_f64(),
                after_window: pace.after_window.is_some(),
                answer: Some(Distribution::of(self.answers.into_inner(), DIGITS)),
                flood,
                asked: count(course.probe_count.get()),
                cpu_share: own.running.map(|running| ratio(running as f64, own.wall as f64)),
            },
        }
    }
}

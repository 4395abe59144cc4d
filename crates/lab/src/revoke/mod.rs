//! Revoking credentials while load lasts, and asking every place until it refuses them.
//!
//! Owns: when a credential is revoked, who is asked about it and how often, and the figures ([`Staleness`], [`Revocations`]). Does not own:
//! where that is ([`crate::topology`]), the load beside it ([`crate::load`]) and what follows from the figures ([`crate::diagnose`]).
//!
//! Flow of one revocation ([`course`]): a credential is issued at one node → every place is asked until it accepts it, so that it is cached → it
//! is revoked at a node → every place is asked on until it refuses. Staleness is the time from the revocation's answer to the beginning of the last
//! request that was accepted. Revocations have times of their own, one in each interval at a random moment of it, whatever became of those
//! before: where refusing takes long, as many are seen as where it is quick. All of it runs in one thread beside the load's.

mod course;
mod flood;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http::HeaderMap;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::course::{Course, Seen};
pub use self::flood::Flood;
use self::flood::Lists;
use crate::interrupt::Interrupt;
use crate::load::{Random, SelfUsage, Target};
use crate::record::{Distribution, Flooded, Revocations, Staleness};
use crate::units::{count, nanos, ratio};

/// Most revocations that are seen through at once: more would be a load of their own.
const MOST: usize = 64;
/// Digits of the figures.
const DIGITS: u8 = 3;

/// Where credentials come from, are revoked, and are accepted meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    /// Token endpoints; one of them is asked for each credential.
    pub(crate) issue: Vec<Target>,
    /// Revocation endpoints (RFC 7009); one of them is told.
    pub(crate) revoke: Vec<Target>,
    /// What the client says about itself to both.
    pub(crate) client: HeaderMap,
    /// Where the provider's administration revokes tokens by the list; none where the topology does not say.
    pub(crate) lists: Vec<Target>,
    /// What the client that may do so says about itself.
    pub(crate) operator: Option<HeaderMap>,
    /// Who is asked about each credential.
    pub(crate) places: Vec<Place>,
}

/// Where a credential is accepted or not.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) node: String,
    pub(crate) cluster: Option<String>,
    pub(crate) target: Target,
    pub(crate) question: Question,
}

/// How a place is asked.
#[derive(Debug, Clone)]
pub(crate) enum Question {
    /// A `GET` with the credential: a status below 400 accepts it; 401 and 403 refuse it. Anything else is neither, and is asked again.
    Request,
    /// Introspection (RFC 7662) by the client that says this about itself.
    Introspection(HeaderMap),
}

/// How often, and for how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// One revocation in each such interval.
    pub every: Duration,
    /// A place that accepts a revoked credential for longer is not asked any more.
    pub patience: Duration,
    /// Longest staleness that is allowed; absent when nobody says.
    pub bound: Option<Duration>,
    /// Credentials are revoked for so long after the window, while load goes on, instead of in it: watching them takes nothing from what is
    /// measured. In the window when absent.
    pub after_window: Option<Duration>,
    /// Others that are revoked meanwhile.
    pub flood: Option<Flood>,
}

/// What was seen of all revocations.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) staleness: Vec<Staleness>,
    pub(crate) revocations: Revocations,
}

/// A thread that revokes and asks.
pub(crate) struct Watch {
    thread: JoinHandle<io::Result<Watched>>,
    first: mpsc::Sender<Instant>,
    end: watch::Sender<bool>,
}

impl Watch {
    /// Prepares a thread, which waits for what [`Watch::beginner`] is told. Where there is a flood, its tokens are there when this returns.
    pub(crate) fn prepare(site: Site, pace: Pace, seed: u64, interrupt: Interrupt) -> io::Result<Self> {
        let (first, told) = mpsc::channel();
        let (end, ended) = watch::channel(false);
        let (prepared, ready) = mpsc::channel();
        let thread = std::thread::Builder::new().name("revoke".to_owned()).spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
            let course = Rc::new(Course::new(site, pace, ended.clone()));
            let lists = match pace.flood {
                Some(flood) => runtime.block_on(async {
                    tokio::select! {
                        lists = flood::prepare(&course, flood) => lists.map(Some).map_err(io::Error::other),
                        () = interrupt.wait() => Ok(None),
                    }
                })?,
                None => None,
            };
            // Nobody waits who has not gone on.
            let _ = prepared.send(());
            // Never begun: there was no load to revoke beside.
            let from = told.recv().ok();
            runtime.block_on(all(course, pace, lists, Random::new(seed), from, ended, interrupt))
        })?;
        if ready.recv().is_err() {
            return Err(match thread.join() {
                Ok(Err(error)) => error,
                _ => io::Error::other("the thread that revokes panicked"),
            });
        }
        Ok(Self { thread, first, end })
    }

    /// Takes the moment from which on credentials are revoked.
    pub(crate) fn beginner(&self) -> mpsc::Sender<Instant> {
        self.first.clone()
    }

    /// Revokes no further ones, and waits until those that are revoked are refused everywhere, or patience is over.
    pub(crate) fn finish(self) -> io::Result<Watched> {
        drop(self.first);
        self.end.send_replace(true);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that revokes panicked")))
    }
}

/// Revokes one credential after the other until it is over; sees the last ones through.
async fn all(
    course: Rc<Course>,
    pace: Pace,
    lists: Option<Lists>,
    mut random: Random,
    from: Option<Instant>,
    mut ended: watch::Receiver<bool>,
    interrupt: Interrupt,
) -> io::Result<Watched> {
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
            _ = ended.wait_for(|ended| *ended), if !over => over = true,
            () = interrupt.wait() => {
                // What is not seen through says nothing.
                under_way.abort_all();
                flood.iter().for_each(tokio::task::JoinHandle::abort);
                break;
            }
            Some(seen) = under_way.join_next() => tally.add(seen.map_err(io::Error::other)?),
            () = tokio::time::sleep_until(at.into()), if !over => {
                interval += pace.every;
                at = interval + pace.every.mul_f64(random.unit());
                over = beyond(at);
                if under_way.len() < MOST {
                    let (issue, revoke) = (random.next(), random.next());
                    under_way.spawn_local(Rc::clone(&course).run(issue, revoke));
                } else {
                    tally.add(Seen::Failed(format!("{MOST} others were still under way")));
                }
            }
        }
    }
    let flood = match flood {
        // Nothing is known of one that was given up.
        Some(flood) => flood.await.ok(),
        None => None,
    };
    Ok(tally.watched(&course, pace, flood, before.until(SelfUsage::read())))
}

/// What was seen so far.
#[derive(Default)]
struct Tally {
    /// Nanoseconds by place.
    delays: RefCell<BTreeMap<usize, Vec<u64>>>,
    /// Nanoseconds until revocations were answered.
    answers: RefCell<Vec<u64>>,
    never: RefCell<BTreeMap<usize, u64>>,
    revoked: Cell<u64>,
    failed: Cell<u64>,
    example: RefCell<Option<String>>,
}

impl Tally {
    fn add(&self, seen: Seen) {
        match seen {
            Seen::Dropped => {}
            Seen::Failed(why) => {
                self.failed.set(self.failed.get() + 1);
                self.example.borrow_mut().get_or_insert(why);
            }
            Seen::Revoked { answer, delays } => {
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

    fn watched(self, course: &Course, pace: Pace, flood: Option<Flooded>, own: SelfUsage) -> Watched {
        let (mut delays, mut never) = (self.delays.into_inner(), self.never.into_inner());
        let places = course.site.places.iter().enumerate();
        let staleness = places.map(|(index, place)| Staleness {
            node: place.node.clone(),
            cluster: place.cluster.clone(),
            delay: Distribution::of(delays.remove(&index).unwrap_or_default(), DIGITS),
            never: never.remove(&index).unwrap_or(0),
        });
        Watched {
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
                asked: count(course.asked.get()),
                cpu_share: own.running.map(|running| ratio(running as f64, own.wall as f64)),
            },
        }
    }
}

//! Changes: writes objects on a schedule, and sends requests until one sees each change.
//!
//! Owns: which object changes, and the times. Does not own: the contents of the objects.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use lab_analysis::record::{Changes, Distribution};
use lab_analysis::units::nanos;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::JoinSet;

use super::api::ApiClient;
use super::objects::{self, VERSION_HEADER, Write};
use super::{ChangeSchedule, ChangedObjects, ClusterSite, Course};
use crate::fetch::{AsyncClient, Response, encode_request};
use crate::load::{Random, RequestTemplate};

/// Largest number of changes in progress.
const MAX_CONCURRENT_CHANGES: usize = 256;
/// Longest wait for the response to one request that looks for a change.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest response to such a request in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Pause between two such requests.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// What one change did.
enum ChangeResult {
    /// Latency of the last write, and time until a request saw the change.
    Seen { write: Duration, in_force: Duration },
    /// The API server did not accept it; holds the reason.
    Failed(String),
    /// It was accepted, and no request saw it; holds the last response.
    Never { write: Duration, last: String },
}

/// One change.
#[derive(Clone, Copy)]
enum Change {
    /// A route gets a version.
    Route(u32, u64),
    /// A notebook is created.
    Come(u32),
    /// A notebook is deleted.
    Go(u32),
}

/// Connections, which are used again, and notebooks by whether they exist.
struct Pool {
    site: ClusterSite,
    patience: Duration,
    apis: RefCell<Vec<ApiClient>>,
    probes: RefCell<Vec<AsyncClient>>,
    present: RefCell<VecDeque<u32>>,
    absent: RefCell<VecDeque<u32>>,
    number: Cell<u32>,
    /// Version of the route that changed last.
    version: Cell<u64>,
}

/// Changes objects from the start time until the end.
pub(super) fn run(
    site: &ClusterSite,
    schedule: ChangeSchedule,
    seed: u64,
    course: Course,
) -> io::Result<Changes> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    // Without a start time the load never began, and nothing changes.
    let from = course.start.recv().ok();
    let pool = Rc::new(Pool {
        site: site.clone(),
        patience: schedule.patience,
        apis: RefCell::default(),
        probes: RefCell::default(),
        present: RefCell::new((0..site.size.notebooks).collect()),
        absent: RefCell::default(),
        number: Cell::new(0),
        // No two loads begin with the same version, so that an earlier change is not taken for a new one.
        version: Cell::new(Random::new(seed ^ schedule.rate.to_bits()).next_u64() >> 16),
    });
    let mut tally = Tally::default();
    if let Some(from) = from {
        runtime.block_on(run_changes(&pool, schedule, Random::new(seed), (from, course), &mut tally))?;
        runtime.block_on(restore(&pool, &mut tally));
    }
    Ok(tally.changes(schedule))
}

async fn run_changes(
    pool: &Rc<Pool>,
    schedule: ChangeSchedule,
    mut random: Random,
    (mut interval, mut course): (Instant, Course),
    tally: &mut Tally,
) -> io::Result<()> {
    let every = Duration::from_secs_f64(1.0 / schedule.rate);
    let mut in_progress = JoinSet::new();
    let mut at = interval + every.mul_f64(random.unit());
    let mut over = false;
    while !over || !in_progress.is_empty() {
        tokio::select! {
            _ = course.ended.wait_for(|ended| *ended), if !over => over = true,
            () = course.interrupt.wait() => {
                // An incomplete change gives no figure.
                in_progress.abort_all();
                return Ok(());
            }
            Some(done) = in_progress.join_next() => tally.add(done.map_err(io::Error::other)?),
            () = tokio::time::sleep_until(at.into()), if !over => {
                interval += every;
                at = interval + every.mul_f64(random.unit());
                match pool.next(schedule.of) {
                    Some(change) if in_progress.len() < MAX_CONCURRENT_CHANGES => {
                        in_progress.spawn_local(Rc::clone(pool).make(change));
                    }
                    change => {
                        if let Some(change) = change {
                            pool.ended(change, false);
                        }
                        let count = in_progress.len();
                        let why = format!("{count} earlier changes were still in progress, so that the next one was left out");
                        tally.add(ChangeResult::Failed(why));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Creates the notebooks again that are deleted, for the next load.
async fn restore(pool: &Pool, tally: &mut Tally) {
    let absent = pool.absent.take();
    let mut api = ApiClient::new(&pool.site);
    for index in absent {
        for write in objects::notebook(&pool.site, index) {
            if let Err(why) = api.write(&write).await {
                tally.add(ChangeResult::Failed(why));
                return;
            }
        }
    }
}

impl Pool {
    /// The next change; `None` if every object is changing.
    fn next(&self, of: ChangedObjects) -> Option<Change> {
        let number = self.number.get();
        self.number.set(number + 1);
        match of {
            ChangedObjects::Routes => {
                // Every route of a `ListenerSet` in turn. Neighbours belong to different ones.
                let routes = self.site.size.routes;
                let mut turn = (0..routes).map(|more| number.wrapping_add(more) % routes.max(1));
                let index = turn.find(|index| objects::is_of_a_set(&self.site, *index))?;
                self.number.set(index + 1);
                self.version.set(self.version.get() + 1);
                Some(Change::Route(index, self.version.get()))
            }
            ChangedObjects::Notebooks if number.is_multiple_of(2) => {
                let gone = self.present.borrow_mut().pop_front().map(Change::Go);
                gone.or_else(|| self.absent.borrow_mut().pop_front().map(Change::Come))
            }
            ChangedObjects::Notebooks => {
                let come = self.absent.borrow_mut().pop_front().map(Change::Come);
                come.or_else(|| self.present.borrow_mut().pop_front().map(Change::Go))
            }
        }
    }

    /// Notes whether the notebook of a change exists now.
    fn ended(&self, change: Change, is_made: bool) {
        match (change, is_made) {
            (Change::Route(..), _) => {}
            (Change::Come(index), true) | (Change::Go(index), false) => {
                self.present.borrow_mut().push_back(index);
            }
            (Change::Come(index), false) | (Change::Go(index), true) => {
                self.absent.borrow_mut().push_back(index);
            }
        }
    }

    async fn make(self: Rc<Self>, change: Change) -> ChangeResult {
        let api = self.apis.borrow_mut().pop();
        let mut api = api.unwrap_or_else(|| ApiClient::new(&self.site));
        let probe = self.probes.borrow_mut().pop();
        let mut probe =
            probe.unwrap_or_else(|| AsyncClient::new(self.site.entry.clone(), MAX_RESPONSE_BYTES));
        let result = self.steps(change, &mut api, &mut probe).await;
        self.ended(change, !matches!(result, ChangeResult::Failed(_)));
        self.apis.borrow_mut().push(api);
        self.probes.borrow_mut().push(probe);
        result
    }

    /// Writes the objects of a change, and looks for it after the one that counts: the last one, or
    /// the route of a notebook that goes.
    async fn steps(&self, change: Change, api: &mut ApiClient, probe: &mut AsyncClient) -> ChangeResult {
        let (before, counts, after): (Vec<Write>, Write, Vec<Write>) = match change {
            Change::Route(index, version) => (Vec::new(), objects::new_version(index, version), Vec::new()),
            Change::Come(index) => {
                let mut all = objects::notebook(&self.site, index);
                let Some(last) = all.pop() else {
                    return ChangeResult::Failed("nothing to write".to_owned());
                };
                (all, last, Vec::new())
            }
            Change::Go(index) => {
                let mut all = objects::notebook_gone(index);
                (Vec::new(), all.remove(0), all)
            }
        };
        for write in &before {
            if let Err(why) = api.write(write).await {
                return ChangeResult::Failed(why);
            }
        }
        let begun = Instant::now();
        if let Err(why) = api.write(&counts).await {
            return ChangeResult::Failed(why);
        }
        let accepted = Instant::now();
        let write = accepted - begun;
        let seen = self.look(change, accepted, probe).await;
        for write in &after {
            if let Err(why) = api.write(write).await {
                return ChangeResult::Failed(why);
            }
        }
        match seen {
            Ok(in_force) => ChangeResult::Seen { write, in_force },
            Err(last) => ChangeResult::Never { write, last },
        }
    }

    /// Sends requests until one sees the change.
    async fn look(
        &self,
        change: Change,
        accepted: Instant,
        probe: &mut AsyncClient,
    ) -> Result<Duration, String> {
        let (host, path) = match change {
            Change::Route(index, _) => objects::route_address(&self.site, index),
            Change::Come(index) | Change::Go(index) => objects::notebook_address(index),
        };
        let target = self.site.entry.at(&host, &path);
        let request = encode_request(&RequestTemplate::get(), &target)?;
        let version = match change {
            Change::Route(_, version) => version.to_string(),
            _ => String::new(),
        };
        loop {
            let answer = probe.send(&request, RESPONSE_TIMEOUT).await;
            let waited = accepted.elapsed();
            let is_seen = answer.as_ref().is_ok_and(|answer| match change {
                Change::Route(..) => answer.status == 200 && has_field(answer, VERSION_HEADER, &version),
                Change::Come(_) => answer.status == 200,
                Change::Go(_) => answer.status == 404,
            });
            if is_seen {
                return Ok(waited);
            }
            if waited >= self.patience {
                let last = answer.map_or_else(|why| why, |answer| format!("status {}", answer.status));
                return Err(format!("{}{} still answers: {last}", target.authority, target.path));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Whether a response has this header field with this value.
fn has_field(answer: &Response, name: &str, value: &str) -> bool {
    let mut lines = answer.head.split(|byte| *byte == b'\n');
    lines.any(|line| {
        let Some((given, rest)) = line.split_at_checked(name.len()) else { return false };
        let rest = rest.strip_prefix(b":").unwrap_or_default().trim_ascii();
        given.eq_ignore_ascii_case(name.as_bytes()) && rest == value.as_bytes()
    })
}

/// Results so far, in nanoseconds.
#[derive(Default)]
struct Tally {
    writes: Vec<u64>,
    in_force: Vec<u64>,
    failed: u64,
    never: u64,
    example: Option<String>,
}

impl Tally {
    fn add(&mut self, result: ChangeResult) {
        match result {
            ChangeResult::Seen { write, in_force } => {
                self.writes.push(nanos(write));
                self.in_force.push(nanos(in_force));
            }
            ChangeResult::Failed(why) => {
                self.failed += 1;
                self.example.get_or_insert(why);
            }
            ChangeResult::Never { write, last } => {
                self.writes.push(nanos(write));
                self.never += 1;
                self.example.get_or_insert(last);
            }
        }
    }

    fn changes(self, schedule: ChangeSchedule) -> Changes {
        Changes {
            of: schedule.of.name().to_owned(),
            rate_per_s: schedule.rate,
            made: lab_analysis::units::count(self.in_force.len()),
            failed: self.failed,
            never: self.never,
            example: self.example,
            patience_s: schedule.patience.as_secs_f64(),
            write: Distribution::of(self.writes, 3),
            in_force: Distribution::of(self.in_force, 3),
        }
    }
}

//! Background connections: connections that are held open during a load.
//!
//! Owns: opening them before the load, closing them after it, and their entry in the record. Does
//! not own: what they send ([`lab_load::idle_connections`]).

use std::collections::BTreeMap;
use std::time::Duration;

use lab_analysis::record::HeldConnections;
use lab_load::Interrupt;
use lab_load::idle_connections::{HoldBehavior, HoldPlan, OpenConnections, open_files_limit};
use lab_load::load::{Protocol, RequestTemplate};
use lab_load::observe::process::ProcessTree;
use lab_load::report::HoldReport;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::ArrangementError;
use crate::scenario::{HeldBehavior, Hold, Load};
use crate::topology::Running;

/// Connections that are opened at the same time. Below the listen backlog of every usual server.
const MAX_CONCURRENT_CONNECTS: usize = 64;
/// Open files that the lab needs in addition to held connections: for the load, and for itself.
const RESERVED_FILES: u64 = 1000;
/// Hold duration longer than any load: the connections are closed when the load ends.
const HOLD_DURATION: Duration = Duration::from_hours(365 * 24);

/// Held connections, and the memory of the components before they were opened.
pub(super) struct HeldDuringLoad {
    connections: OpenConnections,
    hold: Hold,
    memory_before: BTreeMap<String, u64>,
}

/// Raises the limit of open files of this process and its children to the hard limit.
pub(super) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, the run continues with it; too few files are reported later.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Opens the connections that a load wants held; `None` if it wants none.
///
/// # Errors
/// The load entry is invalid, or the connections cannot be held.
pub(super) fn open(
    running: &Running,
    tokens: &[String],
    load: &Load,
    interrupt: &Interrupt,
) -> Result<Option<HeldDuringLoad>, ArrangementError> {
    let Some(hold) = &load.hold else { return Ok(None) };
    // If the system permits fewer files, fewer connections are opened; the report shows their
    // number.
    let room = open_files_limit().map_or(u64::MAX, |limit| limit.saturating_sub(RESERVED_FILES).max(1));
    let connections = usize::try_from(u64::from(hold.connections).min(room)).unwrap_or(usize::MAX);
    let manner = match hold.behavior {
        HeldBehavior::Idle => {
            let first = RequestTemplate {
                tokens: tokens.iter().take(1).cloned().collect(),
                ..RequestTemplate::get()
            };
            HoldBehavior::Idle { first: Some(Box::new(first)) }
        }
        HeldBehavior::Silent => HoldBehavior::Idle { first: None },
        HeldBehavior::SlowLoris(interval) => HoldBehavior::SlowLoris { interval },
    };
    let plan = HoldPlan {
        target: running.entry_target(load.path.as_deref(), Protocol::Http1)?,
        connections,
        behavior: manner,
        hold: HOLD_DURATION,
        timeout: load.timeout,
        max_concurrent_connects: MAX_CONCURRENT_CONNECTS,
        watch: Vec::new(),
    };
    let memory_before = resident_memory(running);
    Ok(Some(HeldDuringLoad {
        connections: OpenConnections::open(plan, interrupt)?,
        hold: hold.clone(),
        memory_before,
    }))
}

/// Resident memory in bytes of every component that runs here.
fn resident_memory(running: &Running) -> BTreeMap<String, u64> {
    let of = |(name, pid): (String, u32)| Some((name, ProcessTree::new(pid).read()?.rss_bytes));
    running.processes().into_iter().filter_map(of).collect()
}

impl HeldDuringLoad {
    /// Closes the connections. Returns what happened to them.
    pub(super) fn close(self) -> Result<HeldConnections, ArrangementError> {
        let report = HoldReport::new(&self.connections.close()?);
        let lived = |us: f64| (report.closed_by_peer > 0).then_some(us);
        let manner = match self.hold.behavior {
            HeldBehavior::Idle => "idle",
            HeldBehavior::Silent => "silent",
            HeldBehavior::SlowLoris(_) => "slow-loris",
        };
        Ok(HeldConnections {
            manner: manner.to_owned(),
            asked: u64::from(self.hold.connections),
            opened: report.opened,
            open_at_end: report.open_at_end,
            closed_by_server: report.closed_by_peer,
            lifetime_p50_us: lived(report.lifetime_us.p50),
            lifetime_max_us: lived(report.lifetime_us.max),
            open_longest_us: report.open_longest_us,
            statuses: report.statuses,
            memory_before: self.memory_before,
        })
    }
}

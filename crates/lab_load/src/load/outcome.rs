//! Outcome: the raw result of a run, before it becomes a report.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::ending::RequestFault;
use super::recorder::Recorder;
use super::{SelfUsage, TargetSession};
use crate::observe::Series;

/// Raw result of a run, collected from the sessions and the recorder.
pub struct LoadOutcome {
    pub(crate) recorder: Recorder,
    pub(crate) self_usage: SelfUsage,
    /// Connections of all plans together.
    pub(crate) connections: usize,
    pub(crate) planned: u64,
    pub(crate) opened: u64,
    pub(crate) received: u64,
    pub(crate) examples: BTreeMap<RequestFault, Cow<'static, str>>,
    pub(crate) watched: Vec<Series>,
    /// `true` if the run was interrupted before its planned end.
    pub interrupted: bool,
}

impl LoadOutcome {
    /// Collects the figures of sessions whose slots have ended.
    pub(crate) fn new(
        sessions: &[Rc<TargetSession>],
        recorder: Recorder,
        own: SelfUsage,
        connections: usize,
        watched: Vec<Series>,
        interrupted: bool,
    ) -> Self {
        let mut outcome = Self {
            recorder,
            self_usage: own,
            connections,
            planned: 0,
            opened: 0,
            received: 0,
            examples: BTreeMap::new(),
            watched,
            interrupted,
        };
        for session in sessions {
            outcome.planned += session.dispatcher.borrow().planned;
            outcome.opened += session.opened.get();
            outcome.received += session.received.get();
            for (fault, example) in session.examples.take() {
                outcome.examples.entry(fault).or_insert(example);
            }
        }
        outcome
    }
}

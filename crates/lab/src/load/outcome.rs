//! The raw result of a run, before it becomes a report.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::recorder::{Fault, Recorder};
use super::{OwnUse, Session};
use crate::observe::Series;

/// The raw result of a run.
pub(crate) struct Outcome {
    pub(crate) recorder: Recorder,
    pub(crate) own: OwnUse,
    pub(crate) planned: u64,
    pub(crate) opened: u64,
    pub(crate) received: u64,
    pub(crate) examples: BTreeMap<Fault, Cow<'static, str>>,
    pub(crate) watched: Vec<Series>,
    /// It was ended before its end.
    pub(crate) interrupted: bool,
}

impl Outcome {
    /// Takes the figures out of a session whose slots have ended.
    pub(crate) fn new(session: &Session, own: OwnUse, watched: Vec<Series>, interrupted: bool) -> Self {
        Self {
            recorder: session.recorder.replace(Recorder::new((0, 0))),
            own,
            planned: session.feed.borrow().planned,
            opened: session.opened.get(),
            received: session.received.get(),
            examples: session.examples.take(),
            watched,
            interrupted,
        }
    }
}

//! Verdict: the section that opens a report. It answers what the run was made for, and says what to
//! know before the answers are used.
//!
//! Owns: which answers, charts and caveats come first.
//! Does not own: the figures and the tests ([`crate::statistics`], [`crate::offline::targets`]), and
//! the findings ([`crate::diagnose`]).
//!
//! At most [`MAX_ANSWERS`] sentences, two charts and [`MAX_CAVEATS`] caveats: what a reader takes in
//! at once. All of it is repeated in full by later sections.

mod answers;
mod charts;
mod paths;

use self::paths::Paths;
use crate::offline::render::{Block, Section, Warning, Weight};
use crate::offline::warnings::warnings;
use crate::record::{Finding, Record};

/// Most sentences.
const MAX_ANSWERS: usize = 6;
/// Most caveats.
const MAX_CAVEATS: usize = 3;

/// Divides the warnings about a record into the most important caveats and the rest. What explains
/// figures is no caveat.
pub(super) fn caveats(findings: &[Finding]) -> (Vec<Warning>, Vec<Warning>) {
    let all = warnings(findings, "");
    let (doubts, explanations): (Vec<Warning>, Vec<Warning>) =
        all.into_iter().partition(|warning| warning.weight != Weight::Explains);
    let mut doubts = doubts.into_iter();
    let caveats = doubts.by_ref().take(MAX_CAVEATS).collect();
    (caveats, doubts.chain(explanations).collect())
}

/// Creates the section.
pub(super) fn verdict(record: &Record, findings: &[Finding], caveats: Vec<Warning>) -> Section {
    let mut section = Section::new("Verdict");
    let paths = Paths::of(record, findings);
    let answers = answers::answers(record, findings, &paths);
    if !answers.is_empty() {
        section.blocks.push(Block::Answers(answers));
    }
    let charts = charts::charts(&paths);
    if !charts.is_empty() {
        section.blocks.push(Block::Charts(charts));
    }
    if caveats.is_empty() {
        section.text("Nothing was found that makes the figures doubtful.");
    }
    section.blocks.extend(caveats.into_iter().map(Block::Warning));
    section
}

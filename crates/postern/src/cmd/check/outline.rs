//! An explanation as it is told: headings, steps that hold or do not, and an end.

use std::fmt::{Display, Write as _};

use crate::terminal::{BOLD, DIM, ERROR, GOOD};

/// Text under way.
#[derive(Debug, Default)]
pub(super) struct Outline {
    text: String,
    verdict: OutlineVerdict,
}

/// How a story ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutlineVerdict {
    /// The request is answered with a refusal.
    #[default]
    Refused,
    /// It passes, or is answered as it asks.
    Passes,
    /// What decides it could not be had here.
    Unknown,
    /// It passes if an authorizer says so, which is not asked here.
    Asked,
}

impl Outline {
    /// What was told, styled with ANSI escapes.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// How it ends.
    pub(super) fn verdict(&self) -> OutlineVerdict {
        self.verdict
    }

    fn line(&mut self, line: impl Display) {
        // writing to a string cannot fail
        let _ = writeln!(self.text, "{line}");
    }

    /// A new part.
    pub(super) fn part(&mut self, heading: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.line(format_args!("{BOLD}{heading}{BOLD:#}"));
    }

    /// A step; `None` is a remark.
    pub(super) fn step(&mut self, depth: usize, holds: Option<bool>, text: impl Display) {
        let pad = 2 + depth * 2;
        match holds {
            Some(true) => self.line(format_args!("{:pad$}{GOOD}✓{GOOD:#} {text}", "")),
            Some(false) => self.line(format_args!("{:pad$}{ERROR}✗{ERROR:#} {text}", "")),
            None => self.line(format_args!("{:pad$}{DIM}·{DIM:#} {text}", "")),
        }
    }

    /// The end: what the client gets, and when it is refused, why.
    pub(super) fn refuse(&mut self, status: u16, code: &str, why: impl Display) {
        self.part("answer");
        self.line(format_args!("  {ERROR}{status}{ERROR:#} {code}: {why}"));
    }

    /// The end when what decides it could not be had here; serving would refuse.
    pub(super) fn unknown(&mut self, status: u16, code: &str, why: impl Display) {
        self.refuse(status, code, why);
        self.verdict = OutlineVerdict::Unknown;
    }

    /// The end of a request that the gateway serves itself.
    pub(super) fn serve(&mut self, what: impl Display) {
        self.answer(200, what);
    }

    /// As [`Self::serve`], with a status of its own.
    pub(super) fn answer(&mut self, status: u16, what: impl Display) {
        self.verdict = OutlineVerdict::Passes;
        self.part("answer");
        self.line(format_args!("  {GOOD}{status}{GOOD:#} {what}"));
    }

    /// The end of a permitted request.
    pub(super) fn permit(&mut self, what: impl Display, lines: &[String]) {
        self.verdict = OutlineVerdict::Passes;
        self.part("answer");
        self.line(format_args!("  {GOOD}forwarded{GOOD:#} {what}"));
        self.lines(lines);
    }

    /// The end of a request that passes if an authorizer says so as well.
    pub(super) fn permit_if(&mut self, what: impl Display, lines: &[String]) {
        self.permit(what, lines);
        self.verdict = OutlineVerdict::Asked;
    }

    /// The end of a request that another proxy asks about: what that is told, in so many words for each way of asking.
    pub(super) fn vouch(&mut self, ways: &[(String, Vec<String>)]) {
        self.verdict = OutlineVerdict::Passes;
        self.part("answer");
        for (what, lines) in ways {
            self.line(format_args!("  {GOOD}vouched for{GOOD:#} {what}"));
            self.lines(lines);
        }
    }

    fn lines(&mut self, lines: &[String]) {
        for line in lines {
            self.line(format_args!("    {line}"));
        }
    }
}

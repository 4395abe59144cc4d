//! Outline of an explanation: headings, steps that hold or fail, and an end.

use std::fmt::{Display, Write as _};

use crate::terminal::{BOLD, DIM, ERROR, SUCCESS};

/// Text of an explanation that is being written.
#[derive(Debug, Default)]
pub(super) struct Outline {
    text: String,
    verdict: OutlineVerdict,
}

/// Result of an explanation.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutlineVerdict {
    /// The request is refused.
    #[default]
    Refused,
    /// The request passes, or gets the response that it asks for.
    Passes,
    /// A service that decides could not be reached.
    Unknown,
    /// The request passes if an authorizer permits it. This command does not query the authorizer.
    NeedsAuthorizer,
}

impl Outline {
    /// The text, styled with ANSI escapes.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The result of the explanation.
    pub(super) fn verdict(&self) -> OutlineVerdict {
        self.verdict
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// Starts a new part with a heading.
    pub(super) fn part(&mut self, heading: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.line(format_args!("{BOLD}{heading}{BOLD:#}"));
    }

    /// Adds a step. `None` marks a remark.
    pub(super) fn step(&mut self, depth: usize, holds: Option<bool>, text: impl Display) {
        let pad = 2 + depth * 2;
        match holds {
            Some(true) => self.line(format_args!("{:pad$}{SUCCESS}✓{SUCCESS:#} {text}", "")),
            Some(false) => self.line(format_args!("{:pad$}{ERROR}✗{ERROR:#} {text}", "")),
            None => self.line(format_args!("{:pad$}{DIM}·{DIM:#} {text}", "")),
        }
    }

    /// Ends with a refusal: the response to the client, and why.
    pub(super) fn refuse(&mut self, status: u16, code: &str, why: impl Display) {
        self.part("answer");
        self.line(format_args!("  {ERROR}{status}{ERROR:#} {code}: {why}"));
    }

    /// Ends without a result, because a service that decides could not be reached. A serving
    /// gateway would refuse.
    pub(super) fn unknown(&mut self, status: u16, code: &str, why: impl Display) {
        self.refuse(status, code, why);
        self.verdict = OutlineVerdict::Unknown;
    }

    /// Ends with a response of the gateway itself.
    pub(super) fn serve(&mut self, what: impl Display) {
        self.answer(200, what);
    }

    /// Like [`Self::serve`], with another status.
    pub(super) fn answer(&mut self, status: u16, what: impl Display) {
        self.verdict = OutlineVerdict::Passes;
        self.part("answer");
        self.line(format_args!("  {SUCCESS}{status}{SUCCESS:#} {what}"));
    }

    /// Ends with a permitted request.
    pub(super) fn permit(&mut self, what: impl Display, lines: &[String]) {
        self.verdict = OutlineVerdict::Passes;
        self.part("answer");
        self.line(format_args!("  {SUCCESS}forwarded{SUCCESS:#} {what}"));
        self.lines(lines);
    }

    /// Ends with a request that passes if an authorizer permits it too.
    pub(super) fn permit_if(&mut self, what: impl Display, lines: &[String]) {
        self.permit(what, lines);
        self.verdict = OutlineVerdict::NeedsAuthorizer;
    }

    /// Ends with a request that another proxy queries: the response to it, once for each protocol.
    pub(super) fn authorization_response(&mut self, ways: &[(String, Vec<String>)]) {
        self.verdict = OutlineVerdict::Passes;
        self.part("answer");
        for (what, lines) in ways {
            self.line(format_args!("  {SUCCESS}authorized{SUCCESS:#} {what}"));
            self.lines(lines);
        }
    }

    fn lines(&mut self, lines: &[String]) {
        for line in lines {
            self.line(format_args!("    {line}"));
        }
    }
}

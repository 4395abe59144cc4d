//! Outline of an explanation: headings, steps that hold or fail, and an end.

use std::fmt::{Display, Write as _};

use serde::Serialize;

use crate::terminal::{BOLD, DIM, ERROR, SUCCESS};

/// An explanation that is being written.
#[derive(Debug, Default, Serialize)]
pub(super) struct Outline {
    verdict: OutlineVerdict,
    parts: Vec<OutlinePart>,
    answers: Vec<OutlineAnswer>,
    /// About the answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remarks: Vec<String>,
}

/// Result of an explanation.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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

/// A heading and its steps.
#[derive(Debug, Serialize)]
struct OutlinePart {
    heading: String,
    steps: Vec<OutlineStep>,
}

#[derive(Debug, Serialize)]
struct OutlineStep {
    /// 0: a step of its own; more: a detail of the step before it with a smaller depth.
    depth: usize,
    /// Whether it holds; absent: a remark.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<bool>,
    text: String,
}

/// What happens to the request. A check of another proxy has one for each protocol.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum OutlineAnswer {
    Refused {
        status: u16,
        code: String,
        text: String,
    },
    /// The gateway responds itself.
    Responded {
        status: u16,
        text: String,
    },
    /// The lines show what the upstream gets.
    Forwarded {
        text: String,
        lines: Vec<String>,
    },
    /// The lines show what the other proxy gets.
    Authorized {
        text: String,
        lines: Vec<String>,
    },
}

impl Outline {
    /// The text, styled with ANSI escapes.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            writeln!(out, "{}{BOLD}{}{BOLD:#}", if index == 0 { "" } else { "\n" }, part.heading)?;
            for OutlineStep { depth, holds, text } in &part.steps {
                let pad = 2 + depth * 2;
                match holds {
                    Some(true) => writeln!(out, "{:pad$}{SUCCESS}✓{SUCCESS:#} {text}", "")?,
                    Some(false) => writeln!(out, "{:pad$}{ERROR}✗{ERROR:#} {text}", "")?,
                    None => writeln!(out, "{:pad$}{DIM}·{DIM:#} {text}", "")?,
                }
            }
        }
        writeln!(out, "\n{BOLD}answer{BOLD:#}")?;
        for answer in &self.answers {
            let lines: &[String] = match answer {
                OutlineAnswer::Refused { status, code, text } => {
                    writeln!(out, "  {ERROR}{status}{ERROR:#} {code}: {text}")?;
                    &[]
                }
                OutlineAnswer::Responded { status, text } => {
                    writeln!(out, "  {SUCCESS}{status}{SUCCESS:#} {text}")?;
                    &[]
                }
                OutlineAnswer::Forwarded { text, lines } => {
                    writeln!(out, "  {SUCCESS}forwarded{SUCCESS:#} {text}")?;
                    lines
                }
                OutlineAnswer::Authorized { text, lines } => {
                    writeln!(out, "  {SUCCESS}authorized{SUCCESS:#} {text}")?;
                    lines
                }
            };
            for line in lines {
                writeln!(out, "    {line}")?;
            }
        }
        self.remarks.iter().try_for_each(|remark| writeln!(out, "    {DIM}·{DIM:#} {remark}"))
    }

    /// The result of the explanation.
    pub(super) fn verdict(&self) -> OutlineVerdict {
        self.verdict
    }

    /// Starts a new part with a heading.
    pub(super) fn part(&mut self, heading: &str) {
        self.parts.push(OutlinePart { heading: heading.to_owned(), steps: Vec::new() });
    }

    /// Adds a step to the last part. `None` marks a remark.
    pub(super) fn step(&mut self, depth: usize, holds: Option<bool>, text: impl Display) {
        if let Some(part) = self.parts.last_mut() {
            part.steps.push(OutlineStep { depth, holds, text: text.to_string() });
        }
    }

    /// Adds a remark about the answers.
    pub(super) fn remark(&mut self, text: impl Display) {
        self.remarks.push(text.to_string());
    }

    fn end(&mut self, verdict: OutlineVerdict, answer: OutlineAnswer) {
        self.verdict = verdict;
        self.answers.push(answer);
    }

    /// Ends with a refusal: the response to the client, and why.
    pub(super) fn refuse(&mut self, status: u16, code: &str, why: impl Display) {
        let answer = OutlineAnswer::Refused { status, code: code.to_owned(), text: why.to_string() };
        self.end(OutlineVerdict::Refused, answer);
    }

    /// Ends without a result, because a service that decides could not be reached. A serving
    /// gateway would refuse.
    pub(super) fn unknown(&mut self, status: u16, code: &str, why: impl Display) {
        self.refuse(status, code, why);
        self.verdict = OutlineVerdict::Unknown;
    }

    /// Ends with a response of the gateway itself.
    pub(super) fn serve(&mut self, description: impl Display) {
        self.answer(200, description);
    }

    /// Like [`Self::serve`], with another status.
    pub(super) fn answer(&mut self, status: u16, description: impl Display) {
        self.end(OutlineVerdict::Passes, OutlineAnswer::Responded { status, text: description.to_string() });
    }

    /// Ends with a permitted request.
    pub(super) fn permit(&mut self, description: impl Display, lines: Vec<String>) {
        let answer = OutlineAnswer::Forwarded { text: description.to_string(), lines };
        self.end(OutlineVerdict::Passes, answer);
    }

    /// Ends with a request that passes if an authorizer permits it too.
    pub(super) fn permit_if(&mut self, description: impl Display, lines: Vec<String>) {
        self.permit(description, lines);
        self.verdict = OutlineVerdict::NeedsAuthorizer;
    }

    /// Ends with a request that another proxy queries: the response to it, once for each protocol.
    pub(super) fn authorization_response(&mut self, ways: Vec<(String, Vec<String>)>) {
        for (text, lines) in ways {
            self.end(OutlineVerdict::Passes, OutlineAnswer::Authorized { text, lines });
        }
    }
}

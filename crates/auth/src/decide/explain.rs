//! A decision, step by step, for `postern check`.
//!
//! [`decide`](super::decide) tells a [`Trace`] what it does. Serving passes [`NoTrace`], and every telling
//! compiles away; an explanation is recorded by the same code that decides, so it cannot tell another story.

use std::fmt;

use crate::identity::{Facts, Identity};
use crate::policy::review::{Attributes, ReviewQuestion};
use crate::policy::rule::{Condition, Rule};
use crate::request::Canonical;
use crate::time::Timestamp;

use super::Denial;

/// Watches a decision.
pub trait Trace {
    /// Whether to tell at all. With `false` the decision stops at the first answer and tells nothing.
    const ON: bool = true;

    /// One thing the decision looked at.
    fn step(&mut self, step: Step<'_>);
}

/// Watches nothing and costs nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTrace;

impl Trace for NoTrace {
    const ON: bool = false;

    fn step(&mut self, _: Step<'_>) {}
}

/// Which list a rule stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The allow rules.
    Allow,
    /// The deny rules.
    Deny,
}

impl Effect {
    /// `allow` or `deny`, as in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// One step of a decision.
#[derive(Debug, Clone, Copy)]
pub enum Step<'s> {
    /// The credential is looked at.
    Credential {
        /// What it proved; `None` when there is none.
        facts: Option<&'s Facts>,
        /// The time of the decision.
        now: Timestamp,
    },
    /// The route is public.
    Public,
    /// A rule is evaluated; its conditions follow.
    Rule {
        /// The list it stands in.
        effect: Effect,
        /// Its position in the list.
        index: usize,
        /// The rule.
        rule: &'s Rule,
        /// Whether all of its conditions hold.
        matches: bool,
    },
    /// A condition of the rule before.
    Condition {
        /// The condition.
        condition: &'s Condition,
        /// The caller.
        identity: &'s Identity,
        /// The request.
        request: &'s Canonical<'s>,
    },
    /// No rule decides, and a review is looked up.
    Review {
        /// What is asked.
        question: &'s ReviewQuestion<'s>,
        /// What is known of the answer.
        verdict: Option<bool>,
    },
    /// The path was rewritten and everything is decided again.
    Rewritten {
        /// The new path.
        path: &'s str,
    },
    /// The outcome: `None` is a permit.
    Verdict(Option<&'s Denial>),
}

/// A recorded explanation. Holds what the credential says, so it is for the operator's eyes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    lines: Vec<Line>,
}

/// One line of an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// How deep to indent: conditions stand below their rule.
    pub depth: usize,
    /// Whether what the line speaks of holds; `None` for a remark.
    pub holds: Option<bool>,
    /// What was looked at and what was found, without line breaks.
    pub text: String,
}

impl Explanation {
    /// The lines, in the order of evaluation.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    fn push(&mut self, depth: usize, holds: Option<bool>, text: String) {
        self.lines.push(Line { depth, holds, text });
    }
}

impl Trace for Explanation {
    fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Credential { facts: None, .. } => self.push(0, None, "no credential".into()),
            Step::Credential { facts: Some(facts), now } => {
                self.push(0, Some(facts.valid_at(now)), credential(facts, now));
            }
            Step::Public => self.push(0, Some(true), "the route is public".into()),
            Step::Rule { effect, index, rule, matches } => {
                let verb = if matches { "matches" } else { "does not match" };
                self.push(0, Some(matches), format!("{}[{index}] {verb}: {rule}", effect.as_str()));
            }
            Step::Condition { condition, identity, request } => {
                let found = condition.found(identity, request);
                let found = match &*found {
                    [] => "there is none".into(),
                    values => format!(
                        "there is {}",
                        values.iter().map(|v| quoted(v)).collect::<Vec<_>>().join(", ")
                    ),
                };
                self.push(1, Some(condition.holds(identity, request)), format!("{condition}: {found}"));
            }
            Step::Review { question, verdict } => {
                let known = match verdict {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "not known yet",
                };
                self.push(0, verdict, format!("review: {}: {known}", asked(question)));
            }
            Step::Rewritten { path } => self.push(0, None, format!("the path is rewritten to {path}")),
            Step::Verdict(None) => self.push(0, Some(true), "allowed".into()),
            Step::Verdict(Some(denial)) => {
                let status = denial.answer().status;
                self.push(0, Some(false), format!("denied with {status}: {denial}"));
            }
        }
    }
}

/// A question as a sentence, in the words of `kubectl auth can-i`.
fn asked(question: &ReviewQuestion<'_>) -> String {
    let user = quoted(&question.user);
    match &question.attributes {
        Attributes::NonResource { path, verb } => format!("may {user} {verb} {path}"),
        Attributes::Resource { namespace, verb, group, resource, subresource, name } => {
            let mut text = format!("may {user} {verb} {resource}");
            let more = [
                (".", group.as_deref().filter(|group| !group.is_empty())),
                ("/", subresource.as_deref()),
                (" ", name.as_deref()),
                (" in namespace ", namespace.as_deref()),
            ];
            for (before, part) in more {
                if let Some(part) = part {
                    text.push_str(before);
                    text.push_str(part);
                }
            }
            text
        }
    }
}

fn credential(facts: &Facts, now: Timestamp) -> String {
    let Identity { kind, issuer, subject, .. } = &facts.identity;
    let state = if now < facts.not_before {
        format!("not valid for another {} s", facts.not_before.since(now).as_secs())
    } else if facts.expires == Timestamp::MAX && facts.valid_at(now) {
        "valid".into()
    } else if facts.valid_at(now) {
        format!("valid for {} s", facts.expires.since(now).as_secs())
    } else {
        format!("expired {} s ago", now.since(facts.expires).as_secs())
    };
    format!("{} of issuer {}, subject {}, {state}", kind.as_str(), quoted(issuer), quoted(subject))
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

impl fmt::Display for Explanation {
    /// One line each: `+` holds, `-` does not, indented below what it belongs to.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Line { depth, holds, text } in &self.lines {
            let mark = match holds {
                Some(true) => '+',
                Some(false) => '-',
                None => ' ',
            };
            writeln!(f, "{:indent$}{mark} {text}", "", indent = depth * 4)?;
        }
        Ok(())
    }
}

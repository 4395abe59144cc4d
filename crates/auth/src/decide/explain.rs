//! Explanation of a decision, step by step, for `postern check`.
//!
//! [`decide`](super::decide) reports each step to a [`Trace`]. Serving passes [`NoTrace`], and all
//! reports compile away. The code that decides also records the explanation, so the two cannot
//! differ.

use std::fmt;

use crate::identity::{Facts, Identity};
use crate::policy::review::{ReviewAttributes, ReviewQuestion};
use crate::policy::rule::{Condition, Effect, Rule, RuleInput};
use crate::time::Timestamp;

use super::Denial;

/// Receives the steps of a decision.
pub trait Trace {
    /// Whether steps are reported at all. With `false` the decision stops at the first match and
    /// reports nothing.
    const ENABLED: bool = true;

    /// Receives one step of the decision.
    fn step(&mut self, step: Step<'_>);
}

/// A trace that records nothing and costs nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTrace;

impl Trace for NoTrace {
    const ENABLED: bool = false;

    fn step(&mut self, _: Step<'_>) {}
}

/// One step of a decision.
#[derive(Debug, Clone, Copy)]
pub enum Step<'s> {
    /// The credential is checked.
    Credential {
        /// What the credential proved; `None` without a credential.
        facts: Option<&'s Facts>,
        /// The time of the decision.
        now: Timestamp,
    },
    /// The route is public.
    Public,
    /// A rule is evaluated; its conditions follow.
    Rule {
        /// The list that the rule is in.
        effect: Effect,
        /// Its position in that list.
        index: usize,
        /// The rule itself, for its text.
        rule: &'s Rule,
        /// Whether all of its conditions hold.
        matches: bool,
    },
    /// A condition of the preceding rule is evaluated.
    Condition {
        /// The condition itself, for its text.
        condition: &'s Condition,
        /// What it is evaluated for.
        input: &'s RuleInput<'s>,
        /// The list that its rule is in.
        effect: Effect,
    },
    /// No rule decides, and a review is looked up.
    Review {
        /// The question of the review.
        question: &'s ReviewQuestion<'s>,
        /// The answer; `None` when it is not known.
        verdict: Option<bool>,
    },
    /// The path was rewritten and everything is decided again.
    Rewritten {
        /// The path after the rewrite.
        path: &'s str,
    },
    /// The outcome: `None` is a permit.
    Verdict(Option<&'s Denial>),
}

/// A recorded explanation. It contains what the credential says, so it is for operators only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    lines: Vec<Line>,
}

/// One line of an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Indentation: conditions are indented below their rule.
    pub depth: usize,
    /// Whether the fact in the line holds; `None` for a remark.
    pub outcome: Option<bool>,
    /// What was checked and what was found, without line breaks.
    pub text: String,
}

impl Explanation {
    /// The lines, in the order of evaluation.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    fn push(&mut self, depth: usize, holds: Option<bool>, text: String) {
        self.lines.push(Line { depth, outcome: holds, text });
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
            Step::Condition { condition, input, effect } => {
                let found = condition.values(input);
                let found = match &*found {
                    [] => "there is none".into(),
                    values => format!(
                        "there is {}",
                        values.iter().map(|v| quoted(v)).collect::<Vec<_>>().join(", ")
                    ),
                };
                self.push(1, Some(condition.holds(input, effect)), format!("{condition}: {found}"));
            }
            Step::Review { question, verdict } => {
                let known = match verdict {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "not known yet",
                };
                self.push(0, verdict, format!("review: {}: {known}", question_text(question)));
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

/// A question as a sentence, in the wording of `kubectl auth can-i`.
fn question_text(question: &ReviewQuestion<'_>) -> String {
    let user = quoted(&question.user);
    match &question.attributes {
        ReviewAttributes::NonResource { path, verb } => format!("may {user} {verb} {path}"),
        ReviewAttributes::Resource { namespace, verb, group, version, resource, subresource, name } => {
            let mut text = format!("may {user} {verb} {resource}");
            let more = [
                // As `kubectl` names a resource: `deployments.v1.apps`.
                (".", version.as_deref()),
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
    /// One line for each step: `+` holds, `-` does not, indented below the step that it belongs to.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Line { depth, outcome: holds, text } in &self.lines {
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

//! Findings as warnings: what stands before the figures of a report and of a comparison, and what the shell is told.
//!
//! Owns: that findings of one name are one warning. Does not own: what is found ([`crate::diagnose`]) and how it looks
//! ([`super::render`]).

use super::render::{Case, Warning, Weight};
use crate::diagnose::groups;
use crate::record::{Doubt, Finding};

/// Warnings from findings, in their order. `of` says in which of several records they were found; it is empty where there is one.
pub fn warnings(findings: &[Finding], of: &str) -> Vec<Warning> {
    groups(findings).iter().map(|group| warning(group, of)).collect()
}

fn warning(group: &[&Finding], of: &str) -> Warning {
    let first = group[0];
    let case = |finding: &&Finding| Case {
        of: of.to_owned(),
        about: finding.variants.clone(),
        evidence: finding.evidence.clone(),
    };
    Warning {
        weight: match first.doubt {
            Doubt::Invalid => Weight::Grave,
            Doubt::Careful => Weight::Careful,
            Doubt::Explains => Weight::Explains,
        },
        name: first.name.clone(),
        cases: group.iter().map(case).collect(),
        remedy: first.remedy.clone(),
    }
}

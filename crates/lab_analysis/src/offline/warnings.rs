//! Warnings from findings, for the top of a report, of a comparison, and for the terminal.
//!
//! Owns: that findings with the same name form one warning.
//! Does not own: the findings ([`crate::diagnose`]), and how warnings look ([`super::render`]).

use super::render::{Case, Warning, Weight};
use crate::diagnose::groups;
use crate::record::{Doubt, Finding};

/// Creates warnings from findings, in their order. `of` names the record among several in which
/// they were found; it is empty when there is one.
pub fn warnings(findings: &[Finding], of: &str) -> Vec<Warning> {
    groups(findings).iter().map(|group| warning(group, of)).collect()
}

fn warning(group: &[&Finding], of: &str) -> Warning {
    let first = group[0];
    let case = |finding: &&Finding| Case {
        record_name: of.to_owned(),
        about: finding.variants.clone(),
        evidence: finding.evidence.clone(),
    };
    Warning {
        weight: match first.doubt {
            Doubt::Invalid => Weight::Invalid,
            Doubt::Careful => Weight::Careful,
            Doubt::Explains => Weight::Explains,
        },
        name: first.name.clone(),
        cases: group.iter().map(case).collect(),
        remedy: first.remedy.clone(),
    }
}

//! Rule configuration, and every fault that can be found in it before the first request.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::{Attribute, Condition, Rule, RuleSet, Test, TimeWindow, Values, WindowSpec};
use crate::identity::CredentialKind;
use crate::policy::{Faults, PolicyFault, PolicyProblem, check_head, check_methods};
use crate::request::canonical_host;

/// A rule as configured.
#[derive(Debug, Clone, Default)]
pub struct RuleSpec {
    /// Whether a valid credential is all that this rule requires; beside conditions it adds
    /// nothing.
    pub authenticated: bool,
    /// Conditions, all of which must hold.
    pub conditions: Vec<ConditionSpec>,
}

/// A condition as configured.
#[derive(Debug, Clone)]
pub struct ConditionSpec {
    /// The attribute that it reads.
    pub attribute: Attribute,
    /// The required value of the attribute.
    pub test: TestSpec,
}

/// A test as configured.
#[derive(Debug, Clone)]
pub enum TestSpec {
    /// The attribute has one of these values.
    Any(Vec<String>),
    /// The attribute has every one of these values.
    All(Vec<String>),
    /// The attribute has any value at all.
    Present,
    /// The address is in one of these networks.
    In(Vec<IpNet>),
    /// The time is in this window.
    Within(WindowSpec),
}

/// The names that rules may refer to. A rule that uses any other name could never match, and a deny
/// rule that never matches denies nothing.
#[derive(Debug, Clone, Copy)]
pub struct Vocabulary<'a> {
    /// Configured names of issuers and certificate authorities.
    pub issuers: &'a [&'a str],
    /// Claim paths that some issuer's mapping keeps, as written there.
    pub claims: &'a [&'a str],
}

impl RuleSet {
    /// Checks and builds the rules of one route.
    ///
    /// # Errors
    /// Every fault, with its place (`allow[0].groups`, `deny[1].claims.realm.dept`).
    pub fn build(
        allow: Vec<RuleSpec>,
        deny: Vec<RuleSpec>,
        known: &Vocabulary<'_>,
    ) -> Result<Self, Vec<PolicyFault>> {
        let mut faults = Faults::default();
        if allow.is_empty() {
            faults.add("allow", PolicyProblem::NoAllowRule);
        }
        let mut rules = |specs: Vec<RuleSpec>, list: &str| -> Box<[Rule]> {
            let numbered = specs.into_iter().enumerate();
            numbered.map(|(i, spec)| rule(spec, &format!("{list}[{i}]"), known, &mut faults)).collect()
        };
        let (allow, deny) = (rules(allow, "allow"), rules(deny, "deny"));
        let conditions = allow.iter().chain(&deny).flat_map(Rule::conditions);
        let parameters: BTreeSet<_> = conditions
            .filter_map(|c| if let Attribute::Query(name) = &c.attribute { Some(name.clone()) } else { None })
            .collect();
        let parameters = parameters.into_iter().collect();
        faults.into_result(Self { allow, deny, parameters, reviews: None })
    }
}

fn rule(spec: RuleSpec, path: &str, known: &Vocabulary<'_>, faults: &mut Faults) -> Rule {
    if spec.conditions.is_empty() && !spec.authenticated {
        faults.add(path, PolicyProblem::EmptyRule);
    }
    let conditions = spec.conditions.into_iter().map(|spec| {
        let path = format!("{path}.{}", spec.attribute.path());
        condition(spec, &path, known, faults)
    });
    Rule { conditions: conditions.collect() }
}

fn condition(spec: ConditionSpec, path: &str, known: &Vocabulary<'_>, faults: &mut Faults) -> Condition {
    let ConditionSpec { attribute, test } = spec;
    match &attribute {
        Attribute::Claim(claim) if !known.claims.contains(&&**claim) => {
            let known = known.claims.iter().map(ToString::to_string).collect();
            faults.add(path, PolicyProblem::Claim { claim: claim.to_string(), known });
        }
        Attribute::Query(name) if name.is_empty() || name.chars().any(char::is_control) => {
            faults.add(path, PolicyProblem::Parameter(name.to_string()));
        }
        _ => {}
    }
    let test = match test {
        TestSpec::Present => {
            if attribute.is_certain() {
                faults.add(path, PolicyProblem::AlwaysPresent);
            }
            Test::Present
        }
        TestSpec::In(_) if attribute != Attribute::Addresses => mismatch(path, faults),
        TestSpec::Within(_) if attribute != Attribute::Time => mismatch(path, faults),
        TestSpec::Any(_) | TestSpec::All(_)
            if matches!(attribute, Attribute::Addresses | Attribute::Time) =>
        {
            mismatch(path, faults)
        }
        TestSpec::In(networks) => {
            if networks.is_empty() {
                faults.add(path, PolicyProblem::EmptyList);
            }
            Test::In(networks.into())
        }
        TestSpec::Within(window) => match TimeWindow::build(&window) {
            Ok(window) => Test::Within(window),
            Err(problem) => {
                faults.add(path, problem);
                Test::Present
            }
        },
        TestSpec::Any(values) => {
            check_values(&attribute, &values, path, known, faults);
            Test::Any(Values::new(normalized(&attribute, values)))
        }
        TestSpec::All(values) => {
            check_values(&attribute, &values, path, known, faults);
            let values = Values::new(normalized(&attribute, values));
            if values.as_slice().len() > 1 && !attribute.is_list() {
                faults.add(path, PolicyProblem::AllOfOne);
            }
            Test::All(values)
        }
    };
    Condition { attribute, test }
}

/// Notes that the test does not belong to the attribute. The rules are not built then.
fn mismatch(path: &str, faults: &mut Faults) -> Test {
    faults.add(path, PolicyProblem::TestKind);
    Test::Present
}

/// The values in the form in which they are compared.
fn normalized(attribute: &Attribute, values: Vec<String>) -> Vec<String> {
    if *attribute != Attribute::EmailDomains {
        return values;
    }
    let canonical = |domain: String| canonical_host(&domain).map(String::from).unwrap_or(domain);
    values.into_iter().map(canonical).collect()
}

fn check_values(
    attribute: &Attribute,
    values: &[String],
    path: &str,
    known: &Vocabulary<'_>,
    faults: &mut Faults,
) {
    if values.is_empty() {
        faults.add(path, PolicyProblem::EmptyList);
    }
    if *attribute == Attribute::Methods {
        check_methods(values, path, faults);
        return check_head(values, path, faults);
    }
    for value in values {
        if let Some(problem) = check_value(attribute, value, known) {
            faults.add(path, problem);
        }
    }
}

fn check_value(attribute: &Attribute, value: &str, known: &Vocabulary<'_>) -> Option<PolicyProblem> {
    const KINDS: [CredentialKind; 5] = [
        CredentialKind::Jwt,
        CredentialKind::Opaque,
        CredentialKind::Certificate,
        CredentialKind::Session,
        CredentialKind::Basic,
    ];
    // A parameter may be present and empty (`?watch=`); no other attribute can.
    if value.is_empty() && !matches!(attribute, Attribute::Query(_)) {
        return Some(PolicyProblem::EmptyValue);
    }
    if value.chars().any(char::is_control) {
        return Some(PolicyProblem::ControlValue(value.into()));
    }
    match attribute {
        // RFC 6749 §3.3. This also makes a scope safe to quote in a challenge.
        Attribute::Scopes if !value.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\') => {
            Some(PolicyProblem::Scope(value.into()))
        }
        Attribute::Emails if value.matches('@').count() != 1 => Some(PolicyProblem::Email(value.into())),
        Attribute::EmailDomains => {
            let fault = canonical_host(value).err()?;
            Some(PolicyProblem::EmailDomain { domain: value.into(), fault })
        }
        Attribute::Credentials if !KINDS.iter().any(|kind| kind.as_str() == value) => {
            Some(PolicyProblem::CredentialKind(value.into()))
        }
        Attribute::Issuers if !known.issuers.contains(&value) => {
            let known = known.issuers.iter().map(ToString::to_string).collect();
            Some(PolicyProblem::Issuer { issuer: value.into(), known })
        }
        _ => None,
    }
}

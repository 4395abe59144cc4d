//! Policies: turns conditions of the file into rules that the gateway evaluates.

use std::collections::BTreeMap;

use auth::policy::rule::{
    Attribute, ConditionSpec, RuleSet, RuleSpec, TestSpec, Vocabulary, Weekday, WindowSpec,
};
use auth::policy::{PolicyFault, PolicyProblem};

use super::super::fault::{Faults, KeyPath};
use super::super::raw::{self, Choice};
use super::{Context, is_referenced, issuers, name_hint, names};
use crate::partial::Partial;

/// The shared policies by name. `None`: the policy has a fault.
pub(super) type Policies = BTreeMap<String, Option<RuleSet>>;

/// Claims that rules and identity headers use. They are kept from a token even when `keep` does not
/// list them.
pub(super) fn referenced_claims(sound: &Partial, context: &mut Context<'_>) -> Vec<String> {
    let file = &sound.file;
    let mut claims = Vec::new();
    for (path, policy) in all_policies(sound) {
        for (list, rules) in [("allow", &policy.allow), ("deny", &policy.deny)] {
            for (index, rule) in rules.iter().enumerate() {
                for claim in rule.claims.keys() {
                    let at = path.key(list).index(index).key("claims").key(claim);
                    claims.extend(
                        issuers::parse_claim_path(claim, &at, context).map(|claim| claim.as_str().to_owned()),
                    );
                }
            }
        }
    }
    let of_headers =
        file.identity_headers.fields.values().filter_map(|source| source.strip_prefix("claims."));
    claims.extend(of_headers.map(str::to_owned));
    claims
}

/// Every policy in the file, shared or inline in a route.
pub(super) fn all_policies(sound: &Partial) -> Vec<(KeyPath, &raw::Policy)> {
    let shared =
        sound.file.policies.iter().map(|(name, policy)| (KeyPath::top_level("policies").key(name), policy));
    let own = sound.paths("route", &sound.file.route).into_iter().filter_map(|(path, route)| {
        match route.policy.as_ref()? {
            raw::PolicyChoice::Inline(policy) => Some((path.key("policy"), policy)),
            raw::PolicyChoice::Named(_) => None,
        }
    });
    shared.chain(own).collect()
}

/// Path of the first rule condition on the client's address.
pub(super) fn first_address_condition(sound: &Partial) -> Option<KeyPath> {
    all_policies(sound).into_iter().find_map(|(path, policy)| {
        let lists = [("allow", &policy.allow), ("deny", &policy.deny)];
        lists.into_iter().find_map(|(list, rules)| {
            let index = rules.iter().position(|rule| !rule.addresses.is_empty())?;
            Some(path.key(list).index(index).key("addresses"))
        })
    })
}

/// Builds the shared policies.
pub(super) fn policies(sound: &Partial, claims: &[String], context: &mut Context<'_>) -> Policies {
    let file = &sound.file;
    let mut built = Policies::new();
    let known: Vec<&str> = file.policies.keys().map(String::as_str).collect();
    for (name, policy) in &file.policies {
        let path = KeyPath::top_level("policies").key(name);
        let references = file.route.iter().filter_map(|route| match &route.policy {
            Some(raw::PolicyChoice::Named(name)) => Some(name.as_str()),
            _ => None,
        });
        if !is_referenced(name, references, &known) && !sound.has_other_routes() {
            let hint = "name it in a route's `policy`, or remove it";
            context.faults.add_key(&path, format!("no route has the policy {name:?}"), hint);
        }
        built.insert(name.clone(), build(policy, &path, sound, claims, &mut context.faults));
    }
    built
}

/// Builds one policy, or notes every fault in it.
pub(super) fn build(
    policy: &raw::Policy,
    path: &KeyPath,
    sound: &Partial,
    referenced: &[String],
    faults: &mut Faults,
) -> Option<RuleSet> {
    let mut issuers = names(&sound.file.issuer, |issuer| &issuer.name);
    issuers.extend(sound.file.token_authority.iter().map(|authority| authority.name.0.as_str()));
    let login =
        sound.file.login.iter().flat_map(|login| &login.provider).map(|provider| provider.name.0.as_str());
    issuers.extend(login);
    issuers.extend(sound.file.client_certificates.as_ref().map(|c| c.name.0.as_str()));
    issuers.extend(sound.file.basic_auth.as_ref().map(|basic| basic.name.0.as_str()));
    let claims: Vec<&str> = referenced.iter().map(String::as_str).collect();
    let known = Vocabulary { issuers: &issuers, claims: &claims };
    let (allow, deny) = (specs(&policy.allow), specs(&policy.deny));
    empty_choices(policy, path, faults);
    ambiguous_callers(policy, path, &sound.file, faults);
    match RuleSet::build(allow, deny, &known) {
        Ok(rules) => Some(rules),
        Err(list) => {
            for fault in list {
                add_policy_fault(&fault, path, sound, &issuers, faults);
            }
            None
        }
    }
}

fn add_policy_fault(
    fault: &PolicyFault,
    path: &KeyPath,
    sound: &Partial,
    issuers: &[&str],
    faults: &mut Faults,
) {
    let at = path.join(&fault.path);
    match &fault.problem {
        PolicyProblem::Issuer { issuer, .. } => {
            let unfit =
                ["issuer", "token_authority"].iter().any(|section| sound.may_be_unreadable(section, issuer))
                    || sound.has_unreadable("client_certificates")
                    || sound.has_unreadable("basic_auth");
            if !unfit {
                let hint = name_hint(issuer, issuers, sound, "issuer");
                faults.add(&at, format!("there is no issuer {issuer:?}"), hint);
            }
        }
        // An invalid claim path was noted at its own position.
        PolicyProblem::Claim { .. } => {}
        problem => add_problem(&at, &problem.to_string(), faults),
    }
}

/// Notes a fault of the policy code. Its messages carry the hint after a colon.
pub(super) fn add_problem(path: &KeyPath, text: &str, faults: &mut Faults) {
    match text.split_once(": ") {
        Some((message, hint)) if message.matches('"').count().is_multiple_of(2) => {
            faults.add(path, message, hint);
        }
        _ => faults.add(path, text, ""),
    }
}

fn specs(rules: &[raw::Rule]) -> Vec<RuleSpec> {
    rules.iter().map(spec).collect()
}

fn spec(rule: &raw::Rule) -> RuleSpec {
    let claims = rule.claims.iter().map(|(path, choice)| (Attribute::Claim(path.as_str().into()), choice));
    let query = rule.query.iter().map(|(name, choice)| (Attribute::Query(name.as_str().into()), choice));
    let groups = rule.groups.iter().map(|choice| (Attribute::Groups, choice));
    let scopes = rule.scopes.iter().map(|choice| (Attribute::Scopes, choice));
    let choices = groups.chain(scopes).chain(claims).chain(query);
    let mut conditions: Vec<ConditionSpec> =
        choices.flat_map(|(attribute, c)| tests(&attribute, c)).collect();
    let credentials = rule.credentials.iter().map(|kind| match kind {
        raw::Credential::Jwt => "jwt".to_owned(),
        raw::Credential::Opaque => "opaque".to_owned(),
        raw::Credential::Session => "session".to_owned(),
        raw::Credential::Certificate => "certificate".to_owned(),
        raw::Credential::Basic => "basic".to_owned(),
    });
    let lists = [
        (Attribute::Users, rule.users.clone()),
        (Attribute::Subjects, rule.subjects.clone()),
        (Attribute::Emails, rule.emails.clone()),
        (Attribute::EmailDomains, rule.email_domains.clone()),
        (Attribute::Clients, rule.clients.clone()),
        (Attribute::Issuers, rule.issuers.iter().map(|name| name.0.clone()).collect()),
        (Attribute::Credentials, credentials.collect()),
        (Attribute::Methods, rule.methods.iter().map(|method| method.0.clone()).collect()),
    ];
    for (attribute, values) in lists.into_iter().filter(|(_, values)| !values.is_empty()) {
        conditions.push(ConditionSpec { attribute, test: TestSpec::Any(values) });
    }
    if !rule.addresses.is_empty() {
        let networks = rule.addresses.iter().map(|network| network.0).collect();
        conditions.push(ConditionSpec { attribute: Attribute::Addresses, test: TestSpec::In(networks) });
    }
    if let Some(time) = &rule.time {
        conditions.push(ConditionSpec { attribute: Attribute::Time, test: TestSpec::Within(window(time)) });
    }
    RuleSpec { authenticated: rule.authenticated, conditions }
}

fn window(raw: &raw::TimeWindow) -> WindowSpec {
    let day = |day: &raw::Day| match day {
        raw::Day::Mon => Weekday::Mon,
        raw::Day::Tue => Weekday::Tue,
        raw::Day::Wed => Weekday::Wed,
        raw::Day::Thu => Weekday::Thu,
        raw::Day::Fri => Weekday::Fri,
        raw::Day::Sat => Weekday::Sat,
        raw::Day::Sun => Weekday::Sun,
    };
    WindowSpec {
        days: raw.days.iter().map(day).collect(),
        from: raw.from.map(|time| time.0),
        to: raw.to.map(|time| time.0),
        offset: raw.zone.0,
    }
}

/// Conditions of a choice on an attribute, one test each.
fn tests(attribute: &Attribute, choice: &Choice) -> Vec<ConditionSpec> {
    let tests = match choice {
        Choice::Any(values) => vec![TestSpec::Any(values.clone())],
        Choice::Sets(sets) => {
            let list = |values: &Vec<String>| (!values.is_empty()).then(|| values.clone());
            let present = sets.present.then_some(TestSpec::Present);
            let (any, all) = (list(&sets.any).map(TestSpec::Any), list(&sets.all).map(TestSpec::All));
            present.into_iter().chain(any).chain(all).collect()
        }
    };
    tests.into_iter().map(|test| ConditionSpec { attribute: attribute.clone(), test }).collect()
}

/// Refuses an empty choice (`{}`). Otherwise a rule would lose a condition without a message.
fn empty_choices(policy: &raw::Policy, path: &KeyPath, faults: &mut Faults) {
    for (list, rules) in [("allow", &policy.allow), ("deny", &policy.deny)] {
        for (index, rule) in rules.iter().enumerate() {
            let at = path.key(list).index(index);
            let single = [("groups", &rule.groups), ("scopes", &rule.scopes)];
            let single = single.into_iter().filter_map(|(key, c)| Some((at.key(key), c.as_ref()?)));
            let claims = rule.claims.iter().map(|(name, c)| (at.key("claims").key(name), c));
            let query = rule.query.iter().map(|(name, c)| (at.key("query").key(name), c));
            for (at, choice) in single.chain(claims).chain(query) {
                if matches!(choice, Choice::Sets(s) if s.any.is_empty() && s.all.is_empty() && !s.present) {
                    let hint = "write a list of values, `any`, `all` or `present = true`";
                    faults.add(&at, "the condition is empty", hint);
                }
            }
        }
    }
}

/// Number of login providers that do not have the name of an issuer or authority too.
fn login_only_providers(file: &raw::File) -> usize {
    let known = |name: &super::super::scalar::Name| {
        file.issuer.iter().any(|issuer| issuer.name == *name)
            || file.token_authority.iter().any(|a| a.name == *name)
    };
    file.login.iter().flat_map(|login| &login.provider).filter(|provider| !known(&provider.name)).count()
}

/// Refuses ambiguous conditions. With several issuers, each may assign the same user name to a
/// different person. The same holds for addresses, scopes and claims.
fn ambiguous_callers(policy: &raw::Policy, path: &KeyPath, file: &raw::File, faults: &mut Faults) {
    for (index, rule) in policy.allow.iter().enumerate() {
        let shown = |kind| rule.credentials.is_empty() || rule.credentials.contains(&kind);
        let signed = if shown(raw::Credential::Jwt) { file.issuer.len() } else { 0 };
        let opaque = if shown(raw::Credential::Opaque) { file.token_authority.len() } else { 0 };
        let people = if shown(raw::Credential::Session) { login_only_providers(file) } else { 0 };
        let tokens = signed + opaque + people;
        let certificates = file.client_certificates.is_some() && shown(raw::Credential::Certificate);
        let passwords = file.basic_auth.is_some() && shown(raw::Credential::Basic);
        // Certificates and passwords have only some of these attributes.
        let (certificates, passwords) = (usize::from(certificates), usize::from(passwords));
        let both = certificates + passwords;
        let by_name = [
            ("users", !rule.users.is_empty(), both),
            ("subjects", !rule.subjects.is_empty(), both),
            ("clients", !rule.clients.is_empty(), 0),
            ("groups", rule.groups.is_some(), both),
            ("emails", !rule.emails.is_empty(), 0),
            ("email_domains", !rule.email_domains.is_empty(), 0),
            ("scopes", rule.scopes.is_some(), 0),
            ("claims", !rule.claims.is_empty(), certificates),
        ];
        let ambiguous = by_name.iter().find(|(_, named, others)| *named && tokens + others > 1);
        let Some((key, ..)) = ambiguous else { continue };
        if rule.issuers.is_empty() {
            let message = format!("every issuer could grant these {key}");
            let hint = "add `issuers` to the rule, so that one issuer cannot grant the values of another";
            faults.warn(&path.key("allow").index(index).key(key), message, hint);
        }
    }
}

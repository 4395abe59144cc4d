//! Rules: conditions, their text, what the build refuses.

use auth::identity::CredentialKind;
use auth::policy::PolicyProblem;
use auth::policy::rule::{
    Attribute, Attribute::*, Condition, ConditionSpec, Policy, RuleSet, RuleSpec, Vocabulary,
};

use crate::fixtures::{
    KNOWN, all, any, boxes, claim, get, identity, present, query, request, rule, rules, strings,
};

fn holds(condition: ConditionSpec) -> bool {
    rules(vec![rule(vec![condition])], vec![]).allow()[0].matches(&identity(), &get("/?ns=a&e="))
}

#[test]
fn any_of_a_list_needs_one_value_and_all_of_it_needs_each() {
    for attribute in [Groups, claim("tenant"), Scopes] {
        let (one, two) = match attribute {
            Groups => ("dev", "ops"),
            Scopes => ("read", "list"),
            _ => ("t1", "t2"),
        };
        let case =
            |values: &[&str]| (holds(any(attribute.clone(), values)), holds(all(attribute.clone(), values)));
        assert_eq!(case(&[one]), (true, true));
        assert_eq!(case(&[one, two]), (true, true));
        assert_eq!(case(&[two, "x"]), (true, false));
        assert_eq!(case(&["x", "y"]), (false, false));
        assert_eq!(case(&[&one.to_uppercase()]), (false, false));
        assert!(holds(present(attribute)));
    }
}

#[test]
fn single_values_compare_byte_for_byte() {
    for (attribute, value) in [
        (Users, "alice"),
        (Subjects, "sub-1"),
        (Emails, "alice@example.com"),
        (Clients, "web"),
        (Issuers, "main"),
        (Credentials, "jwt"),
        (Methods, "GET"),
        (query("ns"), "a"),
        (query("e"), ""),
        (claim("realm.dept"), "blue"),
    ] {
        assert!(holds(any(attribute.clone(), &[value])), "{attribute:?}");
        assert!(holds(all(attribute.clone(), &[value])), "{attribute:?}");
    }
    for (attribute, value) in [
        (Users, "Alice"),
        (Users, "sub-1"),
        (Subjects, "alice"),
        (Emails, "alice@Example.com"),
        (Clients, "we"),
        (Issuers, "other"),
        (Credentials, "certificate"),
        (Methods, "POST"),
        (query("ns"), "A"),
        (query("NS"), "a"),
        (claim("realm.dept"), "blu"),
    ] {
        assert!(!holds(any(attribute.clone(), &[value])), "{attribute:?}");
    }
}

#[test]
fn what_is_absent_meets_no_condition() {
    let mut nobody = identity();
    (nobody.user, nobody.email, nobody.client) = (None, None, None);
    (nobody.groups, nobody.scopes, nobody.claims) = (vec![], vec![], vec![]);
    for attribute in [Users, Emails, Clients, Groups, Scopes, claim("tenant"), query("ns")] {
        let value = if attribute == Emails { "a@b" } else { "a" };
        for condition in
            [any(attribute.clone(), &[value]), all(attribute.clone(), &[value]), present(attribute.clone())]
        {
            let set = rules(vec![rule(vec![condition])], vec![]);
            assert!(!set.allow()[0].matches(&nobody, &get("/")), "{attribute:?}");
        }
    }
}

#[test]
fn long_lists_match_like_short_ones() {
    let mut values: Vec<String> = (0..500).map(|i| format!("g{i}")).collect();
    let condition = |values: &[String]| any(Groups, &values.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!holds(condition(&values)));
    values.push("ops".into());
    assert!(holds(condition(&values)));
}

#[test]
fn a_rule_is_the_conjunction_of_its_conditions() {
    let matches =
        |conditions| rules(vec![rule(conditions)], vec![]).allow()[0].matches(&identity(), &get("/"));
    assert!(matches(vec![]));
    assert!(matches(vec![any(Groups, &["dev"]), any(Methods, &["GET"])]));
    assert!(!matches(vec![any(Groups, &["dev"]), any(Methods, &["POST"])]));
    assert!(!matches(vec![any(Groups, &["x"]), any(Methods, &["GET"])]));
}

#[test]
fn head_needs_gets_right() {
    let set = rules(vec![rule(vec![any(Methods, &["GET"])])], vec![]);
    let matches = |method| set.allow()[0].matches(&identity(), &request(method, "example.com", "/"));
    assert!(matches("HEAD") && matches("GET"));
    assert!(!matches("POST"));
    let posts = rules(vec![rule(vec![any(Methods, &["POST"])])], vec![]);
    assert!(!posts.allow()[0].matches(&identity(), &request("HEAD", "example.com", "/")));
}

#[test]
fn query_values_are_decoded_before_they_are_compared() {
    let set = rules(vec![rule(vec![any(query("name space"), &["a+b ü"])])], vec![]);
    let matches = |target| set.allow()[0].matches(&identity(), &get(target));
    assert!(matches("/?name+space=a%2Bb+%C3%BC") && matches("/?%6eame%20space=a%2bb%20%c3%bc"));
    assert!(!matches("/?name+space=a+b+%C3%BC") && !matches("/?name%2Bspace=a%2Bb+%C3%BC"));
    let many: Vec<String> = (0..20).map(|i| format!("v {i}")).collect();
    let set = rules(
        vec![rule(vec![any(query("v"), &many.iter().map(String::as_str).collect::<Vec<_>>())])],
        vec![],
    );
    assert!(set.allow()[0].matches(&identity(), &get("/?v=%76+7")));
}

#[test]
fn the_parameters_a_policy_reads_are_known() {
    let set = rules(
        vec![rule(vec![any(query("b"), &["1"])]), rule(vec![any(query("a"), &["1"]), any(Groups, &["x"])])],
        vec![rule(vec![present(query("b"))])],
    );
    assert_eq!(set.parameters(), boxes(&["a", "b"]));
}

#[test]
fn rules_read_like_sentences() {
    for (conditions, text) in [
        (vec![], "authenticated"),
        (vec![any(Groups, &["a", "b"]), any(Methods, &["GET"])], "any of groups [a, b] and method GET"),
        (vec![all(Scopes, &["read", "list"])], "all of scopes [read, list]"),
        (vec![present(Emails)], "emails present"),
        (vec![any(claim("realm.dept"), &["x y"])], "claim realm.dept \"x y\""),
        (vec![any(query("ns"), &["a", "b"])], "any of query parameter ns [a, b]"),
        (vec![present(query("ns"))], "query parameter ns present"),
        (vec![any(Issuers, &["main"]), any(Credentials, &["jwt"])], "issuer main and credential jwt"),
    ] {
        assert_eq!(rules(vec![rule(conditions)], vec![]).allow()[0].to_string(), text);
    }
    let set = rules(
        vec![rule(vec![any(Groups, &["a"])]), rule(vec![any(Users, &["u"])])],
        vec![rule(vec![any(Clients, &["c"])])],
    );
    assert_eq!(Policy::Rules(set).to_string(), "group a or user u, unless client c");
    assert_eq!(Policy::Public.to_string(), "public");
}

fn faults(allow: Vec<RuleSpec>, deny: Vec<RuleSpec>) -> Vec<(String, PolicyProblem)> {
    let faults = RuleSet::build(allow, deny, &KNOWN).expect_err("a fault");
    faults.into_iter().map(|fault| (fault.path, fault.problem)).collect()
}

fn fault(condition: ConditionSpec) -> PolicyProblem {
    let mut found = faults(vec![rule(vec![condition])], vec![]);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0).1
}

#[test]
fn every_fault_is_reported_with_its_place() {
    let empty = RuleSpec::default();
    let found = faults(
        vec![rule(vec![any(Groups, &[]), any(Scopes, &["a b"])]), empty.clone()],
        vec![empty, rule(vec![any(claim("x"), &["1"]), any(query(""), &["1"]), any(Issuers, &["nobody"])])],
    );
    let places: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    let expected = [
        "allow[0].groups",
        "allow[0].scopes",
        "allow[1]",
        "deny[0]",
        "deny[1].claims.x",
        "deny[1].query.",
        "deny[1].issuers",
    ];
    assert_eq!(places, expected);
    let names: Vec<String> = [Users, Subjects, Emails, Clients, Credentials, Methods]
        .map(|attribute| faults(vec![rule(vec![any(attribute, &[])])], vec![]).remove(0).0)
        .into();
    let expected = ["users", "subjects", "emails", "clients", "credentials", "methods"];
    assert_eq!(names, expected.map(|name| format!("allow[0].{name}")));
}

#[test]
fn rules_that_let_nobody_pass_are_a_fault() {
    assert_eq!(faults(vec![], vec![]), [("allow".into(), PolicyProblem::NoAllowRule)]);
    assert_eq!(faults(vec![], vec![rule(vec![])]), [("allow".into(), PolicyProblem::NoAllowRule)]);
}

#[test]
fn conditions_that_say_nothing_or_can_never_hold_are_faults() {
    assert_eq!(fault(any(Groups, &[])), PolicyProblem::EmptyList);
    assert_eq!(fault(all(Groups, &[])), PolicyProblem::EmptyList);
    assert_eq!(fault(any(Groups, &[""])), PolicyProblem::EmptyValue);
    assert_eq!(fault(any(Users, &["a\nb"])), PolicyProblem::ControlValue("a\nb".into()));
    for attribute in [Users, Subjects, Clients, query("ns")] {
        assert_eq!(fault(all(attribute, &["a", "b"])), PolicyProblem::AllOfOne);
    }
    assert_eq!(fault(all(Methods, &["GET", "POST"])), PolicyProblem::AllOfOne);
    for attribute in [Subjects, Issuers, Credentials, Methods] {
        assert_eq!(fault(present(attribute)), PolicyProblem::AlwaysPresent);
    }
}

#[test]
fn unknown_names_are_faults() {
    assert_eq!(fault(any(Credentials, &["cookie"])), PolicyProblem::CredentialKind("cookie".into()));
    let issuer = PolicyProblem::Issuer { issuer: "Main".into(), known: strings(&["main", "other"]) };
    assert_eq!(fault(any(Issuers, &["Main"])), issuer);
    assert_eq!(issuer.to_string(), r#"there is no issuer "Main": write one of main, other"#);
    let unkept = PolicyProblem::Claim { claim: "dept".into(), known: strings(&["realm.dept", "tenant"]) };
    assert_eq!(fault(any(claim("dept"), &["x"])), unkept);
    assert_eq!(fault(present(claim("dept"))), unkept);
    let nothing = Vocabulary { issuers: &[], claims: &[] };
    let none = RuleSet::build(vec![rule(vec![any(Issuers, &["main"])])], vec![], &nothing).unwrap_err();
    assert_eq!(none[0].to_string(), r#"allow[0].issuers: there is no issuer "main": none is configured"#);
}

#[test]
fn malformed_values_are_faults() {
    for scope in ["a b", "a\"b", "a\\b", "ä"] {
        assert_eq!(fault(any(Scopes, &[scope])), PolicyProblem::Scope(scope.into()));
    }
    for email in ["alice", "a@b@c"] {
        assert_eq!(fault(any(Emails, &[email])), PolicyProblem::Email(email.into()));
    }
    assert_eq!(fault(any(Methods, &["post"])), PolicyProblem::MethodCase("post".into()));
    assert_eq!(fault(any(Methods, &["P T"])), PolicyProblem::Method("P T".into()));
    assert_eq!(fault(any(Methods, &["Connect"])), PolicyProblem::MethodRefused("Connect".into()));
    assert_eq!(fault(any(Methods, &["HEAD"])), PolicyProblem::HeadAlone);
    assert_eq!(fault(any(query("a\0"), &["x"])), PolicyProblem::Parameter("a\0".into()));
}

#[test]
fn every_credential_kind_can_be_named() {
    for kind in [CredentialKind::Jwt, CredentialKind::Certificate] {
        assert!(RuleSet::build(vec![rule(vec![any(Credentials, &[kind.as_str()])])], vec![], &KNOWN).is_ok());
    }
}

#[test]
fn a_condition_tells_what_it_looks_at() {
    let set = rules(vec![rule(vec![any(Groups, &["x"]), present(query("ns"))])], vec![]);
    let attributes: Vec<&Attribute> = set.allow()[0].conditions().iter().map(Condition::attribute).collect();
    assert_eq!(attributes, [&Groups, &query("ns")]);
    let (identity, request) = (identity(), get("/?ns=1&ns=2"));
    assert_eq!(set.allow()[0].conditions()[0].values(&identity, &request), ["dev", "ops"]);
    assert_eq!(set.allow()[0].conditions()[1].values(&identity, &request), ["1", "2"]);
}

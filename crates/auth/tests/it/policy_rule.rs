//! Rules: conditions, their text, what the build refuses.

use auth::identity::CredentialKind;
use auth::identity::Identity;
use auth::policy::PolicyProblem;
use auth::policy::rule::{
    Attribute, Attribute::*, Condition, ConditionSpec, Effect, Policy, Rule, RuleInput, RuleSet, RuleSpec,
    TestSpec, Vocabulary, Weekday, WindowSpec,
};
use auth::request::Canonical;
use auth::time::Timestamp;

use crate::fixtures::{
    KNOWN, NOW, all, any, boxes, claim, get, identity, present, query, request, rule, rules, strings,
};

fn input<'i>(identity: &'i Identity, request: &'i Canonical<'i>) -> RuleInput<'i> {
    RuleInput { identity, request, client: None, now: NOW }
}

fn matches(rule: &Rule, identity: &Identity, request: &Canonical<'_>) -> bool {
    rule.matches(&input(identity, request), Effect::Allow)
}

fn holds(condition: ConditionSpec) -> bool {
    matches(&rules(vec![rule(vec![condition])], vec![]).allow()[0], &identity(), &get("/?ns=a&e="))
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
        (EmailDomains, "example.com"),
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
    for attribute in [Users, Emails, EmailDomains, Clients, Groups, Scopes, claim("tenant"), query("ns")] {
        let value = if attribute == Emails { "a@b" } else { "a" };
        for condition in
            [any(attribute.clone(), &[value]), all(attribute.clone(), &[value]), present(attribute.clone())]
        {
            let set = rules(vec![rule(vec![condition])], vec![]);
            assert!(!matches(&set.allow()[0], &nobody, &get("/")), "{attribute:?}");
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
    let met = |conditions| matches(&rules(vec![rule(conditions)], vec![]).allow()[0], &identity(), &get("/"));
    assert!(met(vec![]));
    assert!(met(vec![any(Groups, &["dev"]), any(Methods, &["GET"])]));
    assert!(!met(vec![any(Groups, &["dev"]), any(Methods, &["POST"])]));
    assert!(!met(vec![any(Groups, &["x"]), any(Methods, &["GET"])]));
}

#[test]
fn head_needs_gets_right() {
    let set = rules(vec![rule(vec![any(Methods, &["GET"])])], vec![]);
    let met = |method| matches(&set.allow()[0], &identity(), &request(method, "example.com", "/"));
    assert!(met("HEAD") && met("GET"));
    assert!(!met("POST"));
    let posts = rules(vec![rule(vec![any(Methods, &["POST"])])], vec![]);
    assert!(!matches(&posts.allow()[0], &identity(), &request("HEAD", "example.com", "/")));
}

#[test]
fn query_values_are_decoded_before_they_are_compared() {
    let set = rules(vec![rule(vec![any(query("name space"), &["a+b ü"])])], vec![]);
    let met = |target| matches(&set.allow()[0], &identity(), &get(target));
    assert!(met("/?name+space=a%2Bb+%C3%BC") && met("/?%6eame%20space=a%2bb%20%c3%bc"));
    assert!(!met("/?name+space=a+b+%C3%BC") && !met("/?name%2Bspace=a%2Bb+%C3%BC"));
    let many: Vec<String> = (0..20).map(|i| format!("v {i}")).collect();
    let set = rules(
        vec![rule(vec![any(query("v"), &many.iter().map(String::as_str).collect::<Vec<_>>())])],
        vec![],
    );
    assert!(matches(&set.allow()[0], &identity(), &get("/?v=%76+7")));
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
        (vec![any(EmailDomains, &["Example.COM"])], "email domain example.com"),
        (vec![within(&["10.0.0.0/8", "::1/128"])], "address in [10.0.0.0/8, ::1/128]"),
        (vec![office()], "time mon, tue 08:00-18:00 +01:00"),
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
    let names: Vec<String> = [Users, Subjects, Emails, EmailDomains, Clients, Credentials, Methods]
        .map(|attribute| faults(vec![rule(vec![any(attribute, &[])])], vec![]).remove(0).0)
        .into();
    let expected = ["users", "subjects", "emails", "email_domains", "clients", "credentials", "methods"];
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
    for kind in [
        CredentialKind::Jwt,
        CredentialKind::Opaque,
        CredentialKind::Certificate,
        CredentialKind::Session,
        CredentialKind::Basic,
    ] {
        assert!(RuleSet::build(vec![rule(vec![any(Credentials, &[kind.as_str()])])], vec![], &KNOWN).is_ok());
    }
}

#[test]
fn a_condition_tells_what_it_looks_at() {
    let set = rules(vec![rule(vec![any(Groups, &["x"]), present(query("ns"))])], vec![]);
    let attributes: Vec<&Attribute> = set.allow()[0].conditions().iter().map(Condition::attribute).collect();
    assert_eq!(attributes, [&Groups, &query("ns")]);
    let (identity, request) = (identity(), get("/?ns=1&ns=2"));
    assert_eq!(set.allow()[0].conditions()[0].values(&input(&identity, &request)), ["dev", "ops"]);
    assert_eq!(set.allow()[0].conditions()[1].values(&input(&identity, &request)), ["1", "2"]);
}

fn within(networks: &[&str]) -> ConditionSpec {
    let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
    ConditionSpec { attribute: Addresses, test: TestSpec::In(networks) }
}

/// Monday and Tuesday, 08:00 to 18:00 at +01:00.
fn office() -> ConditionSpec {
    let spec =
        WindowSpec { days: vec![Weekday::Mon, Weekday::Tue], from: Some(480), to: Some(1080), offset: 60 };
    ConditionSpec { attribute: Time, test: TestSpec::Within(spec) }
}

#[test]
fn domains_of_addresses_compare_as_hosts_do() {
    let with = |email: Option<&str>, domain: &str| {
        let identity = Identity { email: email.map(Into::into), ..identity() };
        let set = rules(vec![rule(vec![any(EmailDomains, &[domain])])], vec![]);
        matches(&set.allow()[0], &identity, &get("/"))
    };
    assert!(with(Some("a@example.com"), "example.com"));
    assert!(with(Some("a@EXAMPLE.Com"), "Example.COM"));
    assert!(with(Some("a@b\u{fc}cher.example"), "xn--bcher-kva.example"));
    assert!(with(Some("a@xn--bcher-kva.example"), "b\u{fc}cher.example"));
    for email in [
        "a@sub.example.com",
        "a@notexample.com",
        "example.com@evil.test",
        "a@example.com@evil.test",
        "a@evil.test@example.com",
        "example.com",
        "a@",
        "a@example.com ",
        "a@.example.com",
    ] {
        assert!(!with(Some(email), "example.com"), "{email}");
    }
    assert!(!with(None, "example.com"), "an address that is not verified is no address");
}

#[test]
fn domains_that_no_address_has_are_faults() {
    for domain in ["@example.com", "*.example.com", "a@example.com", "example.com:25", ".example.com"] {
        let problem = fault(any(EmailDomains, &[domain]));
        assert!(
            matches!(&problem, PolicyProblem::EmailDomain { domain: at, .. } if at == domain),
            "{problem}"
        );
    }
    assert_eq!(fault(all(EmailDomains, &["a.example", "b.example"])), PolicyProblem::AllOfOne);
}

#[test]
fn an_address_is_in_a_network_and_an_unknown_one_only_denies() {
    let set = rules(vec![rule(vec![within(&["10.0.0.0/8", "fd00::/8"])])], vec![]);
    let (identity, request) = (identity(), get("/"));
    let matches = |client: Option<&str>, effect| {
        let client = client.map(|client| client.parse().unwrap());
        set.allow()[0].matches(&RuleInput { client, ..input(&identity, &request) }, effect)
    };
    for effect in [Effect::Allow, Effect::Deny] {
        for inside in ["10.0.0.0", "10.255.255.255", "fd00::1"] {
            assert!(matches(Some(inside), effect), "{inside}");
        }
        for outside in ["9.255.255.255", "11.0.0.0", "fe80::1", "::ffff:10.0.0.1"] {
            assert!(!matches(Some(outside), effect), "{outside}");
        }
    }
    assert!(!matches(None, Effect::Allow));
    assert!(matches(None, Effect::Deny));
}

#[test]
fn the_time_is_a_condition() {
    let set = rules(vec![rule(vec![office(), any(Groups, &["dev"])])], vec![rule(vec![within(&["::/0"])])]);
    let (identity, request) = (identity(), get("/"));
    // 2027-01-18 was a Monday.
    let monday = |minute: u64| Timestamp::from_secs(1_800_230_400 + minute * 60);
    let matches =
        |now| set.allow()[0].matches(&RuleInput { now, ..input(&identity, &request) }, Effect::Allow);
    assert_eq!(monday(0).to_string(), "2027-01-18 00:00:00Z");
    assert!(!matches(monday(419)) && matches(monday(420)) && matches(monday(1019)) && !matches(monday(1020)));
    assert_eq!(set.next_change(monday(0)), monday(420));
    assert_eq!(set.next_change(monday(420)), monday(1020));
    assert!(set.reads_client_address());
    let values =
        RuleInput { now: monday(0), client: Some([192, 0, 2, 1].into()), ..input(&identity, &request) };
    assert_eq!(set.allow()[0].conditions()[0].values(&values), ["mon 01:00 +01:00"]);
    assert_eq!(set.deny()[0].conditions()[0].values(&values), ["192.0.2.1"]);
    let timeless = rules(vec![rule(vec![any(Groups, &["dev"])])], vec![]);
    assert_eq!(timeless.next_change(monday(0)), Timestamp::MAX);
    assert!(!timeless.reads_client_address());
}

#[test]
fn a_test_must_fit_its_attribute() {
    let networks = TestSpec::In(vec!["10.0.0.0/8".parse().unwrap()]);
    for (attribute, test) in [
        (Groups, networks.clone()),
        (Time, networks),
        (Addresses, office().test),
        (Addresses, TestSpec::Any(strings(&["10.0.0.1"]))),
        (Time, TestSpec::All(strings(&["08:00"]))),
    ] {
        assert_eq!(fault(ConditionSpec { attribute, test }), PolicyProblem::TestKind);
    }
    assert_eq!(fault(within(&[])), PolicyProblem::EmptyList);
    for attribute in [Addresses, Time] {
        assert_eq!(fault(present(attribute)), PolicyProblem::AlwaysPresent);
    }
    let always = ConditionSpec { attribute: Time, test: TestSpec::Within(WindowSpec::default()) };
    assert_eq!(fault(always), PolicyProblem::TimeAlways);
}

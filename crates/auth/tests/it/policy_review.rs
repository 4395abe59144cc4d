//! Access reviews: what Kubernetes is asked about a request, and what its answers lead to.

use std::cell::RefCell;

use auth::decide::explain::NoTrace;
use auth::decide::{Denial, MatchedRoute, Permit, ReviewAnswers, RuleContext, decide, decide_in};
use auth::identity::Facts;
use auth::policy::review::{
    NameSource, OwnedReviewQuestion, ReviewAttributes, ReviewImpossible, ReviewQuestion, ReviewSet,
    ReviewSpec, ReviewSubject, ReviewTemplate, TemplateFault,
};
use auth::policy::route::{PathMatch, RouteMatch, RouteTable};
use auth::policy::rule::{Attribute, Policy, RuleSet};
use auth::request::{Canonical, Field};

use crate::fixtures::{self, NOW, any, facts, identity, rule, rules};

/// Answers from a list, and records the questions.
#[derive(Default)]
struct Oracle {
    says: Option<bool>,
    asked: RefCell<Vec<OwnedReviewQuestion>>,
}

impl ReviewAnswers for Oracle {
    fn verdict(&self, question: &ReviewQuestion<'_>) -> Option<bool> {
        self.asked.borrow_mut().push(question.clone().into_owned());
        self.says
    }
}

fn resource() -> ReviewAttributes<String> {
    ReviewAttributes::Resource {
        namespace: Some("{path.ns}".into()),
        verb: "{method}".into(),
        group: Some("kubeflow.org".into()),
        version: Some("v1".into()),
        resource: "notebooks".into(),
        subresource: None,
        name: Some("{path.name}".into()),
    }
}

fn named(namespace: &str) -> ReviewAttributes<String> {
    match resource() {
        ReviewAttributes::Resource { verb, group, version, resource, subresource, .. } => {
            ReviewAttributes::Resource {
                namespace: Some(namespace.into()),
                verb,
                group,
                version,
                resource,
                subresource,
                name: None,
            }
        }
        other @ ReviewAttributes::NonResource { .. } => other,
    }
}

const CAPTURES: [&str; 2] = ["ns", "name"];

fn template(attributes: ReviewAttributes<String>, subject: ReviewSubject) -> ReviewTemplate {
    let captures = CAPTURES.map(str::to_owned);
    ReviewTemplate::build(&ReviewSpec { attributes, subject }, &captures).expect("sound")
}

fn request<'a>(method: &'a str, target: &'a str) -> Canonical<'a> {
    fixtures::request(method, "app.test", target)
}

fn table() -> RouteTable {
    let path = PathMatch::Template("/notebook/{ns}/{name}".into());
    RouteTable::build(vec![RouteMatch { name: "n".into(), path, ..RouteMatch::default() }]).expect("sound")
}

/// Decides with an oracle; returns the verdict, and the questions.
fn decided(
    policy: &Policy,
    (method, target): (&str, &str),
    fields: &[Field<'_>],
    facts: &Facts,
    says: Option<bool>,
) -> (Result<(), Denial>, Vec<OwnedReviewQuestion>) {
    let (table, request, oracle) = (table(), request(method, target), Oracle { says, ..Oracle::default() });
    let court = RuleContext { fields, captures: table.captures(0, &request), reviews: &oracle, client: None };
    let verdict =
        decide_in(&court, MatchedRoute { index: 0, policy }, &request, Some(facts), NOW, &mut NoTrace);
    let verdict = verdict.map(|_: Permit<'_>| ());
    (verdict, oracle.asked.into_inner())
}

fn reviewed(attributes: ReviewAttributes<String>) -> Policy {
    Policy::Rules(RuleSet::with_reviews_only(template(attributes, ReviewSubject::default())))
}

const NOTEBOOK: (&str, &str) = ("GET", "/notebook/team-a/mine?x=y");

fn texts(question: &OwnedReviewQuestion) -> Vec<Option<&str>> {
    question.attributes.texts().into_iter().map(|part| part.map(|part| &**part)).collect()
}

#[test]
fn a_question_says_what_the_request_says() {
    let (verdict, asked) = decided(&reviewed(resource()), NOTEBOOK, &[], &facts(), Some(true));
    assert_eq!(verdict, Ok(()));
    let [question] = &asked[..] else { panic!("{asked:?}") };
    let expected = [
        Some("team-a"),
        Some("get"),
        Some("kubeflow.org"),
        Some("v1"),
        Some("notebooks"),
        None,
        Some("mine"),
    ];
    assert_eq!(texts(question), expected);
    assert_eq!(&*question.user, "alice");
    assert!(question.groups.iter().any(|group| **group == *"system:authenticated"));
}

#[test]
fn no_is_no_and_unknown_is_neither() {
    let policy = reviewed(resource());
    assert_eq!(decided(&policy, NOTEBOOK, &[], &facts(), Some(false)).0, Err(Denial::ReviewDenied));
    let (verdict, asked) = decided(&policy, NOTEBOOK, &[], &facts(), None);
    assert_eq!(verdict, Err(Denial::ReviewPending(asked)));
    assert_eq!(Denial::ReviewDenied.answer().status, 403);
    assert_eq!(Denial::ReviewPending(Vec::new()).answer().status, 503);
    let request = request("GET", "/");
    assert!(matches!(
        decide(&policy, 0, &request, Some(&facts()), NOW, &mut NoTrace),
        Err(Denial::ReviewImpossible(_))
    ));
    assert_eq!(decide(&policy, 0, &request, None, NOW, &mut NoTrace).unwrap_err(), Denial::Unauthenticated);
}

#[test]
fn rules_decide_first() {
    let with = |allow: Vec<_>, deny: Vec<_>| {
        let template = template(resource(), ReviewSubject::default());
        Policy::Rules(rules(allow, deny).with_reviews(template))
    };
    let allowed = with(vec![rule(vec![any(Attribute::Groups, &["dev"])])], vec![]);
    let (verdict, asked) = decided(&allowed, NOTEBOOK, &[], &facts(), None);
    assert_eq!((verdict, asked.len()), (Ok(()), 0), "an allow rule needs no call");
    let denied = with(
        vec![rule(vec![any(Attribute::Groups, &["x"])])],
        vec![rule(vec![any(Attribute::Users, &["alice"])])],
    );
    let (verdict, asked) = decided(&denied, NOTEBOOK, &[], &facts(), Some(true));
    assert!(matches!(verdict, Err(Denial::Forbidden { deny_rule: Some(0) })) && asked.is_empty());
    let open = with(vec![rule(vec![any(Attribute::Groups, &["x"])])], vec![]);
    assert_eq!(decided(&open, NOTEBOOK, &[], &facts(), Some(true)).0, Ok(()));
}

#[test]
fn methods_are_verbs_and_some_are_none() {
    let verb = |attributes: ReviewAttributes<String>, method: &str| {
        let (verdict, asked) =
            decided(&reviewed(attributes), (method, "/notebook/a/b"), &[], &facts(), Some(true));
        verdict.map(|()| asked[0].attributes.texts()[1].map(ToString::to_string).unwrap())
    };
    for (method, expected) in [
        ("GET", "get"),
        ("HEAD", "get"),
        ("POST", "create"),
        ("PUT", "update"),
        ("PATCH", "patch"),
        ("DELETE", "delete"),
    ] {
        assert_eq!(verb(resource(), method).unwrap(), expected);
    }
    for method in ["OPTIONS", "PROPFIND", "LIST"] {
        assert_eq!(verb(resource(), method), Err(Denial::ReviewImpossible(ReviewImpossible::Method)));
    }
    let path = || ReviewAttributes::NonResource { path: "{path}".into(), verb: "{method}".into() };
    assert_eq!(verb(path(), "POST").unwrap(), "post");
    let (_, asked) = decided(&reviewed(path()), ("GET", "/notebook/a/b?c"), &[], &facts(), Some(true));
    assert_eq!(asked[0].attributes.texts()[0].map(|text| &**text), Some("/notebook/a/b"));
}

#[test]
fn what_renders_empty_denies() {
    let query = reviewed(named("{query.ns}"));
    for target in ["/notebook/a/b", "/notebook/a/b?ns=", "/notebook/a/b?ns", "/notebook/a/b?other=x"] {
        let (verdict, asked) = decided(&query, ("GET", target), &[], &facts(), Some(true));
        assert!(
            matches!(verdict, Err(Denial::ReviewImpossible(ReviewImpossible::Missing(_)))),
            "{target}: {verdict:?}"
        );
        assert!(asked.is_empty(), "nobody is asked about all namespaces");
        assert_eq!(verdict.unwrap_err().answer().status, 400);
    }
    let header = reviewed(named("{header.x-namespace}"));
    for fields in [&[][..], &[Field { name: "X-Namespace", value: b"" }]] {
        let (verdict, _) = decided(&header, NOTEBOOK, fields, &facts(), Some(true));
        assert!(matches!(verdict, Err(Denial::ReviewImpossible(ReviewImpossible::Missing(_)))));
    }
}

#[test]
fn a_value_that_reads_differently_elsewhere_denies() {
    let query = reviewed(named("{query.ns}"));
    for target in ["?ns=a%2Fb", "?ns=%20a", "?ns=a%0A", "?ns=a%25"] {
        let target = format!("/notebook/a/b{target}");
        let (verdict, _) = decided(&query, ("GET", &target), &[], &facts(), Some(true));
        assert!(
            matches!(verdict, Err(Denial::ReviewImpossible(ReviewImpossible::Unusable(_)))),
            "{target}: {verdict:?}"
        );
    }
    // The service may read the end of the path as the query.
    for target in ["?ns=a%00", "?ns=a&q=%E9", "?ns=a&q=100%", "%3Fns=b?ns=a", "%253Fns=b?ns=a"] {
        let target = format!("/notebook/a/b{target}");
        let (verdict, asked) = decided(&query, ("GET", &target), &[], &facts(), Some(true));
        assert!(matches!(verdict, Err(Denial::UnreadableQuery(_))), "{target}: {verdict:?}");
        assert!(asked.is_empty(), "{target}");
        assert_eq!(verdict.unwrap_err().answer().status, 400);
    }
    for target in ["?NS=b&ns=a", "?ns[]=b&ns=a", "?ns=a;ns=b"] {
        let target = format!("/notebook/a/b{target}");
        let (verdict, _) = decided(&query, ("GET", &target), &[], &facts(), Some(true));
        assert!(matches!(verdict, Err(Denial::AmbiguousParameter { .. })), "{target}: {verdict:?}");
    }
    let path = reviewed(resource());
    let (verdict, _) = decided(&path, ("GET", "/notebook/a%25b/c"), &[], &facts(), Some(true));
    assert!(verdict.is_err(), "{verdict:?}");
}

#[test]
fn a_header_that_the_service_may_not_get_denies() {
    let header = reviewed(named("{header.x-namespace}"));
    let own = Field { name: "X-Namespace", value: b"mine" };
    for (more, what) in [
        (Field { name: "X_Namespace", value: b"victim" }, "another spelling"),
        (Field { name: "Connection", value: b"close, x-namespace" }, "kept to this hop"),
    ] {
        let (verdict, asked) = decided(&header, NOTEBOOK, &[own, more], &facts(), Some(true));
        assert!(
            matches!(verdict, Err(Denial::ReviewImpossible(ReviewImpossible::Unusable(_)))),
            "{what}: {verdict:?}"
        );
        assert!(asked.is_empty());
    }
    let (verdict, _) = decided(&header, NOTEBOOK, &[own], &facts(), Some(true));
    assert_eq!(verdict, Ok(()));
}

#[test]
fn a_path_with_two_readings_is_not_asked_about() {
    for target in ["/notebook/victim;x/mine", "/notebook/team,a/mine", "/notebook/a*/mine"] {
        let (verdict, asked) = decided(&reviewed(resource()), ("GET", target), &[], &facts(), Some(true));
        assert!(verdict.is_err() && asked.is_empty(), "{target}: {verdict:?}");
    }
    let path = reviewed(ReviewAttributes::NonResource { path: "{path}".into(), verb: "get".into() });
    let (verdict, _) = decided(&path, ("GET", "/notebook/a;x/b"), &[], &facts(), Some(true));
    assert!(matches!(verdict, Err(Denial::ReviewImpossible(ReviewImpossible::Unusable(_)))), "{verdict:?}");
}

#[test]
fn a_path_is_asked_about_if_all_its_readings_give_the_same_values() {
    let namespace = reviewed(named("{path.ns}"));
    for target in ["/notebook/team-a/Report%20%233.ipynb", "/notebook/team-a/x;v=1", "/notebook/team-a/%40x"]
    {
        let (verdict, asked) = decided(&namespace, ("GET", target), &[], &facts(), Some(true));
        assert_eq!((verdict, asked.len()), (Ok(()), 1), "{target}");
        assert_eq!(texts(&asked[0])[0], Some("team-a"));
    }
    for target in
        ["/notebook/team-a%2Fx/y", "/notebook/team-a;x/y", "/notebook//team-a/y", "/notebook/team-a%23/y"]
    {
        let (verdict, asked) = decided(&namespace, ("GET", target), &[], &facts(), Some(true));
        assert!(verdict.is_err() && asked.is_empty(), "{target}: {verdict:?}");
    }
}

#[test]
fn every_value_of_a_repeated_one_is_asked_about() {
    let query = reviewed(named("{query.ns}"));
    let target = ("GET", "/notebook/a/b?ns=one&ns=two&ns=one");
    let (verdict, asked) = decided(&query, target, &[], &facts(), Some(true));
    let asked: Vec<_> = asked.iter().map(|question| texts(question)[0].unwrap()).collect();
    assert_eq!((verdict, asked), (Ok(()), vec!["one", "two", "one"]));
    assert_eq!(decided(&query, target, &[], &facts(), Some(false)).0, Err(Denial::ReviewDenied));
    let many = format!("/notebook/a/b?{}", vec!["ns=x"; 17].join("&"));
    assert_eq!(
        decided(&query, ("GET", &many), &[], &facts(), Some(true)).0,
        Err(Denial::ReviewImpossible(ReviewImpossible::TooMany))
    );
    let header = reviewed(named("team-{header.x-ns}"));
    let fields = [Field { name: "x-ns", value: b"a" }, Field { name: "X-NS", value: b"b" }];
    let (_, asked) = decided(&header, NOTEBOOK, &fields, &facts(), Some(true));
    let asked: Vec<_> = asked.iter().map(|question| texts(question)[0].unwrap()).collect();
    assert_eq!(asked, ["team-a", "team-b"]);
}

#[test]
fn nobody_becomes_somebody_of_the_cluster() {
    let subject = |change: fn(&mut ReviewSubject)| {
        let mut subject =
            ReviewSubject { own_authorities: vec!["cluster".into()], ..ReviewSubject::default() };
        change(&mut subject);
        Policy::Rules(RuleSet::with_reviews_only(template(resource(), subject)))
    };
    let somebody = |issuer: &str, user: &str, groups: &[&str]| Facts {
        identity: auth::identity::Identity {
            issuer: issuer.into(),
            user: Some(user.into()),
            groups: groups.iter().map(|group| (*group).into()).collect(),
            claims: vec![("extra.scopes".into(), vec!["x".into()]), ("uid".into(), vec!["7".into()])],
            ..identity()
        },
        ..facts()
    };
    let ask = |policy: &Policy, facts: &Facts| decided(policy, NOTEBOOK, &[], facts, Some(true));
    let plain = subject(|_| {});
    let (verdict, _) = ask(&plain, &somebody("main", "system:admin", &[]));
    assert_eq!(verdict, Err(Denial::ReviewImpossible(ReviewImpossible::Caller)));
    let (_, asked) = ask(&plain, &somebody("main", "ada", &["system:masters", "dev"]));
    assert_eq!(asked[0].groups, ["dev".into(), "system:authenticated".into()]);
    assert!(
        asked[0].extra.is_empty() && asked[0].uid.is_none(),
        "what others call extra is not the cluster's"
    );
    let (_, asked) = ask(&plain, &somebody("cluster", "system:serviceaccount:a:b", &["system:masters"]));
    assert_eq!(&*asked[0].user, "system:serviceaccount:a:b");
    assert_eq!(asked[0].groups, ["system:masters".into()], "the cluster's own names are its own");
    assert_eq!((asked[0].extra.len(), asked[0].uid.as_deref()), (1, Some("7")));
    let prefixed =
        subject(|subject| (subject.user_prefix, subject.group_prefix) = ("oidc:".into(), "oidc:".into()));
    let (_, asked) = ask(&prefixed, &somebody("main", "system:admin", &["system:masters"]));
    assert_eq!(&*asked[0].user, "oidc:system:admin");
    assert_eq!(asked[0].groups, ["oidc:system:masters".into(), "system:authenticated".into()]);
    let by_mail = subject(|subject| subject.name = NameSource::Email);
    let nameless = Facts { identity: auth::identity::Identity { email: None, ..identity() }, ..facts() };
    assert_eq!(ask(&by_mail, &nameless).0, Err(Denial::ReviewImpossible(ReviewImpossible::Caller)));
}

#[test]
fn a_rewrite_keeps_the_answer_and_another_guard_asks_its_own() {
    let policy = reviewed(resource());
    let (table, request) = (table(), request("GET", NOTEBOOK.1));
    let (yes, no) =
        (Oracle { says: Some(true), ..Oracle::default() }, Oracle { says: Some(false), ..Oracle::default() });
    let facts = facts();
    let permit = || {
        let court =
            RuleContext { fields: &[], captures: table.captures(0, &request), reviews: &yes, client: None };
        decide_in(
            &court,
            MatchedRoute { index: 0, policy: &policy },
            &request,
            Some(&facts),
            NOW,
            &mut NoTrace,
        )
        .unwrap()
    };
    let rewritten = permit().rewrite(&policy, "/mine", NOW, &mut NoTrace).unwrap();
    assert_eq!(rewritten.request().path(), "/mine");
    let court =
        RuleContext { fields: &[], captures: table.captures(0, &request), reviews: &no, client: None };
    assert_eq!(rewritten.check_policy(&court, &policy, NOW, &mut NoTrace).unwrap_err(), Denial::ReviewDenied);
}

#[test]
fn templates_that_mean_nothing_are_refused() {
    let fault = |text: &str| {
        let spec = ReviewSpec { attributes: named(text), subject: ReviewSubject::default() };
        let captures = CAPTURES.map(str::to_owned);
        ReviewTemplate::build(&spec, &captures).map(|_| ()).map_err(|faults| faults[0].1.clone())
    };
    assert_eq!(fault(""), Err(TemplateFault::Empty));
    for text in ["{", "}", "a{b", "a}b", "{a}}"] {
        assert!(matches!(fault(text), Err(TemplateFault::Braces(_) | TemplateFault::Unknown(_))), "{text}");
    }
    for text in ["{}", "{x}", "{query}", "{query.}", "{header.a b}", "{cookie.x}"] {
        assert!(matches!(fault(text), Err(TemplateFault::Unknown(_))), "{text}");
    }
    assert_eq!(fault("{path.nope}"), Err(TemplateFault::NoCapture("nope".into())));
    assert!(matches!(fault("{query.a}-{query.b}"), Err(TemplateFault::Several(_))));
    for text in ["fixed", "{path.ns}", "{query.a}-{query.a}", "x-{path.ns}-{path.name}", "{header.x-ns}"] {
        assert_eq!(fault(text), Ok(()), "{text}");
    }
}

/// Answers by the namespace that a question is about; other namespaces are unknown.
struct ByNamespace(&'static [(&'static str, bool)]);

impl ReviewAnswers for ByNamespace {
    fn verdict(&self, question: &ReviewQuestion<'_>) -> Option<bool> {
        let namespace = question.attributes.texts()[0].map(|text| &**text)?;
        self.0.iter().find(|(known, _)| *known == namespace).map(|(_, says)| *says)
    }
}

/// The verdict of several reviews, each about a namespace. A pending one gives the namespaces that
/// are asked about.
fn verdict_of(
    set: fn(Box<[ReviewTemplate]>) -> ReviewSet,
    namespaces: &[&str],
    answers: &'static [(&'static str, bool)],
) -> Result<(), Result<Vec<String>, Denial>> {
    let template = |namespace: &&str| template(named(namespace), ReviewSubject::default());
    let policy = Policy::Rules(RuleSet::with_reviews_only(set(namespaces.iter().map(template).collect())));
    let (table, request, answers, facts) =
        (table(), request("GET", NOTEBOOK.1), ByNamespace(answers), facts());
    let captures = table.captures(0, &request);
    let court = RuleContext { fields: &[], captures, reviews: &answers, client: None };
    let matched = MatchedRoute { index: 0, policy: &policy };
    match decide_in(&court, matched, &request, Some(&facts), NOW, &mut NoTrace) {
        Ok(_) => Ok(()),
        Err(Denial::ReviewPending(asked)) => {
            Err(Ok(asked.iter().map(|question| texts(question)[0].unwrap().to_owned()).collect()))
        }
        Err(denial) => Err(Err(denial)),
    }
}

#[test]
fn all_reviews_need_a_yes() {
    let all = |answers| verdict_of(ReviewSet::All, &["a", "b"], answers);
    assert_eq!(all(&[("a", true), ("b", true)]), Ok(()));
    assert_eq!(all(&[("a", true), ("b", false)]), Err(Err(Denial::ReviewDenied)));
    assert_eq!(all(&[("a", false)]), Err(Err(Denial::ReviewDenied)), "one no is enough");
    assert_eq!(all(&[("b", false)]), Err(Err(Denial::ReviewDenied)));
    assert_eq!(all(&[]), Err(Ok(vec!["a".into(), "b".into()])));
    assert_eq!(all(&[("a", true)]), Err(Ok(vec!["b".into()])));
    let impossible = verdict_of(ReviewSet::All, &["a", "{query.ns}"], &[("a", true)]);
    assert!(matches!(impossible, Err(Err(Denial::ReviewImpossible(_)))), "{impossible:?}");
}

#[test]
fn any_review_with_a_yes_is_enough() {
    let any = |answers| verdict_of(ReviewSet::Any, &["a", "b"], answers);
    assert_eq!(any(&[("a", true)]), Ok(()));
    assert_eq!(any(&[("b", true)]), Ok(()), "the first need not be asked");
    assert_eq!(any(&[("a", false), ("b", true)]), Ok(()));
    assert_eq!(any(&[("a", false), ("b", false)]), Err(Err(Denial::ReviewDenied)));
    assert_eq!(any(&[]), Err(Ok(vec!["a".into()])), "one after the other");
    assert_eq!(any(&[("a", false)]), Err(Ok(vec!["b".into()])));
    assert_eq!(any(&[("b", false)]), Err(Ok(vec!["a".into()])));
    let with_impossible = |answers| verdict_of(ReviewSet::Any, &["{query.ns}", "b"], answers);
    assert_eq!(with_impossible(&[("b", true)]), Ok(()));
    assert_eq!(with_impossible(&[("b", false)]), Err(Err(Denial::ReviewDenied)));
    let none = verdict_of(ReviewSet::Any, &["{query.ns}", "{query.other}"], &[]);
    assert!(matches!(none, Err(Err(Denial::ReviewImpossible(_)))), "{none:?}");
}

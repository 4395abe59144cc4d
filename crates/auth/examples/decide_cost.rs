//! Cost of a cached decision: nanoseconds for parsing a request, finding its route and deciding.
//!
//! `cargo run --release -p auth --example decide_cost`

#![allow(clippy::print_stdout, reason = "the numbers are the output")]

use std::hint::black_box;
use std::time::Instant;

use auth::decide::{decide, explain::NoTrace};
use auth::headers::StripSet;
use auth::identity::{CredentialKind, Facts, Identity};
use auth::policy::PolicyFault;
use auth::policy::route::{PathMatch, RouteMatch, RouteTable};
use auth::policy::rule::{Attribute, ConditionSpec, Policy, RuleSet, RuleSpec, TestSpec, Vocabulary};
use auth::request::{Canonical, Field, RawRequest, Scheme};
use auth::time::Timestamp;

const ROUNDS: u32 = 9;
const TURNS: u32 = 200_000;

/// Prints the median over the rounds, in nanoseconds per turn.
fn measure(name: &str, mut turn: impl FnMut()) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..TURNS).for_each(|_| turn());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(TURNS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<44} {:>8.1} ns", rounds[rounds.len() / 2]);
}

fn route(name: String, host: &str, path: PathMatch) -> RouteMatch {
    RouteMatch { name, hosts: vec![host.into()], path, ..RouteMatch::default() }
}

/// Prefixes, templates and exact paths on an exact and a wildcard host.
fn table(services: usize) -> Result<RouteTable, Vec<PolicyFault>> {
    let routes = (0..services).flat_map(|i| {
        [
            route(format!("p{i}"), "api.example.com", PathMatch::Prefix(format!("/svc{i}"))),
            route(format!("e{i}"), "api.example.com", PathMatch::Exact(format!("/svc{i}/status"))),
            route(
                format!("t{i}"),
                "api.example.com",
                PathMatch::Template(format!("/v1/{{ns}}/svc{i}/{{id}}")),
            ),
            route(format!("w{i}"), "*.example.com", PathMatch::Prefix(format!("/svc{i}"))),
        ]
    });
    RouteTable::build(routes.collect())
}

fn rules() -> Result<Policy, Vec<PolicyFault>> {
    let condition = |attribute, values: &[&str]| ConditionSpec {
        attribute,
        test: TestSpec::Any(values.iter().map(ToString::to_string).collect()),
    };
    let rule = |conditions| RuleSpec { authenticated: false, conditions };
    let allow = vec![
        rule(vec![condition(Attribute::Groups, &["admins"])]),
        rule(vec![
            condition(Attribute::Groups, &["dev", "ops"]),
            condition(Attribute::Methods, &["GET", "POST"]),
        ]),
    ];
    let deny = vec![rule(vec![condition(Attribute::Users, &["mallory"])])];
    RuleSet::build(allow, deny, &Vocabulary { issuers: &[], claims: &[] }).map(Policy::Rules)
}

fn facts() -> Facts {
    let text = |s: &str| -> Box<str> { s.into() };
    let identity = Identity {
        kind: CredentialKind::Jwt,
        issuer: text("main"),
        subject: text("6c1f2f0e-9b1e-4f0a-8a55-0a4c7d5f8f10"),
        user: Some(text("alice")),
        email: Some(text("alice@example.com")),
        client: Some(text("web")),
        groups: ["offline_access", "uma_authorization", "default-roles", "ops"].map(text).into(),
        groups_elsewhere: false,
        scopes: ["openid", "profile"].map(text).into(),
        claims: Vec::new(),
    };
    Facts { identity, expires: Timestamp::MAX, not_before: Timestamp::from_secs(0) }
}

const NAMES: [&str; 10] = [
    "host",
    "user-agent",
    "accept",
    "accept-encoding",
    "authorization",
    "content-type",
    "content-length",
    "cookie",
    "x-request-id",
    "x-forwarded-for",
];

fn main() -> Result<(), Vec<PolicyFault>> {
    let raw = |target: &'static str| RawRequest {
        method: "GET",
        scheme: Scheme::Https,
        authority: None,
        host: Some(b"api.example.com"),
        target: target.as_bytes(),
    };
    let (facts, policy, now) = (facts(), rules()?, Timestamp::from_secs(1_800_000_000));
    let fields = NAMES.map(|name| Field { name, value: b"value" });
    let prefix = raw("/svc3/v1/namespaces/default/pods?limit=500&watch=true");
    let template = raw("/v1/default/svc3/6c1f2f0e-9b1e-4f0a-8a55-0a4c7d5f8f10");
    let escaped = raw("/svc3/name%20with%c3%a4/%7Euser");

    measure("parse, canonical target of 53 bytes", || {
        black_box(Canonical::parse(black_box(&prefix)).ok());
    });
    measure("parse, target with escapes to normalise", || {
        black_box(Canonical::parse(black_box(&escaped)).ok());
    });
    for services in [5, 1000] {
        let table = table(services)?;
        let count = table.len();
        for (kind, raw) in [("prefix", &prefix), ("template", &template)] {
            let Ok(request) = Canonical::parse(raw) else { continue };
            measure(&format!("find by {kind} among {count} routes"), || {
                black_box(table.find(black_box(&request), &fields));
            });
        }
    }
    let table = table(5)?;
    if let Ok(request) = Canonical::parse(&prefix) {
        measure("decide, two allow rules and one deny rule", || {
            black_box(decide(&policy, 0, black_box(&request), Some(&facts), now, &mut NoTrace).is_ok());
        });
    }
    measure("parse + find + decide", || {
        let Ok(request) = Canonical::parse(black_box(&prefix)) else { return };
        let route = table.find(&request, &fields).unwrap_or_default();
        black_box(decide(&policy, route, &request, Some(&facts), now, &mut NoTrace).is_ok());
    });
    let strip = StripSet::new(["x-forwarded-user"]);
    measure("strip set, ten common fields", || {
        black_box(NAMES.iter().filter(|name| strip.strips(black_box(name))).count());
    });
    Ok(())
}

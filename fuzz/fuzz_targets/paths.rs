//! Paths that servers read differently: no server reaches a resource by a decision about another.
//!
//! Input: the steps of a server, one per byte, and the target, on two lines.
//!
//! Checked for every accepted request whose path the server accepts too:
//!
//! - What the server reads is one of the readings.
//! - If the request matches a route, what the server reads matches the same one.
//! - If a review about a part of the path permits the request, it was about the part that the
//!   server reads.
//! - After a prefix is stripped, the server reads a path below the same prefix.

#![no_main]

#[path = "../../crates/auth/tests/it/model_server.rs"]
mod model_server;

use std::sync::LazyLock;

use auth::decide::explain::NoTrace;
use auth::decide::{MatchedRoute, ReviewAnswers, RuleContext, decide_in};
use auth::identity::{CredentialKind, Facts, Identity};
use auth::policy::review::{ReviewAttributes, ReviewQuestion, ReviewSpec, ReviewSubject, ReviewTemplate};
use auth::policy::route::{PathMatch, RouteMatch, RouteTable};
use auth::policy::rule::{Policy, RuleSet};
use auth::request::{Canonical, RawRequest, Scheme};
use auth::time::Timestamp;
use libfuzzer_sys::fuzz_target;
use model_server::{ServerStep, read_path};

/// Index of the route whose captured namespace is reviewed.
const REVIEWED: usize = 3;

static TABLE: LazyLock<RouteTable> = LazyLock::new(|| {
    let paths = [
        PathMatch::Prefix("/".into()),
        PathMatch::Prefix("/admin".into()),
        PathMatch::Exact("/a/b".into()),
        PathMatch::Template("/v/{ns}/{rest...}".into()),
        PathMatch::Template("/{a}/x/{b}".into()),
        PathMatch::Prefix("/@a".into()),
    ];
    let routes = paths.into_iter().map(|path| RouteMatch { path, ..RouteMatch::default() });
    RouteTable::build(routes.collect()).expect("the routes are distinct")
});

static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let attributes = ReviewAttributes::NonResource { path: "{path.ns}".into(), verb: "get".into() };
    let spec = ReviewSpec { attributes, subject: ReviewSubject::default() };
    let captures = ["ns".to_owned(), "rest".to_owned()];
    Policy::Rules(RuleSet::with_reviews_only(
        ReviewTemplate::build(&spec, &captures).expect("the review is valid"),
    ))
});

/// Permits whatever is about namespace `a`.
struct OnlyA;

impl ReviewAnswers for OnlyA {
    fn verdict(&self, question: &ReviewQuestion<'_>) -> Option<bool> {
        Some(matches!(&question.attributes, ReviewAttributes::NonResource { path, .. } if path == "a"))
    }
}

fuzz_target!(|data: &[u8]| {
    let mut lines = data.splitn(2, |&byte| byte == b'\n');
    let steps = lines.next().unwrap_or_default();
    let target = lines.next().unwrap_or_default();
    let server: Vec<ServerStep> = steps
        .iter()
        .take(8)
        .map(|&byte| ServerStep::ALL[usize::from(byte) % ServerStep::ALL.len()])
        .collect();
    let raw = RawRequest {
        method: "GET",
        scheme: Scheme::Https,
        authority: None,
        host: Some(b"a.example"),
        target,
    };
    let Ok(request) = Canonical::parse(&raw) else { return };
    if request.path() == "*" {
        return;
    }
    let Some(read) = read_path(&server, request.forwarded_path()) else { return };
    let others: Vec<_> = request.other_requests().collect();
    let at_server = if read == request.path() {
        // The path itself, as the only reading.
        None
    } else {
        let found = others.iter().find(|other| other.path() == read);
        Some(found.unwrap_or_else(|| panic!("{read:?} is not among the readings of {:?}", request.path())))
    };

    let Some(route) = TABLE.find(&request, &[]) else { return };
    if let Some(at_server) = at_server {
        assert_eq!(TABLE.find(at_server, &[]), Some(route), "{read:?}");
    }
    let read_request = at_server.unwrap_or(&request);

    if route == REVIEWED {
        let identity = Identity {
            kind: CredentialKind::Jwt,
            issuer: "main".into(),
            subject: "ada".into(),
            user: None,
            email: None,
            client: None,
            groups: Vec::new(),
            groups_elsewhere: false,
            scopes: Vec::new(),
            claims: Vec::new(),
        };
        let facts =
            Facts { identity, not_before: Timestamp::from_secs(0), expires: Timestamp::from_secs(10) };
        let context = RuleContext {
            fields: &[],
            captures: TABLE.captures(route, &request),
            reviews: &OnlyA,
            client: None,
        };
        let matched = MatchedRoute { index: route, policy: &POLICY };
        let now = Timestamp::from_secs(1);
        if decide_in(&context, matched, &request, Some(&facts), now, &mut NoTrace).is_ok() {
            assert_eq!(TABLE.captures(route, read_request).get("ns"), Some("a"), "{read:?}");
        }
    }

    if let Ok(Some(rest)) = request.forwarded_below("/admin") {
        assert!(read_request.path_below("/admin").is_some(), "{read:?} is not below the prefix");
        // What is left may read as an authority, and is refused then.
        if let Ok(stripped) = request.rewritten(rest) {
            assert!(read_path(&server, stripped.forwarded_path()).is_none_or(|read| !read.starts_with("//")));
        }
    }
});

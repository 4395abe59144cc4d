//! Reviews: `-openshift-sar`, `-openshift-sar-by-host` and `-openshift-delegate-urls`.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Value;

use super::NAME;
use crate::draft::{DraftTable, inline};
use crate::input_fault::InputFault;
use crate::settings::{Given, ProgramSettings};

/// The reviews that requests need.
pub(super) struct Reviews {
    /// Those of people, all of which are needed.
    people: Vec<Value>,
    people_from: String,
    /// Whether a setting that has no equal says who may: then nobody passes as a person.
    is_closed: bool,
    /// Path prefixes with the review of tokens, and from what they came. Longer ones first.
    pub(super) delegated: Vec<Delegation>,
}

/// A path prefix, the review of its tokens, and from what it came.
pub(super) type Delegation = (String, Value, String);

/// A review as `OpenShift`'s former API has it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LegacyReview {
    namespace: String,
    verb: String,
    resource: String,
    resource_name: String,
    #[serde(rename = "resourceAPIGroup")]
    api_group: String,
    #[serde(rename = "resourceAPIVersion")]
    api_version: String,
    path: String,
    #[serde(rename = "isNonResourceURL")]
    is_non_resource: bool,
}

/// Attributes of a path prefix.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Delegated {
    namespace: String,
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    name: String,
}

/// One, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    More(Vec<LegacyReview>),
    One(Box<LegacyReview>),
}

impl Reviews {
    pub(super) fn take(settings: &mut ProgramSettings) -> Result<Self, InputFault> {
        let (mut people, mut people_from) = (Vec::new(), String::new());
        if let Some(given) = settings.text("openshift-sar") {
            let reviews = match parsed(&given)? {
                OneOrMore::More(reviews) => reviews,
                OneOrMore::One(review) => vec![*review],
            };
            people = reviews.iter().map(LegacyReview::value).collect();
            people_from.clone_from(&given.origin);
            settings.different(
                &given,
                "it is asked on every request with a session, and cached, not once at the sign-in",
            );
        }
        let mut is_closed = false;
        for flag in ["email-domain", "authenticated-emails-file"] {
            for given in settings.list(flag) {
                if given.value == "*" {
                    settings.translated(&given);
                    continue;
                }
                is_closed = true;
                settings.no_equal(
                    &given,
                    "OpenShift knows no addresses, so people are refused: write rules with `users` or `groups` in place of `nobody`",
                );
            }
        }
        if let Some(given) = settings.text("openshift-sar-by-host") {
            is_closed = true;
            settings.no_equal(&given, "people are refused until you write a route for each host with `hosts` and its own `access_review`");
        }
        let mut delegated = Vec::new();
        if let Some(given) = settings.text("openshift-delegate-urls") {
            let urls: BTreeMap<String, Delegated> = parsed(&given)?;
            delegated = urls
                .iter()
                .map(|(path, review)| (path.clone(), review.value(), given.origin.clone()))
                .collect();
            // The longest prefix counts.
            delegated.sort_by_key(|(path, ..)| std::cmp::Reverse(path.len()));
            settings.different(
                &given,
                "nobody passes without a credential, also where the review allows it to anonymous callers",
            );
        }
        Ok(Self { people, people_from, is_closed, delegated })
    }

    pub(super) fn are_needed(&self) -> bool {
        !self.people.is_empty() || !self.delegated.is_empty()
    }

    /// What a route needs that only people may use.
    pub(super) fn set_sessions(&self, table: &mut DraftTable) {
        if self.is_closed {
            table.set("policy", policy(nobody(), None), "closed: see the report");
            return;
        }
        match &self.people[..] {
            [] => {
                let rule = inline([("issuers", vec![NAME].into()), ("credentials", vec!["session"].into())]);
                table.set("policy", policy(rule, None), "whoever signs in");
            }
            reviews => {
                // A rule that allows would decide before the review.
                if !self.delegated.is_empty() {
                    table.set("policy", policy(nobody(), Some(PROGRAMS)), "no -openshift-delegate-urls here");
                }
                set_reviews(table, reviews, &self.people_from);
            }
        }
    }

    /// What a route needs that people and programs may use.
    pub(super) fn set_delegated(&self, table: &mut DraftTable, review: &Value) {
        let mut reviews = self.people.clone();
        let from = if self.is_closed {
            table.set("policy", policy(nobody(), Some(&["session"])), "people: see the report");
            "-openshift-delegate-urls"
        } else if reviews.is_empty() {
            let rule = inline([("credentials", vec!["session"].into())]);
            table.set("policy", policy(rule, None), "whoever signs in");
            "-openshift-delegate-urls"
        } else {
            // A review does not ask with what a caller came.
            "-openshift-sar and -openshift-delegate-urls: all are needed here"
        };
        if !reviews.contains(review) {
            reviews.push(review.clone());
        }
        set_reviews(table, if self.is_closed { std::slice::from_ref(review) } else { &reviews }, from);
    }
}

/// Credentials of programs.
const PROGRAMS: &[&str] = &["jwt", "opaque", "certificate", "basic"];

/// A rule that no caller meets.
fn nobody() -> Value {
    inline([("groups", vec!["nobody"].into())])
}

/// A policy with a rule that allows, and one that refuses callers with these credentials.
fn policy(rule: Value, refused: Option<&[&str]>) -> Value {
    let denied = refused.map(|kinds| {
        let kinds: Vec<Value> = kinds.iter().map(|kind| Value::from(*kind)).collect();
        ("deny", Value::Array(vec![inline([("credentials", Value::Array(kinds))])]))
    });
    inline([("allow", Value::Array(vec![rule]))].into_iter().chain(denied))
}

fn set_reviews(table: &mut DraftTable, reviews: &[Value], from: &str) {
    match reviews {
        [review] => table.set("access_review", review.clone(), from),
        reviews => table.set("access_reviews", inline([("all", Value::Array(reviews.to_vec()))]), from),
    };
}

fn parsed<T: for<'d> Deserialize<'d>>(given: &Given) -> Result<T, InputFault> {
    serde_json::from_str(&given.value)
        .map_err(|error| InputFault::File { name: given.origin.clone(), why: error.to_string() })
}

fn members(pairs: &[(&'static str, &str)]) -> Value {
    let pairs = pairs.iter().filter(|(_, text)| !text.is_empty());
    inline(pairs.map(|(key, text)| (*key, Value::from(*text))))
}

impl LegacyReview {
    fn value(&self) -> Value {
        if self.is_non_resource {
            return members(&[("path", &self.path), ("verb", &self.verb)]);
        }
        // `services/proxy` is a subresource.
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        members(&[
            ("resource", resource),
            ("subresource", subresource),
            ("api_group", &self.api_group),
            ("api_version", &self.api_version),
            ("namespace", &self.namespace),
            ("name", &self.resource_name),
            ("verb", &self.verb),
        ])
    }
}

impl Delegated {
    fn value(&self) -> Value {
        members(&[
            ("resource", &self.resource),
            ("subresource", &self.subresource),
            ("api_group", &self.group),
            ("api_version", &self.version),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("verb", if self.verb.is_empty() { "proxy" } else { &self.verb }),
        ])
    }
}

//! Whether Kubernetes says that somebody may: `SubjectAccessReviews`, remembered and asked for.
//!
//! Owns: the question in the API's words, what an answer means, how long it is believed, one asking however many wait. Does not
//! own: what is asked about a request (`auth::policy::review`), what follows (`auth::decide`), connections
//! ([`crate::outbound`]).
//!
//! Flow: `auth::decide` looks an answer up ([`Known`]); `Denial::Unreviewed` leads here ([`Reviewer::find_out`]), and to the same
//! decision again with what was found.
//!
//! An answer that cannot be had is 503. It is never remembered and never taken for a yes or a no.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use auth::decide::Reviews;
use auth::policy::review::{Attributes, OwnedQuestion, Question};
use auth::time::Timestamp;
use auth::token::json::{Document, Value};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use tokio::runtime::Handle;

use crate::cache::{
    self, DecisionCache, Generation, Known as Remembered, Landing, Lifetime, Scope, Secret, Usage, Weigh,
};
use crate::clock::Now;
use crate::config::{CacheLimits, Kubernetes};
use crate::outbound::{CallError, Outbound, Throttle};

/// Where reviews are made.
const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Looking up, waiting and asking, so often at most for one question.
const ROUNDS: usize = 4;

/// That somebody may.
#[derive(Debug)]
struct Allowed;

impl Weigh for Allowed {
    fn weight(&self) -> usize {
        64
    }
}

/// Why somebody may not, or nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum No {
    Refused,
    Unknown,
}

/// Asks the API server, and remembers.
pub struct Reviewer {
    config: Kubernetes,
    outbound: Outbound,
    cache: DecisionCache<Allowed, No>,
    scope: Scope,
    counts: Counts,
    told: Throttle,
}

#[derive(Debug, Default)]
struct Counts {
    allowed: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    busy: AtomicU64,
}

/// How reviews stand, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReviewStatus {
    /// Answered with yes.
    pub allowed: u64,
    /// Answered with no.
    pub refused: u64,
    /// Not answered.
    pub failed: u64,
    /// Not asked, because as many were under way as may be.
    pub busy: u64,
    /// What is remembered.
    pub remembered: Usage,
}

/// Why nobody knows.
#[derive(Debug, thiserror::Error)]
enum Silent {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("it answered {status}{hint}")]
    Status { status: StatusCode, hint: &'static str },
    #[error("the answer is no SubjectAccessReview with a status")]
    Unclear,
    #[error("the question cannot be written")]
    Question,
}

/// What is known at an instant, and what was found out for this very request.
pub struct Known<'k> {
    /// Who remembers.
    pub reviewer: &'k Reviewer,
    /// The instant.
    pub now: Now,
    /// What was found out.
    pub found: &'k [(OwnedQuestion, bool)],
}

impl Reviews for Known<'_> {
    fn verdict(&self, question: &Question<'_>) -> Option<bool> {
        let key = self.reviewer.key(question);
        match self.reviewer.cache.peek(key, self.now) {
            Some(Remembered::Fact(_)) => return Some(true),
            Some(Remembered::Denied(No::Refused)) => return Some(false),
            Some(Remembered::Denied(No::Unknown)) | None => {}
        }
        let found = self.found.iter().find(|(asked, _)| asked.borrowed() == *question);
        found.map(|(_, verdict)| *verdict)
    }
}

impl Reviewer {
    /// Remembers nothing yet.
    pub fn new(config: &Kubernetes, control: Handle, secret: &Secret, generation: Generation) -> Self {
        let limits = CacheLimits {
            bytes: config.cache_bytes,
            ttl: config.ttl,
            deny_ttl: config.deny_ttl,
            deny_entries: config.deny_entries,
        };
        Self {
            outbound: Outbound::new(&config.server, control),
            cache: DecisionCache::new(&limits, generation),
            scope: secret.scope(config.version, 0),
            counts: Counts::default(),
            told: Throttle::default(),
            config: config.clone(),
        }
    }

    /// Whether it asks the same server the same way, so that what it remembers still holds.
    pub fn is_for(&self, config: &Kubernetes) -> bool {
        self.config.version == config.version && self.config.server.tls_version == config.server.tls_version
    }

    /// How reviews stand.
    pub fn status(&self) -> ReviewStatus {
        let counts = &self.counts;
        ReviewStatus {
            allowed: counts.allowed.load(Relaxed),
            refused: counts.refused.load(Relaxed),
            failed: counts.failed.load(Relaxed),
            busy: counts.busy.load(Relaxed),
            remembered: self.cache.usage(),
        }
    }

    /// The answers to questions that are not known, up to the first no; `None` when one of them cannot be had.
    pub async fn find_out(
        &self,
        questions: Vec<OwnedQuestion>,
        now: impl Fn() -> Now,
    ) -> Option<Vec<(OwnedQuestion, bool)>> {
        let finding = async {
            let mut found = Vec::with_capacity(questions.len());
            for question in questions {
                let verdict = self.verdict(&question, &now).await?;
                found.push((question, verdict));
                if !verdict {
                    break; // one no is enough
                }
            }
            Some(found)
        };
        // Many questions of one request wait no longer than one may.
        tokio::time::timeout(self.config.server.timeout, finding).await.ok().flatten()
    }

    async fn verdict(&self, question: &OwnedQuestion, now: &impl Fn() -> Now) -> Option<bool> {
        let key = self.key(&question.borrowed());
        for _ in 0..ROUNDS {
            match self.cache.lookup(key, now()) {
                cache::Lookup::Hit(_) => return Some(true),
                cache::Lookup::Denied(No::Refused) => return Some(false),
                cache::Lookup::Denied(No::Unknown) => return None,
                cache::Lookup::Pending(flight) => match flight.land().await {
                    Landing::Known(_) => return Some(true),
                    Landing::Denied(No::Refused) => return Some(false),
                    Landing::Denied(No::Unknown) => return None,
                    Landing::Again => {}
                },
                cache::Lookup::Miss(ticket) => {
                    let asked = now();
                    match self.ask(question).await {
                        Ok(true) => {
                            // The answer may be as old as the question.
                            let until = asked.monotonic + self.config.ttl;
                            let life = Lifetime { expires: Timestamp::MAX, until: Some(until) };
                            if ticket.fill(Allowed, life, now()).is_ok() {
                                return Some(true);
                            }
                        }
                        Ok(false) => {
                            ticket.deny(No::Refused, now());
                            return Some(false);
                        }
                        Err(why) => {
                            ticket.fail(No::Unknown);
                            if self.told.is_due() {
                                tracing::warn!(%why, "a SubjectAccessReview is not answered: 503, said once in 10 s");
                            }
                            return None;
                        }
                    }
                }
            }
        }
        None
    }

    async fn ask(&self, question: &OwnedQuestion) -> Result<bool, Silent> {
        let answer = self.try_ask(question).await;
        match &answer {
            Ok(true) => &self.counts.allowed,
            Ok(false) => &self.counts.refused,
            Err(Silent::Call(CallError::Busy(_))) => &self.counts.busy,
            Err(_) => &self.counts.failed,
        }
        .fetch_add(1, Relaxed);
        answer
    }

    async fn try_ask(&self, question: &OwnedQuestion) -> Result<bool, Silent> {
        let review = Review {
            api_version: "authorization.k8s.io/v1",
            kind: "SubjectAccessReview",
            spec: Spec::of(question),
        };
        let body = serde_json::to_vec(&review).map_err(|_| Silent::Question)?;
        let request = Request::post(format!("{}{PATH}", self.config.url))
            .header(CONTENT_TYPE, "application/json")
            .body(Bytes::from(body))
            .map_err(|_| Silent::Question)?;
        let answer = self.outbound.ask(request).await?;
        match answer.status {
            StatusCode::CREATED | StatusCode::OK => read(answer.body.to_vec()),
            status => Err(Silent::Status {
                status,
                hint: match status {
                    StatusCode::UNAUTHORIZED => ": it does not accept the gateway's own credential",
                    StatusCode::FORBIDDEN => {
                        ": the gateway may not ask; its account needs `create` on `subjectaccessreviews`"
                    }
                    StatusCode::NOT_FOUND => ": there is no Kubernetes API at this URL",
                    _ => "",
                },
            }),
        }
    }

    /// What a question is called in the cache.
    fn key(&self, question: &Question<'_>) -> cache::Key {
        thread_local! {
            static SPELT: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        SPELT.with_borrow_mut(|out| {
            out.clear();
            spell(question, out);
            self.scope.key(out)
        })
    }
}

/// Writes a question so that no other reads the same: each text with its length before it.
fn spell(question: &Question<'_>, out: &mut Vec<u8>) {
    fn text(out: &mut Vec<u8>, text: &str) {
        count(out, text.len());
        out.extend_from_slice(text.as_bytes());
    }
    fn count(out: &mut Vec<u8>, n: usize) {
        out.extend_from_slice(&(n as u64).to_le_bytes());
    }
    fn list(out: &mut Vec<u8>, list: &[Box<str>]) {
        count(out, list.len());
        for item in list {
            text(out, item);
        }
    }
    text(out, &question.user);
    list(out, &question.groups);
    count(out, question.extra.len());
    for (key, values) in &question.extra {
        text(out, key);
        list(out, values);
    }
    out.push(u8::from(question.uid.is_some()));
    text(out, question.uid.unwrap_or_default());
    out.push(u8::from(matches!(question.attributes, Attributes::Resource { .. })));
    for part in question.attributes.each() {
        out.push(u8::from(part.is_some()));
        text(out, part.map_or("", |part| part));
    }
}

/// Whether an answer says yes. `allowed` is absent when it is false to some servers, and must be a boolean otherwise; `denied`
/// wins over it.
fn read(answer: Vec<u8>) -> Result<bool, Silent> {
    let document = Document::parse(answer).map_err(|_| Silent::Unclear)?;
    let root = document.root();
    if root.get("kind").and_then(Value::as_str) != Some("SubjectAccessReview") {
        return Err(Silent::Unclear);
    }
    let status = root.get("status").filter(|status| status.is_object()).ok_or(Silent::Unclear)?;
    let flag = |name| match status.get(name) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or(Silent::Unclear),
    };
    Ok(flag("allowed")? && !flag("denied")?)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'q> {
    api_version: &'static str,
    kind: &'static str,
    spec: Spec<'q>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'q> {
    user: &'q str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'q [Box<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'q str>,
    #[serde(skip_serializing_if = "Extra::is_empty")]
    extra: Extra<'q>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_attributes: Option<Resource<'q>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    non_resource_attributes: Option<NonResource<'q>>,
}

struct Extra<'q>(&'q [(Box<str>, Vec<Box<str>>)]);

impl Extra<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Extra<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, values) in self.0 {
            map.serialize_entry(key, values)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the API's")]
struct Resource<'q> {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'q str>,
    verb: &'q str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'q str>,
    resource: &'q str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subresource: Option<&'q str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'q str>,
}

#[derive(Serialize)]
struct NonResource<'q> {
    path: &'q str,
    verb: &'q str,
}

impl<'q> Spec<'q> {
    fn of(question: &'q OwnedQuestion) -> Self {
        let (resource, path) = match &question.attributes {
            Attributes::Resource { namespace, verb, group, resource, subresource, name } => {
                let resource = Resource {
                    namespace: namespace.as_deref(),
                    verb,
                    group: group.as_deref(),
                    resource,
                    subresource: subresource.as_deref(),
                    name: name.as_deref(),
                };
                (Some(resource), None)
            }
            Attributes::NonResource { path, verb } => (None, Some(NonResource { path, verb })),
        };
        Self {
            user: &question.user,
            groups: &question.groups,
            uid: question.uid.as_deref(),
            extra: Extra(&question.extra),
            resource_attributes: resource,
            non_resource_attributes: path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_yes_only_when_it_says_so() {
        let with =
            |status: &str| read(format!(r#"{{"kind":"SubjectAccessReview","status":{status}}}"#).into());
        assert!(with(r#"{"allowed":true,"reason":"RBAC"}"#).unwrap());
        for no in [
            "{}",
            r#"{"allowed":false}"#,
            r#"{"allowed":true,"denied":true}"#,
            r#"{"allowed":false,"evaluationError":"x"}"#,
        ] {
            assert!(!with(no).unwrap(), "{no}");
        }
        for unclear in
            ["null", "[]", r#"{"allowed":"true"}"#, r#"{"allowed":1}"#, r#"{"allowed":true,"denied":"no"}"#]
        {
            assert!(matches!(with(unclear), Err(Silent::Unclear)), "{unclear}");
        }
        for other in [
            "",
            "{}",
            r#"{"kind":"Status","status":"Failure"}"#,
            r#"{"kind":"TokenReview","status":{"allowed":true}}"#,
        ] {
            assert!(matches!(read(other.into()), Err(Silent::Unclear)), "{other}");
        }
    }

    fn question(change: impl FnOnce(&mut OwnedQuestion)) -> OwnedQuestion {
        let mut question = OwnedQuestion {
            user: "ada".into(),
            groups: vec!["a".into(), "b".into()],
            extra: vec![("k".into(), vec!["v".into()])],
            uid: None,
            attributes: Attributes::Resource {
                namespace: Some("ns".into()),
                verb: "get".into(),
                group: None,
                resource: "pods".into(),
                subresource: None,
                name: None,
            },
        };
        change(&mut question);
        question
    }

    #[test]
    fn no_two_questions_are_spelt_alike() {
        let spelt = |question: &OwnedQuestion| {
            let mut out = Vec::new();
            spell(&question.borrowed(), &mut out);
            out
        };
        let base = spelt(&question(|_| {}));
        assert_eq!(base, spelt(&question(|_| {})));
        let changes: [fn(&mut OwnedQuestion); 8] = [
            |q| q.user = "adaa".into(),
            |q| q.groups = vec!["ab".into()],
            |q| q.groups = vec!["a".into(), "b".into(), "".into()],
            |q| q.extra[0].1.clear(),
            |q| q.extra.clear(),
            |q| q.uid = Some("".into()),
            |q| q.attributes = Attributes::NonResource { path: "ns".into(), verb: "get".into() },
            |q| {
                if let Attributes::Resource { namespace, name, .. } = &mut q.attributes {
                    *name = namespace.take();
                }
            },
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert_ne!(base, spelt(&question(change)), "change {at}");
        }
    }

    #[test]
    fn a_question_is_written_as_the_api_has_it() {
        let asked = question(|q| q.uid = Some("7".into()));
        let json = serde_json::to_value(Spec::of(&asked)).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "user": "ada", "groups": ["a", "b"], "uid": "7", "extra": { "k": ["v"] },
                "resourceAttributes": { "namespace": "ns", "verb": "get", "resource": "pods" },
            })
        );
    }
}

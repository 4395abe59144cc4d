//! Wire format of a `SubjectAccessReview` and its answer, and the cache key of a review.

use auth::json::{Document, Value};
use auth::policy::review::{OwnedReviewQuestion, ReviewAttributes, ReviewQuestion};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// The response does not contain a review's status.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not a SubjectAccessReview with a status")]
pub(super) struct Unclear;

/// Writes a review unambiguously for the cache key: each text is preceded by its length.
pub(super) fn write_key(question: &ReviewQuestion<'_>, out: &mut Vec<u8>) {
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
    out.push(u8::from(matches!(question.attributes, ReviewAttributes::Resource { .. })));
    for part in question.attributes.texts() {
        out.push(u8::from(part.is_some()));
        text(out, part.map_or("", |part| part));
    }
}

/// Whether an answer allows the request. Some servers omit `allowed` when it is false; otherwise it
/// must be a boolean. `denied` overrides it.
pub(super) fn is_allowed(answer: Vec<u8>) -> Result<bool, Unclear> {
    let document = Document::parse(answer).map_err(|_| Unclear)?;
    let root = document.root();
    if root.get("kind").and_then(Value::as_str) != Some("SubjectAccessReview") {
        return Err(Unclear);
    }
    let status = root.get("status").filter(|status| status.is_object()).ok_or(Unclear)?;
    let flag = |name| match status.get(name) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or(Unclear),
    };
    Ok(flag("allowed")? && !flag("denied")?)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review<'q> {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'q str>,
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

impl<'q> Review<'q> {
    /// The API object for a review.
    pub(super) fn of(question: &'q OwnedReviewQuestion) -> Self {
        Self { api_version: "authorization.k8s.io/v1", kind: "SubjectAccessReview", spec: Spec::of(question) }
    }
}

impl<'q> Spec<'q> {
    fn of(question: &'q OwnedReviewQuestion) -> Self {
        let (resource, path) = match &question.attributes {
            ReviewAttributes::Resource { namespace, verb, group, version, resource, subresource, name } => {
                let resource = Resource {
                    namespace: namespace.as_deref(),
                    verb,
                    group: group.as_deref(),
                    version: version.as_deref(),
                    resource,
                    subresource: subresource.as_deref(),
                    name: name.as_deref(),
                };
                (Some(resource), None)
            }
            ReviewAttributes::NonResource { path, verb } => (None, Some(NonResource { path, verb })),
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
        let with = |status: &str| {
            is_allowed(format!(r#"{{"kind":"SubjectAccessReview","status":{status}}}"#).into())
        };
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
            assert!(matches!(with(unclear), Err(Unclear)), "{unclear}");
        }
        for other in [
            "",
            "{}",
            r#"{"kind":"Status","status":"Failure"}"#,
            r#"{"kind":"TokenReview","status":{"allowed":true}}"#,
        ] {
            assert!(matches!(is_allowed(other.into()), Err(Unclear)), "{other}");
        }
    }

    fn question(change: impl FnOnce(&mut OwnedReviewQuestion)) -> OwnedReviewQuestion {
        let mut question = OwnedReviewQuestion {
            user: "ada".into(),
            groups: vec!["a".into(), "b".into()],
            extra: vec![("k".into(), vec!["v".into()])],
            uid: None,
            attributes: ReviewAttributes::Resource {
                namespace: Some("ns".into()),
                verb: "get".into(),
                group: None,
                version: None,
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
        let spelt = |question: &OwnedReviewQuestion| {
            let mut out = Vec::new();
            write_key(&question.borrowed(), &mut out);
            out
        };
        let base = spelt(&question(|_| {}));
        assert_eq!(base, spelt(&question(|_| {})));
        let changes: [fn(&mut OwnedReviewQuestion); 9] = [
            |q| q.user = "adaa".into(),
            |q| q.groups = vec!["ab".into()],
            |q| q.groups = vec!["a".into(), "b".into(), "".into()],
            |q| q.extra[0].1.clear(),
            |q| q.extra.clear(),
            |q| q.uid = Some("".into()),
            |q| q.attributes = ReviewAttributes::NonResource { path: "ns".into(), verb: "get".into() },
            |q| {
                if let ReviewAttributes::Resource { namespace, name, .. } = &mut q.attributes {
                    *name = namespace.take();
                }
            },
            |q| {
                if let ReviewAttributes::Resource { version, .. } = &mut q.attributes {
                    *version = Some("v1".into());
                }
            },
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert_ne!(base, spelt(&question(change)), "change {at}");
        }
    }

    #[test]
    fn a_question_is_written_as_the_api_has_it() {
        let review = question(|q| q.uid = Some("7".into()));
        let json = serde_json::to_value(Spec::of(&review)).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "user": "ada", "groups": ["a", "b"], "uid": "7", "extra": { "k": ["v"] },
                "resourceAttributes": { "namespace": "ns", "verb": "get", "resource": "pods" },
            })
        );
    }
}

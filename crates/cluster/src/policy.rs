//! Body of an AccessPolicy (`spec.defaults` or `spec.overrides`): who may pass, and how they prove
//! who they are.
//!
//! Owns: reading a body ([`PolicyBody`]), its faults, and placing it into a raw route. Does not own:
//! which policy applies (`controller::policies`), what a field means (`config`).
//!
//! The fields are keys of a route in the configuration file, with the same names and values. Keys
//! that say which requests a route matches or where they go are those of the HTTPRoute, so they are
//! not here. No field names a file of the gateway.

mod body;

use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use auth::time::Timestamp;
pub use body::PolicyBody;
use config::raw::PolicyPermission;
use config::{Fault, RouteChecker, raw};
use controller::settings::PolicyCheck;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

/// The JSON schema of a body, without the definition's conversions.
pub(crate) static SCHEMA: LazyLock<Value> = LazyLock::new(config::schema::of::<PolicyBody>);

/// Why a body is not a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// The body is no object.
    #[error("it is not an object")]
    NotAnObject,
    /// Fields are not known, or have values that they cannot have.
    #[error("{}", lines(.0))]
    Fields(Vec<Fault>),
    /// The body cannot be read, although no field of it has a fault.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The rules are written twice.
    #[error(
        "`policy` names a policy of the operator, so `allow` and `deny` cannot stand beside it; keep one"
    )]
    Twice,
    /// There are rules that refuse, and none that permits.
    #[error("`deny` stands alone, and nothing permits a request; add `allow`")]
    OnlyDeny,
    /// Everybody may pass, and this field says who.
    #[error("a public policy checks nothing, so `{0}` has no effect; remove it, or `public`")]
    Public(&'static str),
    /// Reviews are written twice.
    #[error("`access_review` and `access_reviews` exclude each other; move the review into the list")]
    BothReviews,
    /// Nothing says who may pass.
    #[error(
        "nothing says who may pass; set `allow`, `policy`, `access_review`, `access_reviews`, or `public` if no credential is needed"
    )]
    Nobody,
    /// The field means something only with a login.
    #[error("`{0}` has no effect without a login; add `login: true`, or remove it")]
    NeedsLogin(&'static str),
    /// The operator does not permit policies to use this.
    #[error(
        "the operator does not permit `{0}` in policies; add {0:?} to `gateway_api.policies_may_use` of the configuration file, or remove it here"
    )]
    NotPermitted(&'static str),
    /// A placeholder of the route has no value.
    #[error("the route has no label {0:?}, which the access review reads; add it, or change the review")]
    NoLabel(String),
    /// A placeholder is not closed or not known.
    #[error(
        "there is no placeholder {{route.{0}}}; write {{route.namespace}}, {{route.name}} or {{route.labels.KEY}}"
    )]
    Placeholder(String),
}

fn lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The route that a policy is placed into.
pub trait RouteFacts {
    /// Namespace of the HTTPRoute or GRPCRoute.
    fn namespace(&self) -> &str;
    /// Its name.
    fn name(&self) -> &str;
    /// Value of one of its labels.
    fn label(&self, key: &str) -> Option<&str>;
}

/// Whether a body is a policy, whatever the operator's file has and whatever route it is placed into.
///
/// # Errors
/// Why the body is not a policy.
pub fn check_fields(body: &Value) -> Result<(), BodyFault> {
    place(body, &AnyRoute, &mut Map::new())
}

/// Checks bodies against the operator's file: the issuers, authorizers and policies that they name.
#[derive(Clone)]
pub struct BodyChecker(Arc<RwLock<RouteChecker>>);

impl BodyChecker {
    /// A check against a file.
    pub fn new(file: RouteChecker) -> Self {
        Self(Arc::new(RwLock::new(file)))
    }

    /// The check as the controller needs it.
    pub fn policy_check(&self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> PolicyCheck {
        let bodies = self.clone();
        PolicyCheck::new(move |body| bodies.check(body, now()))
    }

    /// Uses another file from now on.
    pub fn set_file(&self, checker: RouteChecker) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = checker;
    }

    /// Whether a body is a policy that the file permits, whatever route it is placed into.
    ///
    /// # Errors
    /// A phrase for the status of the policy.
    pub fn check(&self, body: &Value, now: Timestamp) -> Result<(), String> {
        self.check_fields(body, now).map_err(|fault| fault.to_string())
    }

    /// Like [`Self::check`], with each fault by itself.
    ///
    /// # Errors
    /// Why the body is not a policy here. Paths of [`BodyFault::Fields`] are those of a raw route,
    /// whose rules are below `policy`, if only the file refuses the body.
    pub fn check_fields(&self, body: &Value, now: Timestamp) -> Result<(), BodyFault> {
        let mut route = Map::from_iter([
            ("name".to_owned(), json!("route")),
            ("upstreams".to_owned(), json!([{ "status": 500 }])),
        ]);
        place(body, &AnyRoute, &mut route)?;
        let checker = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        let raw: Result<raw::Route, _> = serde_json::from_value(Value::Object(route));
        let raw = raw.map_err(|error| BodyFault::Unreadable(error.to_string()))?;
        if let Some(field) = needed(&raw).find(|field| !checker.permits(*field)) {
            return Err(BodyFault::NotPermitted(field.name()));
        }
        checker.check(&raw, &|_| None, now).map(drop).map_err(BodyFault::Fields)
    }
}

/// The field of a body that a problem of a raw route is about, and what is wrong with it. `None`: it is
/// about something else.
pub fn field_of_body(problem: &str) -> Option<(&str, &str)> {
    let (path, text) = problem.split_once(": ")?;
    let field = path.strip_prefix("policy.").unwrap_or(path);
    let first = field.split(['.', '[']).next()?;
    let is_known = SCHEMA["properties"].get(first).is_some();
    (is_known && !path.contains(' ')).then_some((field, text))
}

/// Adds the body of a policy to a raw route in JSON.
///
/// # Errors
/// [`BodyFault`] for a body that is not a policy, or that does not fit the route.
pub fn place(body: &Value, facts: &impl RouteFacts, route: &mut Map<String, Value>) -> Result<(), BodyFault> {
    let body = read(body)?;
    let unreadable = |error: serde_json::Error| BodyFault::Unreadable(error.to_string());
    let Value::Object(mut fields) = serde_json::to_value(&body).map_err(unreadable)? else {
        return Err(BodyFault::NotAnObject);
    };
    for review in ["access_review", "access_reviews"] {
        fields.get_mut(review).map_or(Ok(()), |review| fill(review, facts))?;
    }
    let inline = ["allow", "deny"].into_iter().filter_map(|rules| fields.remove_entry(rules));
    let inline: Map<String, Value> = inline.collect();
    route.append(&mut fields);
    if !inline.is_empty() {
        route.insert("policy".into(), Value::Object(inline));
    }
    Ok(())
}

/// What the body in a route uses that the operator must permit.
fn needed(route: &raw::Route) -> impl Iterator<Item = PolicyPermission> {
    let uses = [
        (PolicyPermission::Authorizer, route.authorizer.is_some()),
        (PolicyPermission::BasicAuth, route.basic_auth.is_some()),
        (PolicyPermission::ForwardAccessToken, route.forward_access_token),
        (PolicyPermission::ForwardAuthorization, route.forward_authorization),
        (PolicyPermission::ApplicationAuthorization, route.application_authorization),
    ];
    uses.into_iter().filter_map(|(field, is_used)| is_used.then_some(field))
}

/// Reads a body.
fn read(body: &Value) -> Result<PolicyBody, BodyFault> {
    if !body.is_object() {
        return Err(BodyFault::NotAnObject);
    }
    let faults = config::json::faults(&SCHEMA, body);
    if !faults.is_empty() {
        return Err(BodyFault::Fields(faults));
    }
    let body = PolicyBody::deserialize(body).map_err(|error| BodyFault::Unreadable(error.to_string()))?;
    body.check()?;
    Ok(body)
}

/// A route that has every label.
struct AnyRoute;

impl RouteFacts for AnyRoute {
    fn namespace(&self) -> &'static str {
        "namespace"
    }

    fn name(&self) -> &'static str {
        "name"
    }

    fn label(&self, _: &str) -> Option<&str> {
        Some("value")
    }
}

/// Replaces the placeholders of the route in every text.
fn fill(value: &mut Value, facts: &impl RouteFacts) -> Result<(), BodyFault> {
    match value {
        Value::String(text) if text.contains("{route.") => *text = filled(text, facts)?,
        Value::Array(list) => list.iter_mut().try_for_each(|value| fill(value, facts))?,
        Value::Object(fields) => fields.values_mut().try_for_each(|value| fill(value, facts))?,
        _ => {}
    }
    Ok(())
}

fn filled(text: &str, facts: &impl RouteFacts) -> Result<String, BodyFault> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, placeholder)) = rest.split_once("{route.") {
        out.push_str(before);
        let Some((name, behind)) = placeholder.split_once('}') else {
            return Err(BodyFault::Placeholder(placeholder.into()));
        };
        out.push_str(match name {
            "namespace" => facts.namespace(),
            "name" => facts.name(),
            _ => match name.strip_prefix("labels.") {
                Some(key) => facts.label(key).ok_or_else(|| BodyFault::NoLabel(key.into()))?,
                None => return Err(BodyFault::Placeholder(name.into())),
            },
        });
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Notebook;

    impl RouteFacts for Notebook {
        fn namespace(&self) -> &'static str {
            "opendatahub"
        }

        fn name(&self) -> &'static str {
            "nb-team-a-nb"
        }

        fn label(&self, key: &str) -> Option<&str> {
            [("notebook-namespace", "team-a"), ("notebook-name", "nb")]
                .into_iter()
                .find_map(|(known, value)| (known == key).then_some(value))
        }
    }

    fn placed(body: &Value) -> Result<Value, String> {
        let mut route = Map::new();
        place(body, &Notebook, &mut route).map_err(|fault| fault.to_string())?;
        Ok(Value::Object(route))
    }

    #[test]
    fn rules_and_keys_are_those_of_the_file() {
        let allow = json!([{ "groups": { "any": ["a"] } }]);
        let body = json!({ "allow": allow, "deny": [], "login": true });
        assert_eq!(
            placed(&body).unwrap(),
            json!({ "policy": { "allow": allow, "deny": [] }, "login": true })
        );
        assert_eq!(placed(&json!({ "policy": "staff" })).unwrap(), json!({ "policy": "staff" }));
        assert_eq!(placed(&json!({ "public": true })).unwrap(), json!({ "public": true }));
    }

    #[test]
    fn a_review_reads_the_namespace_name_and_labels_of_the_route() {
        let body = json!({ "access_reviews": { "any": [
            { "namespace": "{route.labels.notebook-namespace}", "name": "{route.labels.notebook-name}" },
            { "namespace": "{route.namespace}", "name": "x-{route.name}-{path.id}" },
        ] } });
        assert_eq!(check_fields(&body), Ok(()));
        assert_eq!(
            placed(&body).unwrap(),
            json!({ "access_reviews": { "any": [
                { "namespace": "team-a", "name": "nb" },
                { "namespace": "opendatahub", "name": "x-nb-team-a-nb-{path.id}" },
            ] } })
        );
    }

    #[test]
    fn what_is_not_a_policy_is_named() {
        let review = |name: &str| json!({ "access_review": { "name": name } });
        for (body, fault) in [
            (json!([]), "it is not an object"),
            (json!({ "upstream": "x" }), "upstream: unknown key `upstream`; known keys: access_review"),
            (json!({ "alow": [{}], "public": true }), "alow: unknown key `alow`; did you mean `allow`?"),
            (json!({ "allow": [] }), "allow: the list is empty; write at least one element"),
            (
                json!({ "allow": [{ "authenticated": true, "users": [] }] }),
                "allow[0].users: the list is empty",
            ),
            (
                json!({ "allow": [{ "groups": 1 }] }),
                "allow[0].groups: expected a list of strings, or a table",
            ),
            (json!({ "login": "yes" }), "login: expected true or false, found a string"),
            (json!({ "body_size": "1MB" }), "unknown unit `MB` (B, KiB, MiB, GiB)"),
            (json!({ "policy": { "allow": [] } }), "policy: expected a string, found a table"),
            (json!({ "policy": "staff", "allow": [{ "authenticated": true }] }), "keep one"),
            (json!({ "deny": [{ "users": ["eve"] }] }), "add `allow`"),
            (json!({ "public": true, "policy": "staff" }), "so `policy` has no effect"),
            (json!({ "public": true, "login": true }), "so `login` has no effect"),
            (json!({ "public": false, "login": true }), "nothing says who may pass"),
            (json!({}), "nothing says who may pass"),
            (json!({ "policy": "a", "login_redirect": "all" }), "add `login: true`"),
            (json!({ "access_review": {}, "access_reviews": { "any": [{}] } }), "exclude each other"),
            (review("{route.labels.team}"), "the route has no label \"team\""),
            (review("{route.uid}"), "there is no placeholder {route.uid}"),
            (review("{route.name"), "there is no placeholder"),
        ] {
            let found = placed(&body).unwrap_err();
            assert!(found.contains(fault), "{body}: {found}");
        }
    }
    /// The keys of the file and of the objects are one vocabulary.
    #[test]
    fn fields_are_keys_of_a_route_with_the_same_values() {
        let file: Value = serde_json::from_str(&config::schema::text()).unwrap();
        let keys = &file["$defs"]["Route"]["properties"];
        let kind = |value: &Value| {
            let mut value = value.clone();
            let members = value.as_object_mut().unwrap();
            members.remove("description");
            members.remove("default");
            value
        };
        for (field, value) in SCHEMA["properties"].as_object().unwrap() {
            match &**field {
                "allow" | "deny" => assert_eq!(value["items"]["$ref"], "#/$defs/Rule"),
                "policy" => assert_eq!(value["type"], "string"),
                other => assert_eq!(kind(value), kind(&keys[other]), "{other}"),
            }
        }
        for (name, definition) in SCHEMA["$defs"].as_object().unwrap() {
            assert_eq!(*definition, file["$defs"][name], "{name}");
        }
    }
}

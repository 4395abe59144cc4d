//! Body of an AccessPolicy (`spec.defaults` or `spec.overrides`): who may pass, and how they prove
//! who they are.
//!
//! Owns: the fields, and placing them into a raw route. Does not own: which policy applies
//! (`controller::policies`), what a field means (`config`).
//!
//! The fields are keys of a route in the configuration file, with the same names and values. Keys
//! that say which requests a route matches or where they go are those of the HTTPRoute, so they are
//! not here. A field that names a file of the gateway is refused.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Keys of a route that a policy may set.
const ROUTE_KEYS: [&str; 19] = [
    "public",
    "policy",
    "denied_detail",
    "authorizer",
    "access_review",
    "access_reviews",
    "login",
    "login_redirect",
    "basic_auth",
    "forward_access_token",
    "forward_authorization",
    "application_authorization",
    "security_headers",
    "on_expiry",
    "websocket_bearer",
    "websocket_origins",
    "paths",
    "body_size",
    "idle_timeout",
];

/// Why a body is not a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// The body is no object.
    #[error("it is not an object")]
    NotAnObject,
    /// A field is not known.
    #[error("unknown field `{0}`; known fields: allow, deny, {known}", known = ROUTE_KEYS.join(", "))]
    Unknown(String),
    /// The rules are written twice.
    #[error(
        "`policy` names a policy of the operator, so `allow` and `deny` cannot stand beside it; keep one"
    )]
    Twice,
    /// A placeholder of the route has no value.
    #[error("the route has no label {0:?}, which the access review reads; add it, or change the review")]
    NoLabel(String),
    /// A placeholder is not closed or not known.
    #[error(
        "there is no placeholder {{route.{0}}}; write {{route.namespace}}, {{route.name}} or {{route.labels.KEY}}"
    )]
    Placeholder(String),
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

/// Rules of a policy, as the file has them under `policy`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Rules {
    #[serde(skip_serializing_if = "Option::is_none")]
    allow: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deny: Option<Value>,
}

/// Adds the body of a policy to a raw route in JSON.
///
/// # Errors
/// [`BodyFault`] for a body that is not a policy, or that does not fit the route.
pub fn place(body: &Value, facts: &impl RouteFacts, route: &mut Map<String, Value>) -> Result<(), BodyFault> {
    let body = body.as_object().ok_or(BodyFault::NotAnObject)?;
    let mut rules = Rules::default();
    for (key, value) in body {
        match &**key {
            "allow" => rules.allow = Some(value.clone()),
            "deny" => rules.deny = Some(value.clone()),
            "access_review" | "access_reviews" => {
                let mut value = value.clone();
                fill(&mut value, facts)?;
                route.insert(key.clone(), value);
            }
            known if ROUTE_KEYS.contains(&known) => _ = route.insert(key.clone(), value.clone()),
            unknown => return Err(BodyFault::Unknown(unknown.into())),
        }
    }
    if rules.allow.is_some() || rules.deny.is_some() {
        if body.contains_key("policy") {
            return Err(BodyFault::Twice);
        }
        let mut inline = Map::new();
        inline.extend(rules.allow.map(|allow| ("allow".to_owned(), allow)));
        inline.extend(rules.deny.map(|deny| ("deny".to_owned(), deny)));
        route.insert("policy".into(), Value::Object(inline));
    }
    Ok(())
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
    use serde_json::json;

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
            (json!({ "upstream": "x" }), "unknown field `upstream`; known fields: allow, deny, public"),
            (json!({ "policy": "staff", "allow": [] }), "keep one"),
            (review("{route.labels.team}"), "the route has no label \"team\""),
            (review("{route.uid}"), "there is no placeholder {route.uid}"),
            (review("{route.name"), "there is no placeholder"),
        ] {
            let found = placed(&body).unwrap_err();
            assert!(found.contains(fault), "{body}: {found}");
        }
    }
}

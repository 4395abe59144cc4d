//! Definition of the kind AccessPolicy (`CustomResourceDefinition`), which a cluster needs before it
//! accepts objects of the kind.
//!
//! Owns: the definition, with the validations that the API server makes. Does not own: the fields of
//! a body ([`crate::policy`]), and the form of schema that an API server accepts (`structural`).
//!
//! The API server must not drop a field that it does not know: without that condition a rule could
//! permit more. So it keeps such fields, and the controller refuses the policy, which closes its
//! routes (docs/decisions/0071).

mod structural;

use controller::conditions::MOST_ANCESTORS;
use controller::names::{ACCESS_GROUP, ACCESS_VERSION, Kind};
use controller::policies::TARGETS;
use serde_json::{Value, json};

use crate::policy;

/// Most targets of a policy: as many as its status has room for.
const MOST_TARGETS: usize = MOST_ANCESTORS;

/// Validations of a body, in CEL, with their messages.
const BODY: [(&str, &str); 6] = [
    (
        "!has(self.policy) || !(has(self.allow) || has(self.deny))",
        "policy names a policy of the operator, so allow and deny cannot stand beside it: keep one",
    ),
    ("!has(self.deny) || has(self.allow)", "deny stands alone, and nothing permits a request: add allow"),
    (
        "!(has(self.public) && self.public) || !(has(self.allow) || has(self.deny) || has(self.policy) \
         || has(self.access_review) || has(self.access_reviews) || (has(self.login) && self.login))",
        "a public policy checks nothing: remove public, or rules, access reviews and login",
    ),
    (
        "!(has(self.access_review) && has(self.access_reviews))",
        "access_review and access_reviews exclude each other: move the review into the list",
    ),
    (
        "(has(self.public) && self.public) || has(self.allow) || has(self.policy) || has(self.access_review) \
         || has(self.access_reviews)",
        "nothing says who may pass: set allow, policy, access_review or access_reviews, or public if no \
         credential is needed",
    ),
    (
        "(has(self.login) && self.login) || !(has(self.login_redirect) && self.login_redirect != 'browsers' \
         || has(self.application_authorization) && self.application_authorization)",
        "login_redirect and application_authorization have no effect without a login: add login, or remove \
         them",
    ),
];

/// Validations of the definitions within a body.
const WITHIN: [(&str, &str, &str); 4] = [
    ("AccessReviews", "has(self.all) != has(self.any)", "set exactly one of all and any"),
    (
        "AccessReview",
        "has(self.resource) != has(self.path)",
        "name a resource, or a path that belongs to no object",
    ),
    (
        "AccessReview",
        "!has(self.path) || !(has(self.subresource) || has(self.api_group) || has(self.api_version) \
         || has(self.__namespace__) || has(self.name))",
        "only verb has an effect beside path: remove the others, or name a resource instead of the path",
    ),
    (
        "TimeWindow",
        "has(self.days) || has(self.from) || has(self.to)",
        "the window has no bounds: set days, from or to",
    ),
];

/// The schema of a body as JSON schema, for the reference.
pub fn body_schema() -> &'static Value {
    &policy::SCHEMA
}

/// The definition in YAML, ending in a line feed.
///
/// # Errors
/// A phrase, if the definition has no form in YAML.
pub fn text() -> Result<String, String> {
    serde_saphyr::to_string(&definition()).map_err(|error| error.to_string())
}

/// The definition as JSON.
pub fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("accesspolicies.{ACCESS_GROUP}"),
            // GEP-713: what kind of policy this is.
            "labels": { "gateway.networking.k8s.io/policy": "Inherited" },
        },
        "spec": {
            "group": ACCESS_GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": Kind::AccessPolicy.name(),
                "listKind": "AccessPolicyList",
                "plural": "accesspolicies",
                "singular": "accesspolicy",
                "shortNames": ["accpol"],
                "categories": ["gateway-api"],
            },
            "versions": [{
                "name": ACCESS_VERSION,
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "additionalPrinterColumns": columns(),
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "description": "AccessPolicy says who may pass a Gateway, a listener, a route or a rule, \
                                    and how callers prove who they are.",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": { "type": "string" },
                        "kind": { "type": "string" },
                        "metadata": { "type": "object" },
                        "spec": spec(),
                        "status": status(),
                    },
                } },
            }],
        },
    })
}

fn columns() -> Value {
    let accepted = |field: &str| format!(".status.ancestors[0].conditions[?(@.type==\"Accepted\")].{field}");
    json!([
        { "name": "Target", "type": "string", "jsonPath": ".spec.targetRefs[0].kind" },
        { "name": "Target Name", "type": "string", "jsonPath": ".spec.targetRefs[0].name" },
        { "name": "Accepted", "type": "string", "jsonPath": accepted("status") },
        { "name": "Reason", "type": "string", "priority": 1, "jsonPath": accepted("reason") },
        { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
    ])
}

fn spec() -> Value {
    let mut defaults = structural::convert(&policy::SCHEMA, &WITHIN);
    defaults["x-kubernetes-validations"] = structural::validations(&BODY);
    let mut overrides = defaults.clone();
    defaults["description"] =
        json!("Who may pass where no policy of a more specific target says anything. Excludes overrides.");
    overrides["description"] =
        json!("Who may pass whatever policies of more specific targets say. Excludes defaults.");
    json!({
        "type": "object",
        "description": "What the policy applies to, and either defaults or overrides.",
        "required": ["targetRefs"],
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-validations": structural::validations(&[(
            "has(self.defaults) != has(self.overrides)",
            "set exactly one of defaults and overrides",
        )]),
        "properties": { "targetRefs": targets(), "defaults": defaults, "overrides": overrides },
    })
}

/// A text of an object, as Kubernetes bounds it.
fn bounded(description: &str, longest: usize) -> Value {
    json!({ "type": "string", "description": description, "minLength": 1, "maxLength": longest })
}

fn targets() -> Value {
    let is_same = "other.kind == one.kind && other.name == one.name \
                   && (has(other.sectionName) ? other.sectionName : '') \
                   == (has(one.sectionName) ? one.sectionName : '')";
    let mut groups = TARGETS.map(Kind::group).to_vec();
    groups.dedup();
    json!({
        "type": "array",
        "description": "What the policy applies to, in the namespace of the policy.",
        "minItems": 1,
        "maxItems": MOST_TARGETS,
        "x-kubernetes-list-type": "atomic",
        "x-kubernetes-validations": structural::validations(&[(
            &format!("self.all(one, self.exists_one(other, {is_same}))"),
            "a target is listed twice",
        )]),
        "items": {
            "type": "object",
            "description": "A Gateway, ListenerSet, HTTPRoute or GRPCRoute, or a section of one; an Ingress, or a \
                            Route of OpenShift.",
            "required": ["group", "kind", "name"],
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "group": { "type": "string", "description": "API group of the target.", "enum": groups },
                "kind": {
                    "type": "string",
                    "description": "Kind of the target.",
                    "enum": TARGETS.map(Kind::name),
                },
                "name": bounded("Name of the target.", 253),
                "sectionName": bounded(
                    "Name of a listener of a Gateway or ListenerSet, or of a rule of a route. Default: the \
                     whole target.",
                    253,
                ),
            },
        },
    })
}

/// As GEP-713 has it: one entry for each target and controller.
fn status() -> Value {
    let name = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "type": "object",
        "description": "What became of the policy at each of its targets.",
        "properties": { "ancestors": {
            "type": "array",
            "description": "The targets, each with the controller that handles it.",
            "maxItems": MOST_ANCESTORS,
            "x-kubernetes-list-type": "atomic",
            "items": {
                "type": "object",
                "description": "A target with its conditions.",
                "required": ["ancestorRef", "controllerName", "conditions"],
                "properties": {
                    "ancestorRef": {
                        "type": "object",
                        "description": "The target.",
                        "required": ["name"],
                        "properties": {
                            "group": name("API group of the target."),
                            "kind": name("Kind of the target."),
                            "namespace": name("Namespace of the target."),
                            "name": name("Name of the target."),
                            "sectionName": name("Listener or rule."),
                        },
                    },
                    "controllerName": bounded("The controller that wrote the entry.", 253),
                    "conditions": conditions(),
                },
            },
        } },
    })
}

/// A list of `metav1.Condition`.
fn conditions() -> Value {
    json!({
        "type": "array",
        "description": "Accepted is True if the policy applies. Its reasons are Accepted, Invalid, \
                        Conflicted (an older policy has the same target) and TargetNotFound.",
        "minItems": 1,
        "maxItems": 8,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "A condition, as in other objects of Kubernetes.",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": bounded("Type of the condition.", 316),
                "status": {
                    "type": "string",
                    "description": "Whether it is true.",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": bounded("One word.", 1024),
                "message": { "type": "string", "description": "The details.", "maxLength": 32768 },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "description": "The generation of the policy that the condition is about.",
                    "minimum": 0,
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last changed.",
                },
            },
        },
    })
}

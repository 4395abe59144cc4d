//! The authorization file of kube-rbac-proxy: which review a request needs, and what is allowed
//! without one.

use serde::Deserialize;
use toml::Value;

use crate::draft::inline;
use crate::input_fault::InputFault;
use crate::report::{MigrationReport, Translation};

/// Methods and their verbs.
const VERBS: [(&str, &str); 5] =
    [("POST", "create"), ("GET", "get"), ("PUT", "update"), ("PATCH", "patch"), ("DELETE", "delete")];

/// The file. Unknown keys are ignored, as by the program.
#[derive(Debug, Deserialize)]
pub(super) struct File {
    pub(super) authorization: Option<Authorization>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Authorization {
    resource_attributes: Option<Attributes>,
    rewrites: Option<Rewrites>,
    #[serde(default, rename = "static")]
    rules: Vec<StaticRule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Attributes {
    namespace: String,
    api_group: String,
    api_version: String,
    resource: String,
    subresource: String,
    name: String,
    /// In the fork of Open Data Hub only.
    verb: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rewrites {
    by_query_parameter: Option<Named>,
    by_http_header: Option<Named>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StaticRule {
    #[serde(alias = "User")]
    user: User,
    verb: String,
    namespace: String,
    api_group: String,
    resource: String,
    subresource: String,
    name: String,
    resource_request: bool,
    path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    name: String,
    groups: Vec<String>,
}

/// What a route needs: its review, and the rules that allow without one.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) review: Value,
    pub(super) rules: Vec<Value>,
    /// Paths with rules of their own, where requests are reviewed by path.
    pub(super) paths: Vec<(String, Vec<Value>)>,
}

impl Authorization {
    /// The review and the rules. `origin` is the setting that names the file.
    pub(super) fn decide(&self, origin: &str, report: &mut MigrationReport) -> Result<Decision, InputFault> {
        let mut decision =
            Decision { review: self.review(origin, report)?, rules: Vec::new(), paths: Vec::new() };
        for (at, rule) in self.rules.iter().enumerate() {
            self.add_rule(rule, &format!("static[{at}] of {origin}"), &mut decision, report)?;
        }
        Ok(decision)
    }

    fn review(&self, origin: &str, report: &mut MigrationReport) -> Result<Value, InputFault> {
        let Some(attributes) = &self.resource_attributes else {
            report.add(format!("authorization of {origin}"), Translation::Translated);
            return Ok(inline([("path", "{path}".into())]));
        };
        let value_of = self.placeholder(origin, report);
        let mut members = Vec::new();
        for (key, text) in [
            ("resource", &attributes.resource),
            ("subresource", &attributes.subresource),
            ("api_group", &attributes.api_group),
            ("api_version", &attributes.api_version),
            ("namespace", &attributes.namespace),
            ("name", &attributes.name),
            ("verb", &attributes.verb),
        ] {
            if !text.is_empty() {
                members.push((key, Value::from(filled(text, value_of.as_deref(), origin)?)));
            }
        }
        let setting = format!("resourceAttributes of {origin}");
        report.add(
            setting,
            if attributes.verb.is_empty() {
                Translation::Translated
            } else {
                Translation::Different(
                    "`verb` is taken as Open Data Hub's fork does; kube-rbac-proxy itself ignores it, and the method \
                     decides there"
                        .into(),
                )
            },
        );
        Ok(inline(members))
    }

    /// What the templates are filled with.
    fn placeholder(&self, origin: &str, report: &mut MigrationReport) -> Option<String> {
        let rewrites = self.rewrites.as_ref()?;
        let setting = |key: &str| format!("rewrites.{key} of {origin}");
        let query = rewrites.by_query_parameter.as_ref().map(|named| format!("{{query.{}}}", named.name));
        let header = rewrites.by_http_header.as_ref().map(|named| format!("{{header.{}}}", named.name));
        if query.is_some() {
            report.add(setting("byQueryParameter"), Translation::Translated);
        }
        if header.is_some() {
            report.add(
                setting("byHttpHeader"),
                if query.is_some() {
                    Translation::NoEqual(
                        "a value comes from one place here: the query parameter is used; write a second route for \
                         requests with the header"
                            .into(),
                    )
                } else {
                    Translation::Translated
                },
            );
        }
        query.or(header)
    }

    /// Adds a static rule where it can apply.
    fn add_rule(
        &self,
        rule: &StaticRule,
        setting: &str,
        decision: &mut Decision,
        report: &mut MigrationReport,
    ) -> Result<(), InputFault> {
        let contradiction = |why: &str| InputFault::Contradiction(format!("{setting}: {why}"));
        if rule.resource_request != rule.path.is_empty() {
            return Err(contradiction("`path` and `resourceRequest` exclude each other, and one is needed"));
        }
        let methods = match self.methods(&rule.verb) {
            Ok(methods) => methods,
            Err(outcome) => {
                report.add(setting, outcome);
                return Ok(());
            }
        };
        let mut members = Vec::new();
        if rule.user.name.is_empty() {
            members.push(("authenticated", Value::from(true)));
        } else {
            members.push(("users", Value::from(vec![rule.user.name.clone()])));
        }
        members.extend(methods.map(|method| ("methods", Value::from(vec![method]))));
        let allowed = inline(members);
        let groups_ignored = (!rule.user.groups.is_empty())
            .then(|| "`user.groups` is ignored, as the program does; add `groups` to the rule".to_owned());
        match (&self.resource_attributes, rule.resource_request) {
            (Some(attributes), true) => match rule.matches(attributes) {
                Some(true) => decision.rules.push(allowed),
                Some(false) => {
                    let why = "it matches no request with these `resourceAttributes`, so nothing is lost";
                    report.add(setting, Translation::Different(why.into()));
                    return Ok(());
                }
                None => {
                    let why =
                        "it compares a value that each request has of its own; write a rule with `query`";
                    report.add(setting, Translation::NoEqual(why.into()));
                    return Ok(());
                }
            },
            (None, false) => decision.paths.push((rule.path.clone(), vec![allowed])),
            _ => {
                let why = "it is about another kind of review than all requests have, so nothing is lost";
                report.add(setting, Translation::Different(why.into()));
                return Ok(());
            }
        }
        report.add(setting, groups_ignored.map_or(Translation::Translated, Translation::Different));
        Ok(())
    }

    /// The method that a verb stands for; `None`: every method.
    fn methods(&self, verb: &str) -> Result<Option<&'static str>, Translation> {
        let fixed = self.resource_attributes.as_ref().map_or("", |attributes| &*attributes.verb);
        match (verb, fixed) {
            ("", _) => Ok(None),
            (verb, fixed) if verb == fixed => Ok(None),
            (_, fixed) if !fixed.is_empty() => Err(Translation::Different(format!(
                "every review is about `{fixed}`, so the rule never applies"
            ))),
            (verb, _) => match VERBS.iter().find(|(_, known)| *known == verb) {
                Some((method, _)) => Ok(Some(method)),
                None => Err(Translation::NoEqual(format!(
                    "no method has the verb `{verb}` here; write a rule with `methods`"
                ))),
            },
        }
    }
}

impl StaticRule {
    /// Whether it matches the attributes of every request; `None`: that depends on the request.
    fn matches(&self, attributes: &Attributes) -> Option<bool> {
        let pairs = [
            (&self.namespace, &attributes.namespace),
            (&self.api_group, &attributes.api_group),
            (&self.resource, &attributes.resource),
            (&self.subresource, &attributes.subresource),
            (&self.name, &attributes.name),
        ];
        let mut asked = pairs.into_iter().filter(|(own, _)| !own.is_empty());
        if asked.clone().any(|(own, of_request)| own != of_request && !of_request.contains("{{")) {
            return Some(false);
        }
        if asked.any(|(_, of_request)| of_request.contains("{{")) { None } else { Some(true) }
    }
}

/// An attribute whose template is filled with the value of a request.
fn filled(text: &str, value: Option<&str>, origin: &str) -> Result<String, InputFault> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("{{") {
        let (inside, after) = behind.split_once("}}").unwrap_or((behind, ""));
        let inside = inside.trim_matches(|c: char| c == '-' || c.is_whitespace());
        let (".Value", Some(value)) = (inside, value) else {
            return Err(InputFault::File {
                name: origin.to_owned(),
                why: format!(
                    "{text:?} is a template that has no value; only {{{{ .Value }}}} with `rewrites` is known"
                ),
            });
        };
        out.push_str(before);
        out.push_str(value);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

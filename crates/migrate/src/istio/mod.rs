//! Istio: `RequestAuthentication` and `AuthorizationPolicy`.
//!
//! Istio compares every rule with every request. Here the route with the most specific path decides
//! alone. So each path that a rule names becomes a route, and a route has the rules of all paths that
//! contain its own.

mod authentication;
mod policy;

use serde_json::Value as Json;
use toml::Value;

use self::policy::{Authorization, PathMatch, RouteRules};
use crate::draft::{Draft, DraftTable, SharedLine, inline};
use crate::input_fault::InputFault;
use crate::report::{MigrationReport, Translation};
use crate::{Migration, SecretFile, manifest};

/// Name of the program, for messages.
pub const PROGRAM: &str = "istio";

/// Translates the objects in manifests, which are those of one workload. `upstream` is where its
/// requests go.
///
/// # Errors
/// If a manifest is no YAML, or has no such object.
pub fn translate(manifests: &[(String, String)], upstream: &str) -> Result<Migration, InputFault> {
    let objects = manifest::objects(manifests)?;
    let of_kind =
        |kind: &str| objects.iter().filter(move |object| object["kind"] == kind).collect::<Vec<_>>();
    let (requests, policies) = (of_kind("RequestAuthentication"), of_kind("AuthorizationPolicy"));
    if requests.is_empty() && policies.is_empty() {
        let why = "the manifests have neither a RequestAuthentication nor an AuthorizationPolicy";
        return Err(InputFault::Container(why.into()));
    }
    let mut output = Output::default();
    let table = output.draft.table("[[listener]]");
    table.set("name", "web", "").set("address", "127.0.0.1:8080", "write the address, and `tls`");
    let issuers = authentication::translate(&requests, &mut output);
    let authorization = Authorization::read(&policies, &issuers, &mut output.report)?;
    let table = output.draft.table("[[upstream]]");
    table.set("name", "workload", "").set("endpoints", vec![upstream], "--upstream");
    routes(&authorization, &issuers, &mut output);
    output.report.notes.extend(
        [
            "where a policy denies something, and none allows, every caller needs a credential here",
            "selectors and namespaces are not read: give the objects of one workload, and of the whole mesh",
            "a request with an invalid token is refused on every route that is not public, also where a rule would not \
             have looked at it",
            "a public route looks at no token, so it passes none on: if the workload verifies tokens itself, add \
             `forward_authorization`",
        ]
        .map(str::to_owned),
    );
    let head = ["Translated from Istio's objects.".to_owned(), "Check it: postern check FILE".to_owned()];
    let Output { draft, files, report } = output;
    Ok(Migration { configuration: draft.render(&head), secrets: files, report })
}

/// What the translation builds.
#[derive(Default)]
struct Output {
    draft: Draft,
    files: Vec<SecretFile>,
    report: MigrationReport,
}

/// An issuer of the configuration.
struct KnownIssuer {
    name: String,
    issuer: String,
    /// Whether its token reaches the workload.
    forwards: bool,
}

fn routes(authorization: &Authorization, issuers: &[KnownIssuer], output: &mut Output) {
    let mut shared: Vec<SharedLine> = Vec::new();
    if issuers.iter().any(|issuer| issuer.forwards) {
        shared.push(("forward_authorization", true.into(), "forwardOriginalToken".into()));
    }
    shared.push(("request_timeout", "unlimited".into(), "Istio does this without a field".into()));
    let finish = |table: &mut DraftTable| {
        table.set("upstream", "workload", "").set_shared(&shared);
    };
    for (at, (host, path)) in authorization.places().into_iter().enumerate() {
        let here = authorization.at(host.as_deref(), &path);
        let place = |table: &mut DraftTable, suffix: &str| {
            table.set("name", format!("route-{}{suffix}", at + 1), "");
            table.set_some("hosts", host.clone().map(|host| vec![host]), "hosts");
            if path != PathMatch::Any {
                table.set("path", path.value(), "paths");
            }
        };
        // Methods that anybody may use have a route of their own, which is more specific.
        for (number, methods) in here.open_methods.iter().enumerate() {
            let table = output.draft.table("[[route]]");
            place(table, &format!("-open-{}", number + 1));
            table.set("methods", methods.clone(), "methods").set("public", true, OPEN);
            finish(table);
        }
        let table = output.draft.table("[[route]]");
        place(table, "");
        if here.is_open {
            table.set("public", true, OPEN);
        } else {
            table.set("policy", policy(here), "AuthorizationPolicy");
        }
        finish(table);
    }
}

const OPEN: &str = "a rule without `from` and `when`, or no policy";

fn policy(here: RouteRules) -> Value {
    // Without a rule nobody passes: a policy needs one that matches nobody.
    let nobody = || vec![inline([("groups", vec!["nobody"].into())])];
    let allow = if here.allow.is_empty() { nobody() } else { here.allow };
    let deny = (!here.deny.is_empty()).then_some(("deny", Value::Array(here.deny)));
    inline([("allow", Value::Array(allow))].into_iter().chain(deny))
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

/// The texts of a list.
fn texts(value: &Json) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|item| text(item).to_owned()).collect()
}

/// How the report names a part of an object.
fn named(object: &Json, part: &str) -> String {
    let name = text(&object["metadata"]["name"]);
    if part.is_empty() { name.to_owned() } else { format!("{part} of {name}") }
}

fn no_equal(report: &mut MigrationReport, setting: String, remedy: &str) {
    report.add(setting, Translation::NoEqual(remedy.to_owned()));
}

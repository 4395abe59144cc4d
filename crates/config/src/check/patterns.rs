//! Pattern check: finds wildcards in values that are compared literally, such as `groups = ["*"]`
//! or `prefix = "/orders/*"`.
//!
//! Owns: which keys take no pattern, and what to write instead. Does not own: the keys that take
//! one (`hosts`, `identity_headers.remove`), nor those whose grammar has no star.
//!
//! A literal with a star is valid but matches no request. Then an allow rule never matches, or a
//! deny rule never applies, and no message says so. Where no real value contains a star, this is a
//! fault. Scopes, claims and query parameters with a star exist (`role:edit:*`, `select=*`), so
//! there it is a warning.

use super::super::fault::KeyPath;
use super::super::raw::{self, Choice};
use super::{Context, rules};
use crate::partial::Partial;

const EACH: &str = "list each value";
const HEADER: &str = "write the complete name of each header";
const AUDIENCE: &str = "an audience is compared as a whole: list each";
const ISSUER: &str = "an issuer is compared as a whole: write one table for each";
const EVERY_PATH: &str = "remove `path` to match every path";

/// Notes every literal that looks like a pattern.
pub(super) fn check(sound: &Partial, context: &mut Context<'_>) {
    for (path, policy) in rules::all_policies(sound) {
        for (list, all) in [("allow", &policy.allow), ("deny", &policy.deny)] {
            for (index, rule) in all.iter().enumerate() {
                check_rule(rule, &path.key(list).index(index), context);
            }
        }
    }
    for (path, route) in sound.paths("route", &sound.file.route) {
        check_route(route, &path, context);
    }
    issuers(sound, context);
    if let Some(provider) = &sound.file.provider {
        let at = KeyPath::top_level("provider").key("audiences");
        check_list(&provider.audiences, &at, AUDIENCE, context);
        for (path, client) in sound.paths("provider.client", &provider.client) {
            check_list(&client.groups, &path.key("groups"), EACH, context);
            for (key, scopes) in [("scopes", &client.scopes), ("default_scopes", &client.default_scopes)] {
                for (index, scope) in scopes.iter().enumerate() {
                    warn_possible_pattern(scope, &path.key(key).index(index), EACH, context);
                }
            }
        }
    }
}

fn check_rule(rule: &raw::Rule, path: &KeyPath, context: &mut Context<'_>) {
    let anybody = "list each; for every caller with a valid credential write `authenticated = true`";
    for (key, values) in [("users", &rule.users), ("subjects", &rule.subjects), ("clients", &rule.clients)] {
        check_list(values, &path.key(key), anybody, context);
    }
    let domain = "list complete addresses; for all users of a domain use a group, or a claim with the domain";
    check_list(&rule.emails, &path.key("emails"), domain, context);
    for (key, choice) in [("groups", &rule.groups), ("scopes", &rule.scopes)] {
        let Some(choice) = choice else { continue };
        let hint = format!("list each; for any value write `{key} = {{ present = true }}`");
        for (value, at) in values(choice, &path.key(key)) {
            match key {
                "groups" => refuse_pattern(value, &at, &hint, context),
                _ => warn_possible_pattern(value, &at, &hint, context),
            }
        }
    }
    let hint = "list each; for any value write `{ present = true }`";
    for (key, choices) in [("claims", &rule.claims), ("query", &rule.query)] {
        for (name, choice) in choices {
            for (value, at) in values(choice, &path.key(key).key(name)) {
                warn_possible_pattern(value, &at, hint, context);
            }
        }
    }
}

/// The values of a choice, each with its path.
fn values<'c>(choice: &'c Choice, path: &KeyPath) -> Vec<(&'c String, KeyPath)> {
    let placed = |path: KeyPath, values: &'c [String]| -> Vec<_> {
        values.iter().enumerate().map(|(index, value)| (value, path.index(index))).collect()
    };
    match choice {
        Choice::Any(values) => placed(path.clone(), values),
        Choice::Sets(sets) => {
            let mut all = placed(path.key("any"), &sets.any);
            all.extend(placed(path.key("all"), &sets.all));
            all
        }
    }
}

fn check_route(route: &raw::Route, path: &KeyPath, context: &mut Context<'_>) {
    for (name, value) in &route.headers {
        let at = path.key("headers").key(name);
        refuse_pattern(name, &at, HEADER, context);
        if matches!(value, raw::HeaderValue::Exact(value) if value == "*") {
            refuse_pattern("*", &at, "for any value write `{ present = true }`", context);
        }
    }
    for (index, protocol) in route.upgrades.iter().enumerate() {
        refuse_pattern(protocol, &path.key("upgrades").index(index), EACH, context);
    }
    if let Some(written) = &route.path {
        let at = path.key("path");
        let paths = [
            ("prefix", &written.prefix, "a prefix matches all paths below it: write it without the star"),
            ("exact", &written.exact, "use `prefix` for all paths below, or `template` for one segment"),
            ("template", &written.template, "write `{name}` for a segment, `{name...}` for the rest"),
        ];
        for (key, text, hint) in paths {
            let Some(text) = text.as_deref().filter(|text| looks_like_glob(text)) else { continue };
            // `exact = "*"` is the target of `OPTIONS *`.
            match (key, text) {
                ("exact", "*") => {}
                (_, "*" | "/*" | "/**") => refuse_pattern(text, &at.key(key), EVERY_PATH, context),
                _ => refuse_pattern(text, &at.key(key), hint, context),
            }
        }
    }
    let replaced = route.replace_prefix.as_ref().map(|replace| ("replace_prefix", &replace.from));
    let stripped = route.strip_prefix.as_ref().map(|prefix| ("strip_prefix", prefix));
    for (key, text) in [replaced, stripped].into_iter().flatten().filter(|(_, text)| looks_like_glob(text)) {
        refuse_pattern(
            text,
            &path.key(key),
            "it matches all paths below it: write it without the star",
            context,
        );
    }
}

/// Whether a path has a segment of stars only, or ends with a star. Any other star is an ordinary
/// character.
fn looks_like_glob(path: &str) -> bool {
    let stars = |segment: &str| !segment.is_empty() && segment.bytes().all(|b| b == b'*');
    path.ends_with('*') || path.split('/').any(stars)
}

fn issuers(sound: &Partial, context: &mut Context<'_>) {
    let file = &sound.file;
    for (path, issuer) in sound.paths("issuer", &file.issuer) {
        refuse_pattern(&issuer.issuer, &path.key("issuer"), ISSUER, context);
        check_list(&issuer.audiences, &path.key("audiences"), AUDIENCE, context);
    }
    for (path, authority) in sound.paths("token_authority", &file.token_authority) {
        let any = "list each; for tokens of any audience write `any_audience = true`";
        check_list(&authority.audiences, &path.key("audiences"), any, context);
        check_list(&authority.issuers, &path.key("issuers"), EACH, context);
        check_list(
            &authority.prefixes,
            &path.key("prefixes"),
            "write the prefix of the tokens, without the star",
            context,
        );
    }
    if let Some(events) = &file.security_events {
        for (index, transmitter) in events.transmitter.iter().enumerate() {
            let path = KeyPath::top_level("security_events").key("transmitter").index(index);
            refuse_pattern(&transmitter.issuer, &path.key("issuer"), ISSUER, context);
            check_list(&transmitter.audiences, &path.key("audiences"), AUDIENCE, context);
            check_list(&transmitter.tokens_of, &path.key("tokens_of"), EACH, context);
        }
    }
    for (index, provider) in file.login.iter().flat_map(|login| &login.provider).enumerate() {
        let path = KeyPath::top_level("login").key("provider").index(index);
        refuse_pattern(&provider.url, &path.key("url"), ISSUER, context);
        for (index, scope) in provider.scopes.iter().enumerate() {
            warn_possible_pattern(scope, &path.key("scopes").index(index), EACH, context);
        }
    }
}

fn check_list(values: &[String], path: &KeyPath, hint: &str, context: &mut Context<'_>) {
    for (index, value) in values.iter().enumerate() {
        refuse_pattern(value, &path.index(index), hint, context);
    }
}

fn refuse_pattern(value: &str, path: &KeyPath, hint: &str, context: &mut Context<'_>) {
    if value.contains('*') {
        context.faults.add(path, format!("{value:?} is taken literally, not as a pattern"), hint);
    }
}

/// Warns of a value that could be meant as a pattern. Unlike [`refuse_pattern`], values with a star
/// exist here.
fn warn_possible_pattern(value: &str, path: &KeyPath, hint: &str, context: &mut Context<'_>) {
    if value.ends_with('*') || value.starts_with('*') {
        context.faults.warn(path, format!("{value:?} is taken literally, not as a pattern"), hint);
    }
}

//! Checks `request_headers`, `response_headers` and `security_headers`, for all routes and for one,
//! and merges the two.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::headers::{Part, StripSet, TemplateFault, ValueTemplate, is_per_hop, is_same_alias_class};
use gateway::config::{FieldOperation, RequestHeaders, ResponseHeaders};
use http_engine::field_edits::FieldEdits;

use super::super::fault::KeyPath;
use super::super::raw::{self, HeaderText, SecurityHeaders, SecurityHeadersChoice};
use super::super::scalar::FieldName;
use super::{Context, headers, issuers};
use crate::partial::Partial;

/// A header to write: its name, how, and its value.
type Value = (FieldOperation, Box<str>, ValueTemplate);

/// Edits of one table, in the order of the file.
#[derive(Default, Clone)]
struct Edits {
    removed: Vec<Box<str>>,
    values: Vec<Value>,
}

/// The edits for all routes. Those of a route come on top.
#[derive(Default)]
pub(super) struct SharedEdits {
    request: Edits,
    response: Edits,
    security: Option<SecurityHeaders>,
}

/// Checks the tables for all routes.
pub(super) fn shared(sound: &Partial, context: &mut Context<'_>) -> SharedEdits {
    let file = &sound.file;
    SharedEdits {
        request: request_edits(&file.request_headers, &KeyPath::top_level("request_headers"), sound, context),
        response: response_edits(&file.response_headers, &KeyPath::top_level("response_headers"), context),
        security: security(file.security_headers.as_ref(), &KeyPath::top_level("security_headers"), context),
    }
}

/// The edits of responses that no route determines.
pub(super) fn without_route(shared: &SharedEdits) -> Option<ResponseHeaders> {
    response(&shared.response, &Edits::default(), shared.security.as_ref())
        .map(|headers| ResponseHeaders { from_caller: Arc::default(), ..headers })
}

/// The edits of one route.
pub(super) struct RouteEdits {
    /// Those of requests, with those for all routes.
    request: Edits,
    /// Those of responses, without those for all routes.
    response: Edits,
    security: Option<SecurityHeaders>,
}

/// Checks the edits of a route. `frame_ancestors`: who may show the pages of a login's routes in a
/// frame, where the login says so.
pub(super) fn of_route(
    (raw, path): (&raw::Route, &KeyPath),
    shared: &SharedEdits,
    frame_ancestors: Option<&str>,
    sound: &Partial,
    context: &mut Context<'_>,
) -> RouteEdits {
    let at = path.key("request_headers");
    let own = raw.request_headers.as_ref().map(|table| request_edits(table, &at, sound, context));
    let own = own.unwrap_or_default();
    check_authorization(&own, raw, &at, context);
    let mut below = shared.request.clone();
    // The route says that the client's own passes.
    below.values.retain(|(_, name, _)| !(is_authorization(name) && passes_authorization(raw)));
    let request = layered(&below, own, is_same_alias_class);
    let at = path.key("response_headers");
    let own = raw.response_headers.as_ref().map(|table| response_edits(table, &at, context));
    let mut response = own.unwrap_or_default();
    let security = match &raw.security_headers {
        Some(own) => security(Some(own), &path.key("security_headers"), context),
        None => shared.security.clone(),
    };
    if let Some(sources) = frame_ancestors.filter(|_| raw.login) {
        // Beside the application's own policy, which may forbid more; browsers then ignore
        // `X-Frame-Options`.
        let value = ValueTemplate::parse(&format!("frame-ancestors {sources}"), |_| None);
        let value = value.map(|value| (FieldOperation::Add, "content-security-policy".into(), value));
        response.values.extend(value);
    }
    RouteEdits { request, response, security }
}

impl RouteEdits {
    /// The edits of requests.
    pub(super) fn request(&self) -> Option<RequestHeaders> {
        request(&self.request)
    }

    /// The edits of responses.
    pub(super) fn response(&self, shared: &SharedEdits) -> Option<ResponseHeaders> {
        response(&shared.response, &self.response, self.security.as_ref())
    }

    /// The edits of requests to one of several upstreams, which has this table.
    pub(super) fn request_of(
        &self,
        (route, table): (&raw::Route, &raw::RequestHeaders),
        path: &KeyPath,
        sound: &Partial,
        context: &mut Context<'_>,
    ) -> Option<RequestHeaders> {
        let own = request_edits(table, path, sound, context);
        check_authorization(&own, route, path, context);
        request(&layered(&self.request, own, is_same_alias_class))
    }

    /// The edits of responses of one of several upstreams, which has this table.
    pub(super) fn response_of(
        &self,
        table: &raw::ResponseHeaders,
        path: &KeyPath,
        shared: &SharedEdits,
        context: &mut Context<'_>,
    ) -> Option<ResponseHeaders> {
        let own = response_edits(table, path, context);
        let own = layered(&self.response, own, str::eq_ignore_ascii_case);
        response(&shared.response, &own, self.security.as_ref())
    }
}

/// Whether the client's `Authorization` passes to the upstream.
fn passes_authorization(raw: &raw::Route) -> bool {
    raw.forward_authorization || raw.application_authorization
}

/// Notes a fault when the upstream would get two credentials.
fn check_authorization(own: &Edits, raw: &raw::Route, path: &KeyPath, context: &mut Context<'_>) {
    if passes_authorization(raw) && own.values.iter().any(|(_, name, _)| is_authorization(name)) {
        let key =
            if raw.forward_authorization { "forward_authorization" } else { "application_authorization" };
        let message = "the upstream would get two `Authorization` headers: the client's and this one";
        context.faults.add(path, message, format!("remove it, or remove `{key}`"));
    }
}

/// Edits on top of more general ones. What they set or remove is not written by those.
fn layered(below: &Edits, above: Edits, is_same: fn(&str, &str) -> bool) -> Edits {
    let is_replaced = |name: &str| {
        above.removed.iter().any(|other| is_same(other, name))
            || above
                .values
                .iter()
                .any(|(operation, other, _)| *operation == FieldOperation::Set && is_same(other, name))
    };
    let mut merged = Edits { removed: below.removed.clone(), ..Edits::default() };
    merged.values.extend(below.values.iter().filter(|(_, name, _)| !is_replaced(name)).cloned());
    merged.removed.extend(above.removed);
    merged.values.extend(above.values);
    merged
}

fn request(edits: &Edits) -> Option<RequestHeaders> {
    if edits.removed.is_empty() && edits.values.is_empty() {
        return None;
    }
    let set = edits.values.iter().filter(|(operation, ..)| *operation == FieldOperation::Set);
    let removed = set.map(|(_, name, _)| name).chain(&edits.removed);
    Some(RequestHeaders {
        removed: removed.cloned().collect(),
        values: edits.values.iter().map(|(_, name, value)| (name.clone(), value.clone())).collect(),
    })
}

fn is_authorization(name: &str) -> bool {
    name.eq_ignore_ascii_case("authorization")
}

fn response(shared: &Edits, own: &Edits, security: Option<&SecurityHeaders>) -> Option<ResponseHeaders> {
    let merged = layered(shared, own.clone(), str::eq_ignore_ascii_case);
    let mut edits = FieldEdits { removed: merged.removed, ..FieldEdits::default() };
    let mut from_caller = Vec::new();
    for (operation, name, template) in &merged.values {
        match template.constant() {
            None => from_caller.push((*operation, name.clone(), template.clone())),
            Some(value) => {
                let list = match operation {
                    FieldOperation::Set => &mut edits.set,
                    FieldOperation::Add => &mut edits.added,
                };
                list.push((name.clone(), value.into()));
            }
        }
    }
    let mut https = edits.clone();
    if let Some(security) = security {
        edits.defaults = security_fields(security);
        https.defaults.clone_from(&edits.defaults);
        https.defaults.extend(hsts(security));
    }
    let none = edits.is_empty() && https.is_empty() && from_caller.is_empty();
    (!none).then(|| ResponseHeaders {
        http: Arc::new(edits),
        https: Arc::new(https),
        from_caller: from_caller.into(),
    })
}

fn security_fields(raw: &SecurityHeaders) -> Vec<(Box<str>, Box<str>)> {
    let fields = [
        ("content-security-policy", raw.content_security_policy.as_deref()),
        ("x-frame-options", Some(&*raw.frame_options)),
        ("x-content-type-options", Some(&*raw.content_type_options)),
        ("referrer-policy", Some(&*raw.referrer_policy)),
        ("permissions-policy", raw.permissions_policy.as_deref()),
        ("cross-origin-opener-policy", raw.cross_origin_opener_policy.as_deref()),
    ];
    let present = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
    present.filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name.into(), value.into())).collect()
}

fn hsts(raw: &SecurityHeaders) -> Option<(Box<str>, Box<str>)> {
    let subdomains = if raw.hsts_subdomains { "; includeSubDomains" } else { "" };
    let value = format!("max-age={}{subdomains}", raw.hsts?.0.as_secs());
    Some(("strict-transport-security".into(), value.into()))
}

/// The security headers of a choice; `None`: none.
fn security(
    raw: Option<&SecurityHeadersChoice>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<SecurityHeaders> {
    let table = match raw? {
        SecurityHeadersChoice::Default(false) => return None,
        SecurityHeadersChoice::Default(true) => SecurityHeaders::default(),
        SecurityHeadersChoice::Table(table) => table.clone(),
    };
    if table.hsts.is_none() && table.hsts_subdomains {
        let hint = "set `hsts`, or remove it";
        context.faults.add(&path.key("hsts_subdomains"), "the key has no effect without `hsts`", hint);
    }
    for (name, value) in security_fields(&table) {
        if !value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
            let message = format!("the value of {name} has a character that a header cannot have");
            context.faults.add(path, message, "use printable ASCII in one line");
        }
    }
    Some(table)
}

fn request_edits(
    raw: &raw::RequestHeaders,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) -> Edits {
    let edits = edits((&raw.set, &raw.add, &raw.remove), path, context);
    for (index, name) in raw.remove.iter().enumerate() {
        headers::check_removable(&name.0, &path.key("remove").index(index), &mut context.faults);
        if name.0.contains('*') {
            let hint = "name each header, or use `identity_headers.remove`";
            context.faults.add(&path.key("remove").index(index), "a family cannot be removed here", hint);
        }
    }
    let identity = headers::field_names(sound);
    for (key, list) in [("set", &raw.set), ("add", &raw.add)] {
        for name in list.keys() {
            let at = path.key(key).key(name);
            let taken = identity.iter().find(|other| is_same_alias_class(other, name));
            if let Some(taken) = taken {
                let message = format!("{name} is the identity header {taken}");
                context.faults.add(&at, message, "change `identity_headers`, or choose another name");
            } else if let Some(why) = unwritable_in_request(name) {
                context.faults.add(&at, format!("{name} cannot be written here"), why);
            }
        }
    }
    for (operation, name, template) in &edits.values {
        if *operation == FieldOperation::Add && template.constant().is_none() {
            let message = "the client could send this header too, and claim to be somebody else";
            context.faults.add(&path.key("add").key(name), message, "use `set`");
        }
    }
    edits
}

/// Why the gateway writes a request header itself.
fn unwritable_in_request(name: &str) -> Option<&'static str> {
    const OURS: &str = "the gateway sets it";
    const FIELDS: [(&str, &str); 13] = [
        ("host", "`preserve_host` and `rewrite_host` of the route decide about it"),
        ("via", OURS),
        ("traceparent", OURS),
        ("tracestate", OURS),
        ("forwarded", OURS),
        ("x-forwarded-for", OURS),
        ("x-forwarded-host", OURS),
        ("x-forwarded-port", OURS),
        ("x-forwarded-proto", OURS),
        ("x-forwarded-prefix", OURS),
        ("x-forwarded-access-token", "`forward_access_token` of the route decides about it"),
        ("trailer", "it announces what the client sends"),
        ("expect", "it belongs to the client's exchange"),
    ];
    if is_per_hop(name) {
        return Some("it belongs to the connection");
    }
    FIELDS.iter().find(|(field, _)| is_same_alias_class(field, name)).map(|(_, why)| *why)
}

fn response_edits(raw: &raw::ResponseHeaders, path: &KeyPath, context: &mut Context<'_>) -> Edits {
    let edits = edits((&raw.set, &raw.add, &raw.remove), path, context);
    let names = [("set", raw.set.keys()), ("add", raw.add.keys())];
    let names = names
        .into_iter()
        .flat_map(|(key, names)| names.map(move |name| path.key(key).key(name)).zip(raw_names(key, raw)));
    let removed =
        raw.remove.iter().enumerate().map(|(index, name)| (path.key("remove").index(index), name.0.as_str()));
    for (at, name) in names.chain(removed) {
        let problem = if is_per_hop(name) || name.eq_ignore_ascii_case("trailer") {
            "it belongs to the connection"
        } else if name.eq_ignore_ascii_case("set-cookie") && at.to_string().contains(".set.") {
            "it would remove the cookies of the application: use `add`"
        } else {
            continue;
        };
        context.faults.add(&at, format!("{name} cannot be changed"), problem);
    }
    edits
}

fn raw_names<'r>(key: &str, raw: &'r raw::ResponseHeaders) -> impl Iterator<Item = &'r str> + use<'r> {
    let table = if key == "set" { &raw.set } else { &raw.add };
    table.keys().map(String::as_str)
}

/// The lists of a table.
type Lists<'r> = (&'r BTreeMap<String, HeaderText>, &'r BTreeMap<String, HeaderText>, &'r [FieldName]);

fn edits((set, add, remove): Lists<'_>, path: &KeyPath, context: &mut Context<'_>) -> Edits {
    let mut edits =
        Edits { removed: remove.iter().map(|name| name.0.as_str().into()).collect(), ..Edits::default() };
    for (key, operation, table) in [("set", FieldOperation::Set, set), ("add", FieldOperation::Add, add)] {
        for (name, text) in table {
            let at = path.key(key).key(name);
            if StripSet::check(name).is_err() || name.contains('*') {
                let hint = "write letters, digits and -, such as X-Internal";
                context.faults.add(&at, format!("{name:?} is not a header name"), hint);
                continue;
            }
            let twins = set.keys().filter(|other| is_same_alias_class(other, name));
            if operation == FieldOperation::Set && twins.count() > 1 {
                let message =
                    format!("{name} is there in two spellings, which many servers treat as the same");
                context.faults.add(&at, message, "keep one");
            }
            edits
                .values
                .extend(value(text, &at, context).map(|value| (operation, name.as_str().into(), value)));
        }
    }
    edits
}

/// The value of a header.
fn value(text: &HeaderText, path: &KeyPath, context: &mut Context<'_>) -> Option<ValueTemplate> {
    let (text, of_file) = match text {
        HeaderText::Text(text) => (text, None),
        HeaderText::File(file) => {
            let at = path.key("file");
            let bytes = context.read(&file.file, &at)?;
            let of_file = String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned();
            let is_value = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
            if of_file.is_empty() || of_file.trim_ascii() != of_file || !of_file.bytes().all(is_value) {
                let message = format!("{} is not one line of printable ASCII", file.file.display());
                context.faults.add(&at, message, "a header has one line, without blanks at its ends");
                return None;
            }
            (&file.text, Some(of_file))
        }
    };
    if of_file.is_some() && !text.contains("{file}") {
        context.faults.add(
            &path.key("text"),
            "the text does not contain {file}",
            "write \"{file}\" where the content belongs",
        );
        return None;
    }
    let template = ValueTemplate::parse(text, |name| part(name, of_file.as_deref()));
    match template {
        Ok(template) if template.constant() == Some("") => {
            context.faults.add(path, "the value is empty", "write a value, or use `remove`");
            None
        }
        Ok(template) => Some(template),
        Err(fault) => {
            let hint = match &fault {
                TemplateFault::Unknown(name) => unknown(name),
                _ => "write text with placeholders, such as \"Bearer {id_token}\"".into(),
            };
            context.faults.add(path, fault.to_string(), hint);
            None
        }
    }
}

const TOKENS: [(&str, Part); 3] = [
    ("access_token", Part::AccessToken),
    ("id_token", Part::IdToken),
    ("client_address", Part::ClientAddress),
];

fn part(name: &str, content: Option<&str>) -> Option<Part> {
    if name == "file" {
        return content.map(|content| Part::Text(content.into()));
    }
    let other = TOKENS.iter().find(|(word, _)| *word == name).map(|(_, part)| part.clone());
    other.or_else(|| headers::source(name).map(Part::Identity))
}

fn unknown(name: &str) -> String {
    if name == "file" {
        return "write `{ file = \"PATH\", text = \"…{file}…\" }` to name the file".into();
    }
    let words = headers::SOURCES.iter().map(|(word, _)| *word).chain(TOKENS.iter().map(|(word, _)| *word));
    match super::nearest(name, words.clone()) {
        Some(meant) => format!("did you mean {{{meant}}}?"),
        None => {
            let words = words.map(|word| format!("{{{word}}}")).collect::<Vec<_>>().join(", ");
            format!("write {{claims.PATH}} for a claim, or one of {words}")
        }
    }
}

/// The claims that header values contain.
pub(super) fn referenced_claims(sound: &Partial, context: &mut Context<'_>) -> Vec<String> {
    let file = &sound.file;
    let mut tables = vec![
        (KeyPath::top_level("request_headers").key("set"), &file.request_headers.set),
        (KeyPath::top_level("response_headers").key("set"), &file.response_headers.set),
        (KeyPath::top_level("response_headers").key("add"), &file.response_headers.add),
    ];
    for (path, route) in sound.paths("route", &file.route) {
        let entries = route.upstreams.iter().enumerate();
        let entries = entries.map(|(index, entry)| {
            (path.key("upstreams").index(index), &entry.request_headers, &entry.response_headers)
        });
        let own = (path.clone(), &route.request_headers, &route.response_headers);
        for (path, request, response) in std::iter::once(own).chain(entries) {
            tables.extend(request.as_ref().map(|h| (path.key("request_headers").key("set"), &h.set)));
            tables.extend(response.as_ref().map(|h| (path.key("response_headers").key("set"), &h.set)));
            tables.extend(response.as_ref().map(|h| (path.key("response_headers").key("add"), &h.add)));
        }
    }
    let mut claims = Vec::new();
    for (path, table) in tables {
        for (name, text) in table {
            let text = match text {
                HeaderText::Text(text) => text,
                HeaderText::File(file) => &file.text,
            };
            let placeholders = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
            for (placeholder, _) in placeholders {
                if let Some(claim) = placeholder.strip_prefix("claims.") {
                    let at = path.key(name);
                    claims.extend(
                        issuers::parse_claim_path(claim, &at, context).map(|claim| claim.as_str().to_owned()),
                    );
                }
            }
        }
    }
    claims
}

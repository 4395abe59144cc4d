//! CORS: cross-origin resource sharing (the Fetch standard, section 3.2), for routes that allow
//! pages of other origins to read their responses.
//!
//! Owns: which request is a preflight and for which route, its response, and the fields of other
//! responses. Does not own: the policies ([`crate::config`]), whether a request passes: CORS only
//! tells browsers what a page may read, and protects nothing.

use auth::headers::Repeats;
use auth::policy::route::Scope;
use auth::request::{Canonical, Field, is_token};
use http_engine::field_edits::FieldEdits;
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;
use http_engine::parsed_request::ParsedRequest;

use crate::config::{Config, CorsHeaders, CorsOrigin, CorsPolicy};

/// The response fields that this module alone decides about, on a route with a policy.
const RESPONSE_FIELDS: [&str; 6] = [
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-expose-headers",
    "access-control-max-age",
];

/// Index of the route that a preflight is about, with the reply; `None`: the request is no
/// preflight, or no route with a CORS policy is meant. The route is that of the request which the
/// browser announces: its method, at this path.
pub(crate) fn preflight(
    config: &Config,
    scope: Scope,
    inbound: &ParsedRequest<'_>,
    request: &Canonical<'_>,
) -> Option<(usize, LocalReply)> {
    let preflight = find(config, scope, request, inbound.fields, inbound.repeats)?;
    let is_allowed = preflight.is_allowed();
    let Preflight { index, policy, origin, method } = preflight;
    let headers = list(inbound.fields, "access-control-request-headers");
    let mut fields =
        vec![("vary".into(), "Origin, Access-Control-Request-Method, Access-Control-Request-Headers".into())];
    if is_allowed {
        policy.preflight_fields(origin, method, headers, &mut |name: &'static str, value: &str| {
            fields.push((name.into(), value.to_owned().into()));
        });
    }
    let reply = LocalReply {
        status: 204,
        code: "preflight",
        outcome: Outcome::Local,
        fields,
        body: (&b""[..]).into(),
        close: false,
    };
    Some((index, reply))
}

/// Index of the route in a scope that a preflight is about, and whether the answer permits the
/// request; for explanations.
pub fn preview(
    config: &Config,
    scope: Scope,
    request: &Canonical<'_>,
    fields: &[Field<'_>],
) -> Option<(usize, bool)> {
    let preflight = find(config, scope, request, fields, Repeats::Separate)?;
    Some((preflight.index, preflight.is_allowed()))
}

/// A preflight for a route with a policy.
struct Preflight<'a> {
    index: usize,
    policy: &'a CorsPolicy,
    origin: &'a str,
    method: &'a str,
}

impl Preflight<'_> {
    fn is_allowed(&self) -> bool {
        self.policy.allows(self.origin) && self.policy.allows_method(self.method)
    }
}

fn find<'a>(
    config: &'a Config,
    scope: Scope,
    request: &Canonical<'_>,
    fields: &'a [Field<'a>],
    repeats: Repeats,
) -> Option<Preflight<'a>> {
    if request.method() != "OPTIONS" {
        return None;
    }
    let origin = single(fields, "origin")?;
    let method = single(fields, "access-control-request-method")?;
    let announced = request.with_method(method).ok()?;
    let index = config.routing.table().lookup(scope, &announced, fields, repeats).ok()??;
    let policy = config.route(index).cors.as_ref()?;
    Some(Preflight { index, policy, origin, method })
}

/// Adds the edits of a route's policy to those of a response.
pub(crate) fn edit_response(policy: &CorsPolicy, fields: &[Field<'_>], edits: &mut FieldEdits) {
    edits.removed.extend(RESPONSE_FIELDS.map(Box::from));
    if !policy.is_public() {
        edits.added.push(("vary".into(), "Origin".into()));
    }
    let Some(origin) = single(fields, "origin").filter(|origin| policy.allows(origin)) else { return };
    let mut add = |name: &'static str, value: &str| edits.added.push((name.into(), value.into()));
    policy.origin_fields(origin, &mut add);
    policy.exposed_fields(&mut add);
}

impl CorsPolicy {
    /// Whether every origin may read, without credentials: the response then is the same for all.
    fn is_public(&self) -> bool {
        self.origins.contains(&CorsOrigin::Any) && !self.credentials
    }

    /// Whether pages of this origin may read responses.
    pub(crate) fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| match allowed {
            CorsOrigin::Any => true,
            CorsOrigin::Exact(text) => **text == *origin,
            // An empty suffix: every host, on the scheme's default port.
            CorsOrigin::Below { scheme, suffix } => origin
                .strip_prefix(&**scheme)
                .and_then(|rest| rest.strip_suffix(&**suffix))
                .is_some_and(|name| !name.is_empty() && name.bytes().all(is_host_byte)),
        })
    }

    /// Whether the pages may use this method. Those of a plain form and of an image are always
    /// allowed: a page can send them without a preflight.
    fn allows_method(&self, method: &str) -> bool {
        self.methods.is_empty()
            || matches!(method, "GET" | "HEAD" | "POST")
            || self.methods.iter().any(|allowed| **allowed == *method)
    }

    fn origin_fields(&self, origin: &str, add: &mut impl FnMut(&'static str, &str)) {
        add("access-control-allow-origin", if self.is_public() { "*" } else { origin });
        if self.credentials {
            add("access-control-allow-credentials", "true");
        }
    }

    fn exposed_fields(&self, add: &mut impl FnMut(&'static str, &str)) {
        if !self.expose.is_empty() {
            add("access-control-expose-headers", &self.expose);
        }
    }

    fn preflight_fields(
        &self,
        origin: &str,
        method: &str,
        headers: Option<String>,
        add: &mut impl FnMut(&'static str, &str),
    ) {
        self.origin_fields(origin, add);
        if self.methods.is_empty() {
            add("access-control-allow-methods", method);
        } else {
            add("access-control-allow-methods", &self.methods.join(", "));
        }
        match &self.headers {
            // A `*` would not cover `Authorization`, and nothing at all with credentials.
            CorsHeaders::Any => {
                if let Some(headers) = headers {
                    add("access-control-allow-headers", &headers);
                }
            }
            CorsHeaders::Listed(listed) if !listed.is_empty() => add("access-control-allow-headers", listed),
            CorsHeaders::Listed(_) => {}
        }
        self.exposed_fields(add);
        if let Some(max_age) = self.max_age {
            add("access-control-max-age", &max_age.as_secs().to_string());
        }
    }
}

/// The bytes of a DNS name in an origin, which browsers write as A-labels in lower case.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_')
}

/// The value of a field that occurs once, in visible ASCII.
fn single<'f>(fields: &[Field<'f>], name: &str) -> Option<&'f str> {
    let mut values = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
    let value = values.next().filter(|_| values.next().is_none())?.value;
    str::from_utf8(value)
        .ok()
        .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// The names in a list of field names, if there is one; what is not a name is left out.
fn list(fields: &[Field<'_>], name: &str) -> Option<String> {
    let values = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value);
    let names = values.filter_map(|value| str::from_utf8(value).ok()).flat_map(|value| value.split(','));
    let names: Vec<&str> = names.map(str::trim_ascii).filter(|name| is_token(name)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

//! Filters of rules and of backends.
//!
//! Owns: each filter as a plan, and which filters exclude each other.
//! Does not own: what a filter does.
//! Flow: `FilterSpec → FilterPlan`, or the reason to fail the rule.

use std::time::Duration;

use super::{Context, unsupported};
use crate::fault::Fault;
use crate::names::{Kind, Name};
use crate::objects::route::{
    CorsSpec, ExternalAuthSpec, FilterSpec, HeaderModifierSpec, HeaderSpec, MirrorSpec, PathModifierSpec,
    RedirectSpec, RewriteSpec,
};
use crate::plan::{
    BackendTarget, CorsFilter, ExternalAuthFilter, ExternalAuthProtocol, FilterPlan, HeaderModifier,
    MirrorFilter, PathModifier, RedirectFilter, RewriteFilter, UpstreamProtocol,
};

/// Where the filters of a list stand.
pub(super) struct Filters {
    /// Whether all matches of the rule are prefixes, which `ReplacePrefixMatch` needs.
    is_prefix: bool,
    is_of_rule: bool,
}

impl Filters {
    pub(super) fn of_rule(is_prefix: bool) -> Self {
        Self { is_prefix, is_of_rule: true }
    }

    pub(super) fn of_backend(is_prefix: bool) -> Self {
        Self { is_prefix, is_of_rule: false }
    }

    pub(super) fn read(
        &self,
        context: &mut Context<'_>,
        specs: &[FilterSpec],
    ) -> Result<Vec<FilterPlan>, Fault> {
        let mut filters = Vec::with_capacity(specs.len());
        for spec in specs {
            filters.push(self.one(context, spec)?);
        }
        is_compatible(specs)?;
        Ok(filters)
    }

    fn one(&self, context: &mut Context<'_>, spec: &FilterSpec) -> Result<FilterPlan, Fault> {
        let missing =
            || unsupported(format!("a filter of type {} has no settings of that type", spec.of_type));
        let is_http = context.kind == Kind::HttpRoute;
        match spec.of_type.as_str() {
            "RequestHeaderModifier" => {
                let modifier = spec.request_header_modifier.as_deref().ok_or_else(missing)?;
                Ok(FilterPlan::RequestHeaders(headers(modifier)))
            }
            "ResponseHeaderModifier" => {
                let modifier = spec.response_header_modifier.as_deref().ok_or_else(missing)?;
                Ok(FilterPlan::ResponseHeaders(headers(modifier)))
            }
            "RequestMirror" if self.is_of_rule => {
                mirror(context, spec.request_mirror.as_deref().ok_or_else(missing)?)
            }
            "RequestRedirect" if is_http && self.is_of_rule => {
                self.redirect(spec.request_redirect.as_deref().ok_or_else(missing)?)
            }
            "URLRewrite" if is_http && self.is_of_rule => {
                self.rewrite(spec.url_rewrite.as_deref().ok_or_else(missing)?)
            }
            "CORS" if is_http && self.is_of_rule => Ok(cors(spec.cors.as_deref().ok_or_else(missing)?)),
            "ExternalAuth" if is_http && self.is_of_rule => {
                external_auth(context, spec.external_auth.as_deref().ok_or_else(missing)?)
            }
            "ExtensionRef" => {
                let reference = spec.extension_ref.as_deref().ok_or_else(missing)?;
                let name = format!("{} {}", reference.kind, reference.name);
                Err(unsupported(format!("an extensionRef to {name} is not supported: remove the filter")))
            }
            other => {
                let place = if self.is_of_rule { "a rule" } else { "a backend" };
                Err(unsupported(format!(
                    "a filter of type {other} is not supported for {place} of a {}",
                    context.kind.name()
                )))
            }
        }
    }

    fn path(&self, spec: &PathModifierSpec) -> Result<PathModifier, Fault> {
        let missing = || unsupported(format!("a path of type {} has no value of that type", spec.of_type));
        match spec.of_type.as_str() {
            "ReplaceFullPath" => Ok(PathModifier::Full(spec.replace_full_path.clone().ok_or_else(missing)?)),
            "ReplacePrefixMatch" if self.is_prefix => {
                Ok(PathModifier::Prefix(spec.replace_prefix_match.clone().ok_or_else(missing)?))
            }
            "ReplacePrefixMatch" => {
                Err(unsupported("ReplacePrefixMatch needs matches of type PathPrefix in its rule"))
            }
            other => Err(unsupported(format!("a path of type {other} is not known"))),
        }
    }

    fn redirect(&self, spec: &RedirectSpec) -> Result<FilterPlan, Fault> {
        let status = spec.status_code.unwrap_or(302);
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            return Err(unsupported(format!("statusCode {status} is not one of a redirect")));
        }
        let scheme = spec.scheme.clone();
        if let Some(scheme) = scheme.as_ref().filter(|scheme| !matches!(scheme.as_str(), "http" | "https")) {
            return Err(unsupported(format!("scheme {scheme} is not supported: use http or https")));
        }
        Ok(FilterPlan::Redirect(RedirectFilter {
            scheme,
            hostname: spec.hostname.clone(),
            path: spec.path.as_ref().map(|path| self.path(path)).transpose()?,
            port: spec.port,
            status,
        }))
    }

    fn rewrite(&self, spec: &RewriteSpec) -> Result<FilterPlan, Fault> {
        Ok(FilterPlan::Rewrite(RewriteFilter {
            hostname: spec.hostname.clone(),
            path: spec.path.as_ref().map(|path| self.path(path)).transpose()?,
        }))
    }
}

/// Whether the filters of one list can be used together. Only mirrors may occur more than once.
fn is_compatible(specs: &[FilterSpec]) -> Result<(), Fault> {
    let has = |name: &str| specs.iter().any(|spec| spec.of_type == name);
    if has("RequestRedirect") && has("URLRewrite") {
        let message = "filters of types RequestRedirect and URLRewrite exclude each other";
        return Err(Fault::new("IncompatibleFilters", message));
    }
    for (index, spec) in specs.iter().enumerate() {
        let repeated = specs[..index].iter().any(|earlier| earlier.of_type == spec.of_type);
        if repeated && spec.of_type != "RequestMirror" {
            let message = format!("a rule can have one filter of type {}", spec.of_type);
            return Err(Fault::new("IncompatibleFilters", message));
        }
    }
    Ok(())
}

fn headers(spec: &HeaderModifierSpec) -> HeaderModifier {
    HeaderModifier { set: pairs(&spec.set), add: pairs(&spec.add), remove: spec.remove.clone() }
}

/// If a name occurs more than once, the first one counts (Gateway API, `HTTPHeader.name`).
fn pairs(specs: &[HeaderSpec]) -> Box<[(Name, Name)]> {
    let mut found: Vec<(Name, Name)> = Vec::with_capacity(specs.len());
    for spec in specs {
        if !found.iter().any(|(name, _)| name.eq_ignore_ascii_case(&spec.name)) {
            found.push((spec.name.clone(), spec.value.clone()));
        }
    }
    found.into_boxed_slice()
}

fn mirror(context: &mut Context<'_>, spec: &MirrorSpec) -> Result<FilterPlan, Fault> {
    let fraction = match (spec.percent, spec.fraction) {
        (None, None) => (1, 1),
        (Some(percent), None) => (percent, 100),
        (None, Some(fraction)) => (fraction.numerator, fraction.denominator.unwrap_or(100)),
        (Some(_), Some(_)) => {
            return Err(unsupported("percent and fraction of a mirror exclude each other: remove one"));
        }
    };
    if fraction.1 == 0 || fraction.0 > fraction.1 {
        return Err(unsupported(format!("a mirror cannot take {} of {} requests", fraction.0, fraction.1)));
    }
    Ok(FilterPlan::Mirror(MirrorFilter { target: context.target(&spec.backend_ref), fraction }))
}

/// `maxAge` is 5 seconds unless it is set (Gateway API, `HTTPCORSFilter`).
fn cors(spec: &CorsSpec) -> FilterPlan {
    FilterPlan::Cors(CorsFilter {
        allow_origins: spec.allow_origins.clone(),
        allow_credentials: spec.allow_credentials.unwrap_or(false),
        allow_methods: spec.allow_methods.clone(),
        allow_headers: spec.allow_headers.clone(),
        expose_headers: spec.expose_headers.clone(),
        max_age: Duration::from_secs(spec.max_age.filter(|age| *age > 0).unwrap_or(5).into()),
    })
}

fn external_auth(context: &mut Context<'_>, spec: &ExternalAuthSpec) -> Result<FilterPlan, Fault> {
    if !context.settings.experimental {
        let message = "filters of type ExternalAuth are experimental: the operator enables them with \
            `experimental` in `[gateway_api]`";
        return Err(unsupported(message));
    }
    let mut target = context.target(&spec.backend_ref);
    let (protocol, allowed_headers) = match spec.protocol.as_str() {
        "GRPC" => {
            if let BackendTarget::Upstream(key) = &mut target {
                key.protocol = UpstreamProtocol::Http2;
            }
            let allowed = spec.grpc.as_ref().map(|grpc| grpc.allowed_headers.clone());
            (ExternalAuthProtocol::Grpc, allowed)
        }
        "HTTP" => {
            let http = spec.http.as_ref();
            let protocol = ExternalAuthProtocol::Http {
                path: http.and_then(|http| http.path.clone()),
                allowed_response_headers: http
                    .map(|http| http.allowed_response_headers.clone())
                    .unwrap_or_default(),
            };
            (protocol, http.map(|http| http.allowed_headers.clone()))
        }
        other => {
            return Err(unsupported(format!("externalAuth.protocol {other} is not known: use HTTP or GRPC")));
        }
    };
    Ok(FilterPlan::ExternalAuth(ExternalAuthFilter {
        target,
        protocol,
        allowed_headers: allowed_headers.unwrap_or_default(),
        body: spec.forward_body.and_then(|body| body.max_size).filter(|size| *size > 0),
    }))
}

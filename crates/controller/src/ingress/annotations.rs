//! Annotations of other controllers.
//!
//! Owns: which of them may stay on an object that is served here. Annotations of other controllers are
//! not carried out. One that restricts access, or changes which requests reach a backend, must not be
//! ignored either: the object would be more open than it says. So only those are ignored that change
//! timeouts, buffers and logs, or ask for what happens anyway; any other refuses the object.
//! Does not own: reading them ([`crate::objects`]).
//! Flow: annotations → the reason to refuse the object.

use crate::fault::Fault;
use crate::names::Name;
use crate::objects::ingress::Annotations;

const NGINX: &str = "nginx.ingress.kubernetes.io/";
const HAPROXY: &str = "haproxy.router.openshift.io/";
const ROUTER: &str = "router.openshift.io/";

/// Annotations that are ignored.
const IGNORED: [(&str, &[&str]); 3] = [
    (
        NGINX,
        &[
            "client-body-buffer-size",
            "enable-access-log",
            "enable-opentelemetry",
            "enable-rewrite-log",
            "load-balance",
            "preserve-trailing-slash",
            "proxy-buffer-size",
            "proxy-buffering",
            "proxy-buffers-number",
            "proxy-busy-buffers-size",
            "proxy-connect-timeout",
            "proxy-http-version",
            "proxy-max-temp-file-size",
            "proxy-next-upstream",
            "proxy-next-upstream-timeout",
            "proxy-next-upstream-tries",
            "proxy-read-timeout",
            "proxy-request-buffering",
            "proxy-send-timeout",
            "service-upstream",
            // Hosts in `spec.tls` are always led to HTTPS.
            "ssl-redirect",
        ],
    ),
    (
        HAPROXY,
        &[
            "balance",
            "disable_cookies",
            "h1-adjust-case",
            "log-send-hostname",
            "set-forwarded-headers",
            "timeout",
            "timeout-tunnel",
        ],
    ),
    (ROUTER, &["cookie-same-site", "cookie_name"]),
];

/// What to use instead, by the beginning of the name. The first that fits counts.
const INSTEAD: [(&str, &str); 27] = [
    ("auth-tls-", "spec.tls.frontend of the Gateway"),
    ("auth-type", "`basic_auth` of an AccessPolicy"),
    ("auth-secret", "`basic_auth` of an AccessPolicy"),
    ("auth-realm", "`basic_auth` of an AccessPolicy"),
    ("auth-", "`login` or `authorizer` of an AccessPolicy"),
    ("enable-global-auth", "`login` or `authorizer` of an AccessPolicy"),
    ("satisfy", "`allow` of an AccessPolicy"),
    ("whitelist-source-range", "`addresses` in an `allow` rule of an AccessPolicy"),
    ("allowlist-source-range", "`addresses` in an `allow` rule of an AccessPolicy"),
    ("denylist-source-range", "`addresses` in a `deny` rule of an AccessPolicy"),
    ("ip_whitelist", "`addresses` in an `allow` rule of an AccessPolicy"),
    ("ip_allowlist", "`addresses` in an `allow` rule of an AccessPolicy"),
    ("hsts_header", "`security_headers` of an AccessPolicy"),
    ("proxy-body-size", "`body_size` of an AccessPolicy"),
    ("force-ssl-redirect", "spec.tls with the hosts of the Ingress"),
    ("backend-protocol", "appProtocol of the port of the Service, and a BackendTLSPolicy for TLS"),
    ("proxy-ssl-", "a BackendTLSPolicy for the Service"),
    ("enable-cors", "the filter CORS of an HTTPRoute"),
    ("cors-", "the filter CORS of an HTTPRoute"),
    ("rewrite-target", "the filter URLRewrite of an HTTPRoute"),
    ("use-regex", "paths of type Exact or Prefix"),
    ("app-root", "the filter RequestRedirect of an HTTPRoute"),
    ("permanent-redirect", "the filter RequestRedirect of an HTTPRoute"),
    ("temporal-redirect", "the filter RequestRedirect of an HTTPRoute"),
    ("canary", "the weights of an HTTPRoute"),
    ("mirror-", "the filter RequestMirror of an HTTPRoute"),
    ("upstream-vhost", "the filter URLRewrite of an HTTPRoute"),
];

/// Why an object with these annotations is not served.
pub(super) fn refused(annotations: &Annotations) -> Option<Fault> {
    let problems: Vec<String> = annotations.iter().filter_map(|(name, value)| problem(name, value)).collect();
    (!problems.is_empty()).then(|| Fault::new("UnsupportedAnnotation", problems.join("; ")))
}

fn problem(name: &str, value: &Name) -> Option<String> {
    let (own, ignored) =
        IGNORED.iter().find_map(|(prefix, ignored)| Some((name.strip_prefix(prefix)?, ignored)))?;
    // These two say what happens without them.
    let is_default =
        matches!((own, value.as_str()), ("backend-protocol", "HTTP") | ("force-ssl-redirect", "false"));
    if ignored.contains(&own) || is_default {
        return None;
    }
    let instead = INSTEAD.iter().find(|(prefix, _)| own.starts_with(prefix));
    Some(match instead {
        Some((_, instead)) => {
            format!("annotation {name} is not carried out: use {instead}, and remove the annotation")
        }
        None => format!("annotation {name} is not carried out: remove it"),
    })
}

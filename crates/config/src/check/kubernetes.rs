//! Checks `[kubernetes]` and the access reviews of routes: which API server authorizes, and what
//! the gateway sends to it.

use std::path::{Path, PathBuf};

use auth::policy::review::{
    NameSource, ReviewAttributes, ReviewSet, ReviewSpec, ReviewSubject, ReviewTemplate, TemplateFault,
};
use gateway::config::KubernetesConfig;
use http_engine::config::{ClientCredential, ServerConfig};

use super::super::fault::KeyPath;
use super::super::raw::{self, ReviewedName, TokenAuthorityKind};
use super::server_keys::ServerKeys;
use super::{Context, name_hint, names};
use crate::partial::Partial;
use crate::version::version;

/// Folder where a pod finds the credentials for its cluster.
const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Number of negative answers that are cached.
const DENY_ENTRIES: usize = 16 * 1024;

pub(super) fn check(sound: &Partial, context: &mut Context<'_>) -> Option<KubernetesConfig> {
    let path = KeyPath::top_level("kubernetes");
    let mut routes = sound.paths("route", &sound.file.route).into_iter();
    let reviewed = routes.find_map(|(path, route)| Some(path.key(review_key(route)?)));
    let Some(raw) = &sound.file.kubernetes else {
        if let Some(review) = reviewed
            && !sound.has_unreadable("kubernetes")
        {
            let message = "the route has a review, but there is no [kubernetes]";
            context.faults.add(&review, message, "add [kubernetes]");
        }
        return None;
    };
    if reviewed.is_none() && !sound.has_other_routes() {
        let hint = "write an `access_review` in a route, or remove [kubernetes]";
        context.faults.add(&path, "no route has an `access_review`", hint);
    }
    check_cluster_authorities(raw, &path, sound, context);
    // Files of the pod are valid for its own cluster only.
    let own_cluster = raw.url == raw::Kubernetes::in_cluster();
    let ca = raw.ca.clone().or_else(|| own_cluster.then(|| pod_file("ca.crt")));
    if raw.url.contains('?') {
        context.faults.add(&path.key("url"), "the API server's URL has a query", "remove the query");
    }
    let reach = ServerKeys {
        url: &raw.url,
        ca: ca.as_deref(),
        certificate: raw.certificate.as_deref(),
        key: raw.key.as_deref(),
        insecure_http: raw.insecure_http,
        plain_http_risk: "an attacker on the network can authorize any request",
        url_key: "url",
        example: "https://kubernetes.default.svc",
    };
    let credential = client_credential(raw, own_cluster, &path, context);
    let timeout = context.check_positive(raw.timeout.0, &path.key("timeout"));
    let ttl = context.check_positive(raw.ttl.0, &path.key("ttl"));
    let deny_ttl = context.check_positive(raw.deny_ttl.0, &path.key("deny_ttl"));
    let (_, (tls, tls_version)) = reach.check(&path, context)?;
    Some(KubernetesConfig {
        url: raw.url.trim_end_matches('/').into(),
        server: ServerConfig {
            tls,
            tls_version,
            proxies: context.proxies.clone(),
            credential: credential?,
            timeout,
            max_requests: raw.max_requests,
            max_per_second: raw.max_per_second,
        },
        ttl,
        deny_ttl,
        cache_bytes: usize::try_from(raw.cache_size.0).unwrap_or(usize::MAX),
        deny_entries: DENY_ENTRIES,
        watch: raw.watch,
        watch_service_accounts: !raw.token_authorities.is_empty(),
        version: version([serde_json::to_vec(raw).unwrap_or_default().as_slice()]),
    })
}

/// Credential of the gateway at the API server.
fn client_credential(
    raw: &raw::Kubernetes,
    own_cluster: bool,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<ClientCredential> {
    match (&raw.token_file, &raw.certificate) {
        (Some(_), Some(_)) => {
            let message = "both a token and a certificate are set as the gateway's credential";
            context.faults.add(&path.key("token_file"), message, "keep one");
            None
        }
        (Some(file), None) => credential(Some(file), path, context),
        (None, Some(_)) => credential(None, path, context),
        (None, None) if own_cluster => credential(Some(&pod_file("token")), path, context),
        (None, None) => {
            let hint = "name `token_file`, or `certificate` and `key`";
            context.faults.add(path, "no credential for this API server", hint);
            None
        }
    }
}

/// Path of a file that Kubernetes mounts into pods.
fn pod_file(file: &str) -> PathBuf {
    PathBuf::from(format!("{SERVICE_ACCOUNT_DIR}/{file}"))
}

fn credential(token: Option<&Path>, path: &KeyPath, context: &mut Context<'_>) -> Option<ClientCredential> {
    let Some(file) = token else { return Some(ClientCredential::None) };
    context.read(file, &path.key("token_file"))?;
    Some(ClientCredential::Bearer { token: context.reader.resolve(file) })
}

/// Refuses authorities that are not a `TokenReview`: only Kubernetes returns names that Kubernetes
/// knows.
fn check_cluster_authorities(
    raw: &raw::Kubernetes,
    path: &KeyPath,
    sound: &Partial,
    context: &mut Context<'_>,
) {
    let known = names(&sound.file.token_authority, |authority| &authority.name);
    for (index, name) in raw.token_authorities.iter().enumerate() {
        let at = path.key("token_authorities").index(index);
        match sound.file.token_authority.iter().find(|authority| authority.name == *name) {
            Some(authority) if authority.kind == TokenAuthorityKind::Introspection => {
                let message = format!("{:?} is not a Kubernetes authority", name.0);
                let hint =
                    "its names are not names of Kubernetes; use `user_prefix` and `group_prefix` instead";
                context.faults.add(&at, message, hint);
            }
            Some(authority) if authority.kind == TokenAuthorityKind::OpenshiftUser => {
                let message = "an OpenShift user name does not show the scopes of the token";
                let hint = "OpenShift restricts tokens by scopes, which only a `token-review` returns";
                context.faults.add(&at, message, hint);
            }
            Some(_) => {}
            None if sound.may_be_unreadable("token_authority", &name.0) => {}
            None => {
                let hint = name_hint(&name.0, &known, sound, "token_authority");
                context.faults.add(&at, format!("there is no authority {:?}", name.0), hint);
            }
        }
    }
}

/// The key with the access reviews of a route, if it has any.
pub(super) fn review_key(raw: &raw::Route) -> Option<&'static str> {
    let single = raw.access_review.as_ref().map(|_| "access_review");
    single.or_else(|| raw.access_reviews.as_ref().map(|_| "access_reviews"))
}

/// Makes a set of reviews.
type Combine = fn(Box<[ReviewTemplate]>) -> ReviewSet;

/// Builds the access reviews of a route. `Err` when a fault was noted.
pub(super) fn reviews(
    raw: &raw::Route,
    path: &KeyPath,
    kubernetes: Option<&raw::Kubernetes>,
    context: &mut Context<'_>,
) -> Result<Option<ReviewSet>, ()> {
    let several = path.key("access_reviews");
    let (set, key, list): (Combine, _, _) = match (&raw.access_review, &raw.access_reviews) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            let message = "both `access_review` and `access_reviews` are set";
            context.faults.add(&several, message, "move the review into the list of `access_reviews`");
            return Err(());
        }
        (Some(one), None) => {
            let template = review(raw, one, &path.key("access_review"), kubernetes, context)?;
            return Ok(Some(template.into()));
        }
        (None, Some(raw::AccessReviews { all, any })) => match (&**all, &**any) {
            ([], []) => {
                let hint = "write `{ all = [...] }` or `{ any = [...] }`";
                context.faults.add(&several, "there is no review", hint);
                return Err(());
            }
            (all, []) => (ReviewSet::All, "all", all),
            ([], any) => (ReviewSet::Any, "any", any),
            (_, _) => {
                let message = "only one of `all` and `any` may be set";
                context.faults.add(&several, message, "keep one");
                return Err(());
            }
        },
    };
    if list.len() > ReviewSet::MAX {
        let message = format!("{} reviews are too many for one request", list.len());
        context.faults.add(&several.key(key), message, format!("write at most {}", ReviewSet::MAX));
        return Err(());
    }
    let at = several.key(key);
    let built: Vec<_> = list
        .iter()
        .enumerate()
        .map(|(index, one)| review(raw, one, &at.index(index), kubernetes, context))
        .collect();
    built.into_iter().collect::<Result<Box<[_]>, ()>>().map(|templates| Some(set(templates)))
}

/// Builds one access review. `Err` when a fault was noted.
fn review(
    route: &raw::Route,
    raw: &raw::AccessReview,
    path: &KeyPath,
    kubernetes: Option<&raw::Kubernetes>,
    context: &mut Context<'_>,
) -> Result<ReviewTemplate, ()> {
    let attributes = attributes(raw, path, context)?;
    let subject = kubernetes.map(subject).unwrap_or_default();
    let captures =
        route.path.as_ref().and_then(|path| path.template.as_deref()).map(captured_names).unwrap_or_default();
    let built = ReviewTemplate::build(&ReviewSpec { attributes, subject }, &captures);
    built.map_err(|faults| {
        for (key, fault) in faults {
            note(&path.key(key), &fault, context);
        }
    })
}

fn note(path: &KeyPath, fault: &TemplateFault, context: &mut Context<'_>) {
    let text = fault.to_string();
    let (message, hint) = text.split_once(": ").unwrap_or((&text, ""));
    context.faults.add(path, message, hint);
}

fn attributes(
    raw: &raw::AccessReview,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Result<ReviewAttributes<String>, ()> {
    let verb = raw.verb.clone().unwrap_or_else(|| "{method}".into());
    match (&raw.resource, &raw.path) {
        (Some(resource), None) => Ok(ReviewAttributes::Resource {
            namespace: raw.namespace.clone(),
            verb,
            group: raw.api_group.clone(),
            version: raw.api_version.clone(),
            resource: resource.clone(),
            subresource: raw.subresource.clone(),
            name: raw.name.clone(),
        }),
        (None, Some(text)) => {
            let of_objects = [
                ("subresource", &raw.subresource),
                ("api_group", &raw.api_group),
                ("api_version", &raw.api_version),
                ("namespace", &raw.namespace),
                ("name", &raw.name),
            ];
            if let Some((key, _)) = of_objects.iter().find(|(_, text)| text.is_some()) {
                let message = "the key has no effect with `path`";
                context.faults.add(
                    &path.key(key),
                    message,
                    "remove it, or name a `resource` instead of the `path`",
                );
                return Err(());
            }
            Ok(ReviewAttributes::NonResource { path: text.clone(), verb })
        }
        (Some(_), Some(_)) => {
            let message = "a review has a `resource` or a `path`, not both";
            context.faults.add(&path.key("path"), message, "keep one of the two");
            Err(())
        }
        (None, None) => {
            let hint = "name a `resource`, or a `path` that belongs to no object";
            context.faults.add(path, "the review is empty", hint);
            Err(())
        }
    }
}

fn subject(raw: &raw::Kubernetes) -> ReviewSubject {
    ReviewSubject {
        name: match raw.user {
            ReviewedName::User => NameSource::User,
            ReviewedName::Subject => NameSource::Subject,
            ReviewedName::Email => NameSource::Email,
        },
        user_prefix: raw.user_prefix.as_str().into(),
        group_prefix: raw.group_prefix.as_str().into(),
        own_authorities: raw.token_authorities.iter().map(|name| name.0.as_str().into()).collect(),
    }
}

/// Names that a path template captures.
fn captured_names(template: &str) -> Vec<String> {
    let braced = template.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    braced.map(|name| name.strip_suffix("...").unwrap_or(name).to_owned()).collect()
}

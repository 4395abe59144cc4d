//! Ingress (networking.k8s.io/v1).
//!
//! Owns: its hosts, paths, backends and certificates as a [`Demand`].
//! Does not own: whether it is ours ([`super::class`]).
//! Flow: `IngressSpec → Demand`.
//!
//! A host in `spec.tls` is never served in clear text: HTTP leads to HTTPS. The default backend takes
//! the paths of the Ingress's own hosts that no rule matches; in an Ingress without rules it takes all
//! hosts that nobody has.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Backends, Demand, HostDemand, HostTls, PathRule, PlainHttp, annotations, secret_pair};
use crate::attach::patterns_of;
use crate::fault::Fault;
use crate::known::Known;
use crate::names::{Kind, Name, NamespacedName};
use crate::objects::Ingress;
use crate::objects::ingress::{IngressBackend, IngressPath, IngressPort, IngressTls};
use crate::plan::{PathMatch, RuleAction, WeightedBackend};
use crate::settings::Settings;

/// Characters that mean something in patterns of other controllers, and nothing in a path here.
const PATTERN: &[char] = &['*', '(', ')', '[', ']', '^', '$', '|', '\\', '?', '{', '}', '+'];

/// What an Ingress asks for.
pub fn demand(known: &Known, settings: &Settings, ingress: &Ingress) -> Demand {
    if let Some(problem) = &ingress.not_understood {
        return Demand::refuse(Fault::new("UnsupportedValue", format!("not used, because of {problem}")));
    }
    if let Some(fault) = annotations::refused(&ingress.spec.annotations) {
        return Demand::refuse(fault);
    }
    let namespace = &ingress.meta.at.namespace;
    let mut backends =
        Backends { known, kind: Kind::Ingress, namespace, reencrypt: None, faults: Vec::new() };
    let hosts = match hosts(&mut backends, ingress) {
        Ok(hosts) => hosts,
        Err(fault) => return Demand::refuse(fault),
    };
    let mut faults = backends.faults;
    let tls = TlsHosts::of(&ingress.spec.tls);
    let with_tls = |mut host: HostDemand| {
        let entry = tls.entry(host.host.as_ref());
        if !matches!(entry, TlsEntry::None) {
            host.plain = PlainHttp::Redirect(308);
        }
        if let TlsEntry::Secret(name) = entry {
            let named = host.host.as_ref();
            host.tls = certificate((known, settings), &ingress.meta.at, named, name, &mut faults);
        }
        host
    };
    let hosts = hosts.into_iter().map(with_tls).collect();
    Demand { refused: None, faults, hosts }
}

/// The hosts with their rules. An error refuses the whole Ingress: nobody knows which requests the
/// path stands for, and a broader one must not take them.
fn hosts(backends: &mut Backends<'_>, ingress: &Ingress) -> Result<Vec<HostDemand>, Fault> {
    let mut hosts: Vec<HostDemand> = Vec::new();
    let mut indices: BTreeMap<Option<&Name>, usize> = BTreeMap::new();
    for rule in &ingress.spec.rules {
        let host = rule.host.as_ref().filter(|host| !host.is_empty());
        let index = *indices.entry(host).or_insert_with(|| {
            hosts.push(new_host(host.cloned()));
            hosts.len() - 1
        });
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            let (path, backend) = (path_match(path)?, backend(backends, &path.backend));
            hosts[index].rules.push(PathRule { path, action: RuleAction::Forward(Arc::from([backend])) });
        }
    }
    let Some(default) = &ingress.spec.default_backend else { return Ok(hosts) };
    let backend = backend(backends, default);
    if hosts.is_empty() {
        hosts.push(new_host(None));
    }
    for host in &mut hosts {
        let path = PathMatch::default();
        if !host.rules.iter().any(|rule| rule.path == path) {
            host.rules.push(PathRule { path, action: RuleAction::Forward(Arc::from([backend.clone()])) });
        }
    }
    Ok(hosts)
}

fn new_host(host: Option<Name>) -> HostDemand {
    HostDemand { host, rules: Vec::new(), plain: PlainHttp::Serve, tls: HostTls::OfListener }
}

fn path_match(path: &IngressPath) -> Result<PathMatch, Fault> {
    let invalid = |message: String| Err(Fault::new("UnsupportedValue", message));
    let value = path.path.as_deref().filter(|value| !value.is_empty()).unwrap_or("/");
    if !value.starts_with('/') {
        return invalid(format!("path {value} does not begin with /"));
    }
    let is_specific = match path.path_type.as_str() {
        "Exact" => return Ok(PathMatch::Exact(Name::from(value))),
        "Prefix" => false,
        "ImplementationSpecific" => true,
        "" => return invalid(format!("path {value} has no pathType: use Exact or Prefix")),
        other => {
            return invalid(format!("pathType {other} of path {value} is not known: use Exact or Prefix"));
        }
    };
    if is_specific && value.contains(PATTERN) {
        return invalid(format!(
            "path {value} of pathType ImplementationSpecific is a pattern, which is not supported: use Exact or \
             Prefix"
        ));
    }
    // A slash at the end of a prefix says nothing (Ingress, `pathType`).
    let prefix = value.trim_end_matches('/');
    Ok(PathMatch::Prefix(Name::from(if prefix.is_empty() { "/" } else { prefix })))
}

fn backend(backends: &mut Backends<'_>, backend: &IngressBackend) -> WeightedBackend {
    let Some(service) = &backend.service else {
        let what = backend.resource.as_ref().map(|resource| format!("{} {}", resource.kind, resource.name));
        let what = what.unwrap_or_else(|| "nothing".to_owned());
        let message = format!("a backend names {what}, which is not supported: name a Service");
        let target = backends.invalid(Fault::new("InvalidKind", message));
        return WeightedBackend { weight: 1, target, filters: Arc::default() };
    };
    let port = port(backends, &service.name, &service.port);
    backends.target(&service.name, port, 1)
}

/// The number of a port of a Service.
fn port(backends: &Backends<'_>, service: &Name, port: &IngressPort) -> Result<u16, Fault> {
    let at = NamespacedName::new(backends.namespace.clone(), service.clone());
    let not_found = |message: String| Fault::new("BackendNotFound", message);
    match (&port.name, port.number) {
        (Some(name), _) if !name.is_empty() => {
            let spec = backends.known.services.get(&at);
            let spec = spec.ok_or_else(|| not_found(format!("Service {at} does not exist")))?;
            let found = spec.ports.iter().find(|port| port.name == *name).map(|port| port.port);
            found.ok_or_else(|| not_found(format!("Service {at} has no port named {name}")))
        }
        (_, Some(number)) => Ok(number),
        _ => Err(not_found(format!("the reference to Service {at} has no port: set one"))),
    }
}

/// What `spec.tls` says about a host.
enum TlsEntry<'a> {
    None,
    /// With the certificate of the listener.
    WithoutSecret,
    Secret(&'a Name),
}

/// The entries of `spec.tls` by host. An Ingress may have thousands of hosts and of entries, so each host
/// is looked up.
#[derive(Default)]
struct TlsHosts<'a> {
    /// Entries without hosts are for all of them.
    all: Option<HostSecret<'a>>,
    hosts: BTreeMap<&'a Name, HostSecret<'a>>,
}

/// The first Secret of a host, with the number of its entry.
type HostSecret<'a> = Option<(usize, &'a Name)>;

impl<'a> TlsHosts<'a> {
    fn of(entries: &'a [IngressTls]) -> Self {
        let mut found = Self::default();
        for (number, entry) in entries.iter().enumerate() {
            let secret = entry.secret_name.as_ref().filter(|name| !name.is_empty());
            let secret = secret.map(|name| (number, name));
            if entry.hosts.is_empty() {
                let all = found.all.get_or_insert(None);
                *all = all.or(secret);
            }
            for host in &entry.hosts {
                let first = found.hosts.entry(host).or_insert(None);
                *first = first.or(secret);
            }
        }
        found
    }

    /// What is said about a host. If several entries include it, the first with a Secret counts.
    fn entry(&self, host: Option<&Name>) -> TlsEntry<'a> {
        let exact = host.and_then(|host| self.hosts.get(host));
        // A wildcard in a certificate stands for one label.
        let wildcard = host.and_then(|host| patterns_of(host).nth(1).flatten());
        let parent = wildcard.and_then(|pattern| self.hosts.get(&pattern));
        let found = [self.all.as_ref(), exact, parent].into_iter().flatten();
        if found.clone().next().is_none() {
            return TlsEntry::None;
        }
        let first = found.flatten().min_by_key(|(number, _)| *number);
        first.map_or(TlsEntry::WithoutSecret, |(_, name)| TlsEntry::Secret(name))
    }
}

/// The certificate of a host. If it cannot be used, the listener's is.
fn certificate(
    (known, settings): (&Known, &Settings),
    ingress: &NamespacedName,
    host: Option<&Name>,
    secret: &Name,
    faults: &mut Vec<Fault>,
) -> HostTls {
    let at = NamespacedName::new(ingress.namespace.clone(), secret.clone());
    let pair = match host {
        Some(_) => secret_pair(known, settings, &at),
        None => Err(format!("the certificate in Secret {at} is for a rule without a host: set rules.host")),
    };
    pair.map_or_else(
        |problem| {
            let message = format!("{problem}; the certificate of the listener is used");
            let fault = Fault::new("InvalidCertificateRef", message);
            if !faults.contains(&fault) {
                faults.push(fault);
            }
            HostTls::OfListener
        },
        HostTls::Own,
    )
}

//! Ingresses, and the Routes of OpenShift: objects with rules that name no listener.
//!
//! Owns: which of them are ours ([`class`]), what they ask for ([`ingress`], [`route`]), and the
//! listeners of one Gateway that serve them ([`places`]). The operator names the Gateway
//! ([`Settings::ingress_gateway`]).
//! Does not own: whose a host is ([`crate::attach`]), policies ([`crate::policies`]), the plans that
//! all of this becomes ([`crate::world`]).
//! Flow: object → [`Demand`]; each of its hosts → [`Place`]s.
//!
//! A Gateway brings listeners, and says which namespaces may use them. So an Ingress or Route attaches
//! to the listeners of the Gateway as an HTTPRoute without a section would. Its certificate is
//! presented on the HTTPS ports to clients that ask for its host, and changes nothing else: it cannot
//! take a request from another object. All paths of a host belong to the objects that have the host,
//! also those that no rule matches.
//!
//! [`Settings::ingress_gateway`]: crate::settings::Settings::ingress_gateway

mod annotations;
pub mod class;
mod kubernetes;
mod openshift;
mod places;

use std::sync::Arc;

pub use self::kubernetes::demand as ingress;
pub use self::openshift::{demand as route, is_selected};
pub use self::places::{Place, allows, places};
use crate::backends;
use crate::fault::Fault;
use crate::known::Known;
use crate::names::{Kind, Name, NamespacedName};
use crate::objects::core::SecretData;
use crate::objects::reference::BackendObjectReference;
use crate::plan::{BackendTarget, KeyPair, PathMatch, RuleAction, WeightedBackend};
use crate::settings::Settings;

/// What an Ingress or Route asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Why nothing of the object is served.
    pub refused: Option<Fault>,
    /// What else is wrong with it.
    pub faults: Vec<Fault>,
    /// Each host once. Empty if the object is refused.
    pub hosts: Vec<HostDemand>,
}

impl Demand {
    fn refuse(fault: Fault) -> Self {
        Self { refused: Some(fault), ..Self::default() }
    }
}

/// What is served for one host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostDemand {
    /// An exact name, or a wildcard. `None`: every host that nobody else has.
    pub host: Option<Name>,
    /// In the order of the object.
    pub rules: Vec<PathRule>,
    /// What happens over HTTP.
    pub plain: PlainHttp,
    /// What happens over HTTPS.
    pub tls: HostTls,
}

/// A path with what happens to its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct PathRule {
    /// The path.
    pub path: PathMatch,
    /// Where its requests go.
    pub action: RuleAction,
}

/// What happens to requests over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainHttp {
    /// They are served.
    Serve,
    /// The response leads to HTTPS, with this status.
    Redirect(u16),
    /// They are not served.
    Refuse,
}

/// What happens to requests over HTTPS.
#[derive(Clone, Debug, PartialEq)]
pub enum HostTls {
    /// They are not served.
    Refuse,
    /// They are served with the certificate of the listener.
    OfListener,
    /// They are served with this certificate.
    Own(KeyPair),
}

/// A certificate chain and its key, from a Secret or a Route named `at`. The error is a phrase that
/// follows the name of the object.
fn key_pair(settings: &Settings, at: &NamespacedName, data: &SecretData) -> Result<KeyPair, String> {
    let (chain, key) = data.pair(settings.certificate_check)?;
    Ok(KeyPair { secret: at.clone(), chain: chain.clone(), key: key.clone() })
}

/// The certificate in a Secret.
fn secret_pair(known: &Known, settings: &Settings, at: &NamespacedName) -> Result<KeyPair, String> {
    let data = known.secrets.get(at).ok_or_else(|| format!("Secret {at} does not exist"))?;
    key_pair(settings, at, data).map_err(|problem| format!("Secret {at} {problem}"))
}

/// What all backends of an object share.
struct Backends<'a> {
    known: &'a Known,
    kind: Kind,
    namespace: &'a Name,
    /// The Route, if its TLS counts.
    reencrypt: Option<&'a NamespacedName>,
    /// Why some of them cannot be used.
    faults: Vec<Fault>,
}

impl Backends<'_> {
    /// A port of a Service of the object's namespace. If it cannot be used, its share of the requests
    /// gets 500, and the reason is noted.
    fn target(&mut self, service: &Name, port: Result<u16, Fault>, weight: u32) -> WeightedBackend {
        let key = port.and_then(|port| {
            let (group, kind, namespace) = (None, None, None);
            let reference =
                BackendObjectReference { group, kind, name: service.clone(), namespace, port: Some(port) };
            let Self { known, kind, namespace, reencrypt, .. } = self;
            let key = backends::resolve_for(known, *kind, namespace, &reference, *reencrypt)?;
            match (reencrypt, backends::upstream(known, &key)) {
                (_, Some(_)) => Ok(key),
                (None, None) => {
                    let message = format!("the BackendTLSPolicy of Service {} is not valid", key.service);
                    Err(Fault::new("BackendNotFound", message))
                }
                (Some(route), None) => {
                    let problem = backends::reencrypt_tls(known, route, &key.service).err();
                    Err(Fault::new("InvalidCACertificateRef", problem.unwrap_or_default()))
                }
            }
        });
        let target = match key {
            Ok(key) => BackendTarget::Upstream(key),
            Err(fault) => self.invalid(fault),
        };
        WeightedBackend { weight, target, filters: Arc::default() }
    }

    /// A backend that cannot be used.
    fn invalid(&mut self, fault: Fault) -> BackendTarget {
        let message = Name::from(fault.message.as_str());
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
        BackendTarget::Invalid(message)
    }
}

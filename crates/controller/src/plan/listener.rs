//! Sockets of Gateways and what is served on them.
//!
//! Owns: the types of listeners and their TLS.
//! Does not own: merging listeners of ListenerSets ([`crate::listeners`]).
//! Flow: [`GatewayPlan`] → sockets → listeners.

#![allow(missing_docs, reason = "fields without a comment are what the standard calls so")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::names::{Name, NamespacedName, ObjectKey};
use crate::objects::Seconds;
use crate::objects::core::PrivateKey;

/// Everything of one Gateway that the data plane needs.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayPlan {
    pub gateway: NamespacedName,
    /// When the Gateway was created. The older of two wins what only one can have.
    pub created: Seconds,
    /// Sorted by port.
    pub sockets: Vec<SocketPlan>,
    /// Labels and annotations for what is created for the Gateway, such as a Service.
    pub labels: BTreeMap<Name, Name>,
    pub annotations: BTreeMap<Name, Name>,
    /// Addresses that the Gateway requests. Empty: any address.
    pub requested_addresses: Vec<String>,
}

/// A port of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId {
    pub gateway: NamespacedName,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SocketPlan {
    pub id: SocketId,
    pub protocol: SocketProtocol,
    /// In the order of precedence: those of the Gateway, then of ListenerSets, the oldest first. A
    /// request belongs to the listener with the most specific hostname.
    pub listeners: Vec<ListenerPlan>,
    /// Hostnames of accepted listeners that cannot be served. No listener has requests for them.
    pub reserved_hosts: Vec<Name>,
    /// Certificates for single hosts of these listeners, sorted by host. They are presented to clients
    /// that ask for the host, unless a listener has the host as its hostname. They change nothing
    /// else: requests belong to the listener as without them.
    pub certificates: Vec<HostCertificate>,
}

/// The certificate of an Ingress or Route for one of its hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct HostCertificate {
    /// An exact name, or a wildcard such as `*.example.com`.
    pub host: Name,
    pub pair: KeyPair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketProtocol {
    Http,
    Https,
}

/// A listener: an entry of a Gateway or ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId {
    pub parent: ObjectKey,
    pub section: Name,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ListenerPlan {
    pub id: ListenerId,
    /// An exact name, or a wildcard such as `*.example.com`. `None` matches every host.
    pub hostname: Option<Name>,
    /// Present on sockets with [`SocketProtocol::Https`].
    pub tls: Option<ListenerTls>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ListenerTls {
    /// At least one. Which one is served follows from the name that the client asks for.
    pub certificates: Vec<KeyPair>,
    pub client_validation: Option<ClientValidation>,
    /// Options of the listener, which the standard leaves to implementations.
    pub options: BTreeMap<Name, Name>,
}

/// A certificate chain and its key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyPair {
    /// The Secret that they are from, or the Route that has them itself.
    pub secret: NamespacedName,
    /// The chain in PEM.
    pub chain: Arc<[u8]>,
    pub key: PrivateKey,
}

/// Validation of client certificates.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientValidation {
    /// Certificate authorities in PEM, one text for each reference.
    pub authorities: Vec<Arc<[u8]>>,
    /// Whether clients without a valid certificate are served too (`AllowInsecureFallback`).
    pub allows_invalid: bool,
}

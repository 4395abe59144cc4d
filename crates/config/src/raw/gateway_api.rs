//! Tables of `[gateway_api]`: routes, listeners and policies from objects of a Kubernetes cluster.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::Network;
use super::is_default;
use super::listener::{Limits, ListenerTimeouts, Protocol, TrustedProxies, protocols};
use super::listener_tls::{CipherSuite, KeyExchangeGroup, TlsProfile, TlsVersion};

/// Gateway API: this process serves the Gateways of a Kubernetes cluster, with their routes and
/// `AccessPolicy` objects, beside the listeners and routes of the file. Policies of the cluster may
/// name `issuer`, `token_authority`, `authorizer`, `policies` and `[login]` of the file. Read at start
/// only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayApi {
    /// Name of this controller. The classes that have it as `spec.controllerName` are served.
    pub controller_name: String,
    /// File that says how to reach the API server (kubeconfig). Default: the service account of the
    /// pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespaces whose objects count. A right to list and watch is needed in these only, and for
    /// classes and namespaces in the whole cluster. Default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// What happens to requests for a route that no `AccessPolicy` reaches.
    pub default_policy: DefaultPolicy,
    /// Fields of policies of the cluster that pass credentials of callers on to services, accept
    /// passwords, or query an authorizer. A policy with such a field that is not listed here is
    /// refused by a condition, and its routes are closed. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies_may_use: Vec<PolicyPermission>,
    /// Whether fields of the experimental channel of the Gateway API count: the filter `ExternalAuth`
    /// and `retry` of an `HTTPRoute`. With `ExternalAuth`, owners of routes give the credentials of
    /// callers to a Service of their choice. Default: a route with one is refused by a condition.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub experimental: bool,
    /// Whether a host name on a listener belongs to the namespace of the oldest route that has it.
    /// Routes of other namespaces with that name are then refused by a condition. Default: routes of
    /// all namespaces share names, as the Gateway API permits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exclusive_hosts: bool,
    /// Gateway whose listeners serve `Ingress` and `OpenShift` `Route` objects: its namespace and its
    /// name, `infra/ingress`. Default: these objects are not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_gateway: Option<String>,
    /// Labels that a `Route` of `OpenShift` must have to be served. Default: every `Route` is.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub route_labels: BTreeMap<String, String>,
    /// Namespace of this process, for its Lease and for the Services of Gateways. Default: that of
    /// the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the Lease (coordination.k8s.io/v1) by which replicas agree which of them writes status
    /// and Services.
    pub lease: String,
    /// IP address at which ports of Gateways are served. `"::"` means IPv6 only.
    pub bind: IpAddr,
    /// Service of type `LoadBalancer` for each Gateway, so that several Gateways can have the same
    /// port. Default: none; the ports of Gateways are served at `bind` as they are written, and two
    /// Gateways cannot share one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<GatewayService>,
    /// IP addresses at which clients reach the Gateways, for their status. Not allowed with
    /// `service`, whose load balancer states them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Zone of this process (`topology.kubernetes.io/zone` of its node). Endpoints that are meant for
    /// it by hints are preferred. Default: hints are not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// File with the zone of this process, such as a file of the pod's downward API. It may be empty:
    /// hints are not used then. Not allowed with `zone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_file: Option<PathBuf>,
    /// Which routes have metrics of their own, beside those of their listeners. Default: `labeled`.
    #[serde(skip_serializing_if = "is_default")]
    pub route_metrics: RouteMetrics,
    /// Settings of all listeners of Gateways.
    #[serde(skip_serializing_if = "is_default")]
    pub listener: GatewayListener,
}

impl Default for GatewayApi {
    fn default() -> Self {
        Self {
            controller_name: "postern.dev/gateway-controller".into(),
            kubeconfig: None,
            namespaces: Vec::new(),
            default_policy: DefaultPolicy::Deny,
            policies_may_use: Vec::new(),
            experimental: false,
            exclusive_hosts: false,
            ingress_gateway: None,
            route_labels: BTreeMap::new(),
            namespace: None,
            lease: "postern-gateway-api".into(),
            bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            service: None,
            addresses: Vec::new(),
            zone: None,
            zone_file: None,
            route_metrics: RouteMetrics::Labeled,
            listener: GatewayListener::default(),
        }
    }
}

/// What happens to requests for a route that no `AccessPolicy` reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DefaultPolicy {
    /// They are refused (403).
    #[default]
    Deny,
    /// Everybody may pass, without a credential.
    Public,
}

/// Fields of an `AccessPolicy` that the operator permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyPermission {
    /// An authorizer of the operator is queried.
    Authorizer,
    /// Passwords of the operator's `[basic_auth]` are a credential.
    BasicAuth,
    /// A service receives the access token of a session.
    ForwardAccessToken,
    /// A service receives the client's `Authorization` header.
    ForwardAuthorization,
    /// A service receives an `Authorization` header that is not for the gateway, beside a session.
    ApplicationAuthorization,
}

impl PolicyPermission {
    /// The name of the field, as policies and `policies_may_use` have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Authorizer => "authorizer",
            Self::BasicAuth => "basic_auth",
            Self::ForwardAccessToken => "forward_access_token",
            Self::ForwardAuthorization => "forward_authorization",
            Self::ApplicationAuthorization => "application_authorization",
        }
    }
}

/// Which routes have metrics of their own. Each has up to 15 series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RouteMetrics {
    /// None.
    Off,
    /// Routes with the label `postern.dev/route-metrics` and the value `true`.
    #[default]
    Labeled,
    /// All. For a few hundred routes.
    All,
}

/// Services of Gateways. Each has the port of its Gateway, and sends it to a port of the pods that
/// only this Gateway has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayService {
    /// Labels of the pods of this process.
    #[schemars(length(min = 1))]
    pub selector: BTreeMap<String, String>,
    /// First port of the pods that may serve a Gateway. No listener, nor the admin listener or the
    /// provider, may have a port of this range.
    #[serde(default = "first_port")]
    #[schemars(range(min = 1024))]
    pub first_port: u16,
    /// Last port of the pods that may serve a Gateway.
    #[serde(default = "last_port")]
    #[schemars(range(min = 1024))]
    pub last_port: u16,
    /// Nodes at which a load balancer may deliver connections (`externalTrafficPolicy` of the
    /// Services). `Local`: those with a pod of this process; clients keep their addresses. `Cluster`:
    /// all; kube-proxy then replaces addresses of clients by those of nodes, and rules by `addresses`
    /// see these.
    #[serde(default)]
    pub external_traffic_policy: ExternalTrafficPolicy,
}

/// Nodes at which a load balancer may deliver connections to the Service of a Gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExternalTrafficPolicy {
    /// Those with a pod of this process. The addresses of clients are kept.
    #[default]
    Local,
    /// All. A client can have the address of a node.
    Cluster,
}

impl ExternalTrafficPolicy {
    /// The value of `spec.externalTrafficPolicy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "Local",
            Self::Cluster => "Cluster",
        }
    }
}

const fn first_port() -> u16 {
    20_000
}

const fn last_port() -> u16 {
    29_999
}

/// Settings of the listeners of Gateways. Their ports, protocols of TLS and certificates are those of
/// the Gateways.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayListener {
    /// Protocols that the listeners accept, as in `[[listener]]`.
    #[schemars(length(min = 1))]
    pub protocols: Vec<Protocol>,
    /// Peers (load balancers) that begin each connection with a PROXY protocol header, as in
    /// `[[listener]]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proxy_protocol_from: Vec<Network>,
    /// Confirms that a `proxy_protocol_from` that covers every address is intended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub proxy_protocol_from_anyone: bool,
    /// Proxies in front that report where their requests come from, as in `[[listener]]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted_proxies: Option<TrustedProxies>,
    /// Versions, cipher suites and groups of TLS.
    #[serde(skip_serializing_if = "is_default")]
    pub tls: GatewayTls,
    /// Limits of one connection and of each listener.
    pub limits: Limits,
    /// Time limits of each step.
    pub timeouts: ListenerTimeouts,
}

impl Default for GatewayListener {
    fn default() -> Self {
        Self {
            protocols: protocols(),
            proxy_protocol_from: Vec::new(),
            proxy_protocol_from_anyone: false,
            trusted_proxies: None,
            tls: GatewayTls::default(),
            limits: Limits::default(),
            timeouts: ListenerTimeouts::default(),
        }
    }
}

/// Versions, cipher suites and groups of TLS, as in `[listener.tls]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayTls {
    /// Versions, cipher suites and groups, as Mozilla recommends. Default: `intermediate`.
    #[serde(skip_serializing_if = "is_default")]
    pub profile: TlsProfile,
    /// Lowest version of TLS. Default: that of the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_version: Option<TlsVersion>,
    /// Permitted cipher suites, by their IANA names. Default: those of the profile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cipher_suites: Vec<CipherSuite>,
    /// Permitted groups for the key exchange, by their IANA names, preferred first. Default: those of
    /// `[listener.tls]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<KeyExchangeGroup>,
}

//! Endpoints: the current endpoints of an upstream, as one control task determines them for all
//! workers.
//!
//! Owns: which addresses make up an endpoint, and the list that workers receive. Does not own:
//! looking up names ([`super::resolver`], [`super::discovery`]), connections ([`super::pool`]).

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

use crate::config::{Endpoint, Upstream};

/// Receives the current endpoints of an upstream whenever they change.
pub type EndpointUpdates = watch::Receiver<Arc<EndpointList>>;

/// The current endpoints of an upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointList {
    /// In the order of the configuration, then by address, each with its health.
    pub endpoints: Vec<(ActiveEndpoint, Health)>,
    /// Whether a name was not looked up yet, so that there may be more endpoints in a moment.
    pub is_pending: bool,
    /// Why names have no address, for requests that find no endpoint.
    pub problem: Option<Arc<str>>,
}

/// What active health checks say about an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It passes its checks, or is not checked at all.
    Healthy,
    /// No check has ended yet. It receives requests if no endpoint is healthy.
    #[default]
    Unchecked,
    /// It fails its checks, and receives no requests.
    Unhealthy,
}

/// An endpoint that requests can be sent to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ActiveEndpoint {
    /// Index in [`Upstream::endpoints`].
    pub configured: usize,
    /// Its addresses, in ascending order; none for a Unix socket. Two are the IPv4 and the IPv6
    /// address of the same server.
    pub addresses: Arc<[SocketAddr]>,
}

impl ActiveEndpoint {
    /// The endpoint without a lookup; `None`: it has a name.
    pub(super) fn fixed(configured: usize, endpoint: &Endpoint) -> Option<Self> {
        let addresses: Arc<[SocketAddr]> = match endpoint {
            Endpoint::Unix(_) => Arc::default(),
            Endpoint::Tcp { .. } => [endpoint.ip()?].into(),
        };
        Some(Self { configured, addresses })
    }

    /// Its name in logs and metrics: the first address, or the path of the Unix socket.
    pub fn label(&self, upstream: &Upstream) -> String {
        match self.addresses.first() {
            Some(address) => address.to_string(),
            None => upstream.endpoints.get(self.configured).map(ToString::to_string).unwrap_or_default(),
        }
    }
}

/// Groups the addresses of a name into endpoints. One address of each family is one server that can
/// be reached in two ways. Otherwise each address is an endpoint.
pub(super) fn group(addresses: &[SocketAddr]) -> Vec<Arc<[SocketAddr]>> {
    match addresses {
        [one, other] if one.is_ipv4() != other.is_ipv4() => vec![addresses.into()],
        _ => addresses.iter().map(|address| [*address].into()).collect(),
    }
}

/// The endpoints of an upstream without names; `None`: a name has to be looked up.
pub fn fixed(upstream: &Upstream) -> Option<EndpointList> {
    let endpoints = upstream.endpoints.iter().enumerate();
    let endpoints = endpoints
        .map(|(at, endpoint)| Some((ActiveEndpoint::fixed(at, &endpoint.address)?, Health::Healthy)));
    Some(EndpointList { endpoints: endpoints.collect::<Option<_>>()?, is_pending: false, problem: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_of_each_family_is_one_endpoint() {
        let of =
            |text: &str| text.split_whitespace().map(|a| a.parse().unwrap()).collect::<Vec<SocketAddr>>();
        for (addresses, sizes) in [
            ("127.0.0.1:80 [::1]:80", &[2][..]),
            ("10.0.0.1:80", &[1]),
            ("10.0.0.1:80 10.0.0.2:80", &[1, 1]),
            ("10.0.0.1:80 10.0.0.2:80 [fd00::1]:80 [fd00::2]:80", &[1, 1, 1, 1]),
            ("", &[]),
        ] {
            let groups = group(&of(addresses));
            assert_eq!(groups.iter().map(|group| group.len()).collect::<Vec<_>>(), sizes, "{addresses}");
        }
    }
}

//! Trust lists: networks that have a privilege.

use ipnet::{IpNet, Ipv6Net};

use super::super::fault::KeyPath;
use super::super::scalar::Network;
use super::Context;

/// A list of networks, and the key that confirms that all addresses are intended.
pub(super) struct TrustList<'a> {
    pub(super) networks: &'a [Network],
    pub(super) path: KeyPath,
    /// Whether `anyone_key` is set.
    pub(super) anyone: bool,
    /// Path of the confirming key.
    pub(super) anyone_path: KeyPath,
    /// What any client could do then. Completes "so anyone …".
    pub(super) consequence: &'static str,
}

impl TrustList<'_> {
    /// Returns the networks. Refuses a list that covers every address of a family, in however many
    /// parts, unless the confirming key is set.
    pub(super) fn check(self, context: &mut Context<'_>) -> Vec<IpNet> {
        let networks: Vec<IpNet> = self.networks.iter().map(|n| n.0).collect();
        let everyone = IpNet::aggregate(&networks).into_iter().find(covers_a_family);
        match (everyone, self.anyone) {
            (Some(net), false) => {
                let family = if net.network().is_ipv4() { "IPv4" } else { "IPv6" };
                let message =
                    format!("the list covers every {family} address, so anyone {}", self.consequence);
                let key = self.anyone_path.last_key().unwrap_or_default();
                let hint = format!("list the intended networks, or write `{key} = true` for all");
                context.faults.add(&self.path, message, hint);
            }
            (None, true) => {
                let message = "the key has no effect: the list does not cover every address";
                context.faults.add(
                    &self.anyone_path,
                    message,
                    "remove this key, or add \"0.0.0.0/0\" and \"::/0\"",
                );
            }
            _ => {}
        }
        networks
    }
}

/// Whether the network covers all of IPv4, all of IPv6, or all IPv4-mapped IPv6 addresses.
fn covers_a_family(net: &IpNet) -> bool {
    const MAPPED: Ipv6Net = Ipv6Net::new_assert(std::net::Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);
    match net {
        IpNet::V4(net) => net.prefix_len() == 0,
        IpNet::V6(net) => net.contains(&MAPPED) || net.prefix_len() == 0,
    }
}

//! Resolver: the addresses of an upstream's host name, and how long they are valid.
//!
//! Owns: where a name is looked up (the hosts file, then DNS as `resolv.conf` says, then the
//! system's resolver), and which of its addresses are usable from here. Does not own: when a name
//! is looked up again ([`super::discovery`]).
//!
//! The system's resolver alone would not do, because it does not report the time to live. It is
//! asked last, for names that only the system knows: by multicast DNS, or in unusual notation.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, TokioResolver};

/// How long an address is used whose source reports no time to live: a hosts file, the system's
/// resolver. Reading it again costs little.
const DEFAULT_TTL: Duration = Duration::from_secs(5);

/// Maximum number of addresses of a name. Each is an endpoint with its own metrics.
const MAX_ADDRESSES: usize = 256;

/// Looks names up as the system is configured. Its files are read for each lookup, so changes apply
/// at once.
#[derive(Debug, Clone)]
pub struct Resolver {
    resolv_conf: PathBuf,
    hosts: PathBuf,
    /// Port of the name servers; `None`: 53.
    port: Option<u16>,
    /// Whether names that are found nowhere are looked up by the system's resolver.
    asks_system: bool,
}

/// The addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// In ascending order, without duplicates, at least one.
    pub addresses: Vec<SocketAddr>,
    /// How long they are valid.
    pub ttl: Duration,
}

/// Why a name has no address.
#[derive(Debug, thiserror::Error)]
#[error("looking up {host:?}: {why}")]
pub struct LookupError {
    host: Box<str>,
    why: Box<str>,
}

impl Resolver {
    /// Looks names up by `/etc/hosts`, `/etc/resolv.conf` and the system's resolver.
    pub fn system() -> Self {
        Self {
            resolv_conf: "/etc/resolv.conf".into(),
            hosts: "/etc/hosts".into(),
            port: None,
            asks_system: true,
        }
    }

    /// Looks names up by these files only, with name servers on another port.
    #[cfg(any(test, feature = "test_support"))]
    pub fn from_files(resolv_conf: PathBuf, hosts: PathBuf, port: u16) -> Self {
        Self { resolv_conf, hosts, port: Some(port), asks_system: false }
    }

    /// The addresses of a host.
    ///
    /// # Errors
    /// No source knows the name, or none answers.
    pub async fn lookup(&self, host: &str, port: u16) -> Result<Resolved, LookupError> {
        let found = match self.in_hosts(host).await {
            Some(addresses) => Ok((with_port(addresses, port), DEFAULT_TTL)),
            None => self.in_dns(host).await.map(|(addresses, ttl)| (with_port(addresses, port), ttl)),
        };
        let found = match found {
            Err(why) if self.asks_system => {
                match tokio::net::lookup_host((host, port)).await.map(Iterator::collect::<Vec<_>>) {
                    Ok(addresses) if !addresses.is_empty() => Ok((addresses, DEFAULT_TTL)),
                    _ => Err(why),
                }
            }
            found => found,
        };
        match found {
            Ok((addresses, ttl)) => Ok(Resolved { addresses: usable(addresses, has_route), ttl }),
            Err(why) => Err(LookupError { host: host.into(), why: why.into() }),
        }
    }

    /// Addresses in the hosts file. As with the system's resolver, DNS is not asked for a name that
    /// is in the file.
    async fn in_hosts(&self, host: &str) -> Option<Vec<IpAddr>> {
        let text = tokio::fs::read(&self.hosts).await.ok()?;
        let mut hosts = Hosts::default();
        hosts.read_hosts_conf(text.as_slice()).ok()?;
        let mut name = Name::from_utf8(host.to_ascii_lowercase()).ok()?;
        name.set_fqdn(true);
        let families = [RecordType::A, RecordType::AAAA];
        let found = families.iter().filter_map(|family| {
            let found = hosts.lookup_static_host(&Query::query(name.clone(), *family))?;
            Some(found.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>())
        });
        Some(found.flatten().collect::<Vec<_>>()).filter(|found| !found.is_empty())
    }

    /// Addresses in DNS, with search domains and `ndots`.
    async fn in_dns(&self, host: &str) -> Result<(Vec<IpAddr>, Duration), String> {
        let (config, options) = self.servers().await?;
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).with_options(options);
        let options = builder.options_mut();
        options.use_hosts_file = ResolveHosts::Never;
        // When to look up again is decided by the caller.
        options.cache_size = 0;
        let resolver = builder.build().map_err(|error| error.to_string())?;
        let found = resolver.lookup_ip(host).await.map_err(|error| error.to_string())?;
        let ttl = found.as_lookup().answers().iter().map(|record| record.ttl).min();
        let addresses: Vec<_> = found.iter().collect();
        if addresses.is_empty() {
            return Err("the name has no address".into());
        }
        Ok((addresses, ttl.map_or(DEFAULT_TTL, |ttl| Duration::from_secs(ttl.into()))))
    }

    async fn servers(&self) -> Result<(ResolverConfig, ResolverOpts), String> {
        let unusable = |error: &dyn std::fmt::Display| format!("{}: {error}", self.resolv_conf.display());
        let text = tokio::fs::read(&self.resolv_conf).await.map_err(|error| unusable(&error))?;
        let (config, options) = parse_resolv_conf(text).map_err(|error| unusable(&error))?;
        let Some(port) = self.port else { return Ok((config, options)) };
        let mut servers = config.name_servers().to_vec();
        for connection in servers.iter_mut().flat_map(|server| &mut server.connections) {
            connection.port = port;
        }
        Ok((ResolverConfig::from_parts(None, config.search().to_vec(), servers), options))
    }
}

fn with_port(addresses: Vec<IpAddr>, port: u16) -> Vec<SocketAddr> {
    addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect()
}

/// Sorts addresses and merges duplicates, so that the order of answers does not matter. Addresses
/// to which this machine has no route are left out if there are others: many networks have no IPv6,
/// and many names have addresses of both families.
fn usable(mut addresses: Vec<SocketAddr>, has_route: impl Fn(&SocketAddr) -> bool) -> Vec<SocketAddr> {
    addresses.sort_unstable();
    addresses.dedup();
    let mut reachable = addresses.clone();
    reachable.retain(has_route);
    let mut usable = if reachable.is_empty() { addresses } else { reachable };
    usable.truncate(MAX_ADDRESSES);
    usable
}

/// Whether the system has a route to the address. Connecting a datagram socket sends nothing.
fn has_route(address: &SocketAddr) -> bool {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Without the whole family there is no socket either.
    let Ok(socket) = UdpSocket::bind((any, 0)) else { return false };
    !socket.connect(address).is_err_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::AddrNotAvailable
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::name_server::NameServer;
    use super::*;

    fn socket_addresses(text: &str) -> Vec<SocketAddr> {
        text.split_whitespace().map(|address| address.parse().unwrap()).collect()
    }

    #[tokio::test]
    async fn all_addresses_of_both_families_are_found_with_their_time_to_live() {
        let (server, dir) = (NameServer::start(), tempfile::tempdir().unwrap());
        let resolver = server.resolver(dir.path(), "", "");
        server.set("app.test", &["127.0.0.3", "127.0.0.2", "127.0.0.3", "::1"], 7);
        let found = resolver.lookup("app.test", 80).await.unwrap();
        let expected = socket_addresses("127.0.0.2:80 127.0.0.3:80 [::1]:80");
        // A machine without IPv6 has no route to it.
        let expected: Vec<_> = expected.into_iter().filter(has_route).collect();
        assert_eq!(found, Resolved { addresses: expected, ttl: Duration::from_secs(7) });
        // Nothing is remembered between two lookups.
        server.set("app.test", &["127.0.0.4"], 8);
        let found = resolver.lookup("APP.test.", 80).await.unwrap();
        assert_eq!(found.addresses, socket_addresses("127.0.0.4:80"));
    }

    #[tokio::test]
    async fn search_domains_and_ndots_apply() {
        let (server, dir) = (NameServer::start(), tempfile::tempdir().unwrap());
        server.set("web.team.svc.test", &["127.0.0.2"], 1);
        server.set("web.team", &["127.0.0.9"], 1);
        for (options, found) in [
            ("search none.test svc.test\noptions ndots:5", "127.0.0.2:1"),
            ("search none.test svc.test\noptions ndots:1", "127.0.0.9:1"),
        ] {
            let resolver = server.resolver(dir.path(), options, "");
            let relative = resolver.lookup("web.team", 1).await.unwrap();
            assert_eq!(relative.addresses, socket_addresses(found), "{options}");
            let absolute = resolver.lookup("web.team.", 1).await.unwrap();
            assert_eq!(absolute.addresses, socket_addresses("127.0.0.9:1"), "the final dot ends the search");
        }
    }

    #[tokio::test]
    async fn the_hosts_file_comes_first_and_is_read_again() {
        let (server, dir) = (NameServer::start(), tempfile::tempdir().unwrap());
        server.set("app.test", &["127.0.0.9"], 1);
        let resolver = server.resolver(dir.path(), "", "# local\n127.0.0.2 other App.Test # web\n");
        let found = resolver.lookup("app.test", 80).await.unwrap();
        assert_eq!(found, Resolved { addresses: socket_addresses("127.0.0.2:80"), ttl: DEFAULT_TTL });
        assert_eq!(server.queries("app.test"), 0);
        std::fs::write(dir.path().join("hosts"), "").unwrap();
        assert_eq!(
            resolver.lookup("app.test", 80).await.unwrap().addresses,
            socket_addresses("127.0.0.9:80")
        );
    }

    #[tokio::test]
    async fn long_answers_are_fetched_over_tcp() {
        let (server, dir) = (NameServer::start(), tempfile::tempdir().unwrap());
        let many: Vec<String> = (1..=250).map(|host| format!("127.0.1.{host}")).collect();
        server.set("pods.test", &many.iter().map(String::as_str).collect::<Vec<_>>(), 1);
        let found = server.resolver(dir.path(), "", "").lookup("pods.test", 80).await.unwrap();
        assert_eq!(found.addresses.len(), 250);
    }

    #[tokio::test]
    async fn an_unknown_name_and_a_broken_server_are_named() {
        let (server, dir) = (NameServer::start(), tempfile::tempdir().unwrap());
        let resolver = server.resolver(dir.path(), "options timeout:1 attempts:1", "");
        let error = resolver.lookup("none.test", 80).await.unwrap_err().to_string();
        assert!(error.starts_with("looking up \"none.test\": "), "{error}");
        server.set("none.test", &[], 1);
        resolver.lookup("none.test", 80).await.unwrap_err();
        server.set("none.test", &["127.0.0.1"], 1);
        resolver.lookup("none.test", 80).await.unwrap();
        server.set_broken(true);
        resolver.lookup("none.test", 80).await.unwrap_err();
        std::fs::write(dir.path().join("resolv.conf"), "").unwrap();
        let error = resolver.lookup("none.test", 80).await.unwrap_err().to_string();
        assert!(error.contains("resolv.conf"), "{error}");
    }

    #[tokio::test]
    async fn the_system_is_asked_for_what_is_found_nowhere_else() {
        let (server, dir) = (NameServer::start(), tempfile::tempdir().unwrap());
        let resolver = Resolver { asks_system: true, ..server.resolver(dir.path(), "", "") };
        // Notation that only the system's resolver reads.
        let found = resolver.lookup("127.1", 80).await.unwrap();
        assert_eq!(found, Resolved { addresses: socket_addresses("127.0.0.1:80"), ttl: DEFAULT_TTL });
    }

    #[test]
    fn addresses_without_a_route_are_left_out_if_there_are_others() {
        let both = "10.0.0.2:80 [fd00::1]:80 10.0.0.1:80 10.0.0.2:80";
        for (with_route, left) in [
            (&["10.0.0.1:80", "10.0.0.2:80"][..], "10.0.0.1:80 10.0.0.2:80"),
            (&[], "10.0.0.1:80 10.0.0.2:80 [fd00::1]:80"),
        ] {
            let has_route = |address: &SocketAddr| with_route.contains(&address.to_string().as_str());
            assert_eq!(usable(socket_addresses(both), has_route), socket_addresses(left));
        }
        let many = (0..=u8::MAX).flat_map(|a| [0, 1].map(|b| SocketAddr::from(([10, 0, b, a], 80))));
        assert_eq!(usable(many.collect(), |_| true).len(), MAX_ADDRESSES);
    }
}

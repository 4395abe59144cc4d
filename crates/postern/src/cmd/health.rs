//! `postern health`: asks a running process on this machine whether it is ready, or alive.
//!
//! Owns: finding its admin listener, and the result as an exit code, for probes that run a command:
//! `exec` probes of Kubernetes, `HEALTHCHECK` of a Docker image.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use http::Method;
use http_engine::outbound_proxy::OutboundProxies;
use http_engine::url::Url;

use crate::client::{Client, Version};
use crate::exit::{Failure, Outcome};

/// Arguments of `postern health`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  postern health postern.toml                  by the configuration that the process runs with
  postern health --address 127.0.0.1:9901      without it
  postern health --address 127.0.0.1:9901 --live

Exit codes: 0 ready (or alive), 1 not ready, 2 the command line is invalid, 3 no answer.")]
pub struct Arguments {
    /// The configuration file. Only its table `admin` is read.
    #[arg(value_name = "FILE", required_unless_present_any = ["config", "address"])]
    file: Option<PathBuf>,
    /// The configuration file, as `postern serve` takes it.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Address of the admin listener, instead of a configuration file.
    #[arg(long, value_name = "IP:PORT", conflicts_with_all = ["file", "config"])]
    address: Option<SocketAddr>,
    /// Ask whether the process is alive, instead of whether it is ready for requests.
    #[arg(long)]
    live: bool,
}

/// Runs `postern health`.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let address = match (&arguments.address, arguments.file.as_ref().or(arguments.config.as_ref())) {
        (Some(address), _) => *address,
        (None, Some(file)) => {
            let admin = config::admin_of_file(file).map_err(Failure::new)?;
            if !admin.enabled {
                let file = file.display();
                return Err(Failure::new(format!(
                    "{file} has no admin listener: set `admin.enabled = true`"
                )));
            }
            admin.address.0
        }
        (None, None) => return Err(Failure::usage("give the configuration file, or --address")),
    };
    let path = if arguments.live { "livez" } else { "readyz" };
    let url = format!("http://{}/{path}", reachable(address));
    let url = Url::parse(&url).map_err(|error| Failure::new(format!("{url}: {error}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
    // The process is on this machine: a proxy could only reach another one.
    let client = Client::new(None, OutboundProxies::default());
    let reply = runtime.block_on(client.send(Version::Http1, Method::GET, &url, &[], ""));
    let reply = reply.map_err(Failure::new)?;
    anstream::print!("{}", String::from_utf8_lossy(&reply.body));
    Ok(if reply.status.is_success() { Outcome::Success } else { Outcome::Negative })
}

/// The address at which a client on this machine reaches a listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_of_all_addresses_is_asked_on_loopback() {
        for (listens, asked) in [
            ("0.0.0.0:9901", "127.0.0.1:9901"),
            ("[::]:9901", "[::1]:9901"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("[2001:db8::1]:1", "[2001:db8::1]:1"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), asked);
        }
    }
}

//! Ports that the demo listens on.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use http_engine::config::ListenAddress;

use crate::exit::Failure;

/// Number of consecutive ports: gateway, provider, service and admin listener.
const COUNT: u16 = 4;

/// Which ports to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Any free ports.
    Free,
    /// Exactly the ports from this one on, because the command line names them.
    From(u16),
    /// The ports from this one on, or free ones for those in use.
    PreferablyFrom(u16),
}

impl Wanted {
    /// Ports that `--port` selects.
    pub(super) fn from_option(port: Option<u16>, usual: u16) -> Self {
        match port {
            Some(0) => Self::Free,
            Some(first) => Self::From(first),
            None => Self::PreferablyFrom(usual),
        }
    }
}

/// Addresses of the parts of the demo.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    pub(super) gateway: SocketAddr,
    pub(super) provider: SocketAddr,
    pub(super) service: SocketAddr,
    pub(super) admin: SocketAddr,
}

impl Addresses {
    /// The addresses with consecutive ports from this one on.
    ///
    /// # Errors
    /// When there are not enough ports after this one.
    pub(super) fn from_port(first: u16) -> Result<Self, Failure> {
        let address = |offset| Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port_after(first, offset)?)));
        Ok(Self::of([address(0)?, address(1)?, address(2)?, address(3)?]))
    }

    fn of([gateway, provider, service, admin]: [SocketAddr; COUNT as usize]) -> Self {
        Self { gateway, provider, service, admin }
    }
}

/// Ports that were free a moment ago.
pub(super) struct Ports {
    pub(super) addresses: Addresses,
    /// Wanted ports that were in use.
    pub(super) in_use: Vec<u16>,
}

impl Ports {
    /// Chooses four ports, each free when it was tried.
    ///
    /// # Errors
    /// When a port that the command line names is in use, and when no port is free.
    pub(super) fn choose(wanted: Wanted) -> Result<Self, Failure> {
        let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let mut moved = Vec::new();
        let mut one = |offset: u16| -> Result<TcpListener, Failure> {
            let first = match wanted {
                Wanted::Free => return bind(0).map_err(|error| bind_error(&error)),
                Wanted::From(first) | Wanted::PreferablyFrom(first) => first,
            };
            let port = port_after(first, offset)?;
            match (bind(port), wanted) {
                (Ok(bound), _) => Ok(bound),
                (Err(error), Wanted::From(_)) => Err(in_use_error(port, &error)),
                (Err(_), _) => {
                    moved.push(port);
                    bind(0).map_err(|error| bind_error(&error))
                }
            }
        };
        // All are held until the last one is chosen, so that they differ.
        let held = [one(0)?, one(1)?, one(2)?, one(3)?];
        let address = |listener: &TcpListener| listener.local_addr().map_err(|error| bind_error(&error));
        let [gateway, provider, service, admin] = &held;
        let addresses = [address(gateway)?, address(provider)?, address(service)?, address(admin)?];
        Ok(Self { addresses: Addresses::of(addresses), in_use: moved })
    }
}

fn port_after(first: u16, offset: u16) -> Result<u16, Failure> {
    first.checked_add(offset).ok_or_else(|| {
        let last = u16::MAX - (COUNT - 1);
        Failure::new(format!("the demo uses {COUNT} ports from {first} on; choose at most {last}"))
    })
}

fn in_use_error(port: u16, error: &io::Error) -> Failure {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let who = http_engine::listen::listener_hint(&ListenAddress::Ip(address));
    Failure::new(format!("cannot listen on {address}: {error}; {who}; `--port` chooses others"))
}

pub(super) fn bind_error(error: &io::Error) -> Failure {
    Failure::new(format!("cannot listen on 127.0.0.1: {error}"))
}

//! Where the demo listens.

use std::net::{Ipv4Addr, TcpListener};

use crate::cli::Failure;

/// Ports that were free a moment ago.
pub(super) struct Ports(pub(super) [TcpListener; 4]);

impl Ports {
    /// Four ports in a row from `first`, or free ones where something listens already.
    pub(super) fn choose(first: u16) -> Result<Self, Failure> {
        let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let wanted = |offset: u16| if first == 0 { 0 } else { first.saturating_add(offset) };
        let free = |offset| bind(wanted(offset)).or_else(|_| bind(0));
        let ports = free(0).and_then(|a| Ok(Self([a, free(1)?, free(2)?, free(3)?])));
        ports.map_err(|error| unbound(&error))
    }
}

pub(super) fn unbound(error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot listen on 127.0.0.1: {error}"))
}

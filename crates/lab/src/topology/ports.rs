//! Ports: claims free ports on the loopback interface.
//!
//! A port is free when no process listens on it and no run has claimed it. Between the claim and
//! the listening socket the kernel does not know that a port is taken. Therefore a run claims a
//! port by binding an abstract Unix socket with the port in its name. The claim lasts as long as
//! the socket, and is visible in the same network namespace as the port.
//!
//! Other programs do not respect these claims. A component that finds its port taken reports that
//! in its log. The ports lie below the ephemeral range of clients.
//!
//! Owns: which ports the runs on this machine have claimed.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

const FIRST_PORT: u16 = 18_000;
const PORT_COUNT: u16 = 12_000;

/// Claims on ports; dropped with this value.
#[derive(Debug, Default)]
pub(super) struct PortClaims {
    own: Vec<UnixListener>,
}

impl PortClaims {
    /// Claims a port on which no process listens and that no run has claimed.
    ///
    /// # Errors
    /// No port in the range is free.
    pub(super) fn claim_free(&mut self) -> io::Result<u16> {
        // Concurrent runs begin at different ports.
        let begin = std::process::id().wrapping_mul(0x9E37_79B1) >> 16;
        for step in 0..PORT_COUNT {
            let offset = (begin % u32::from(PORT_COUNT) + u32::from(step)) % u32::from(PORT_COUNT);
            let port = FIRST_PORT + u16::try_from(offset).expect("below the count of ports");
            let Some(claim) = claim(port)? else { continue };
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                self.own.push(claim);
                return Ok(port);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("no free port between {FIRST_PORT} and {}", FIRST_PORT + PORT_COUNT - 1),
        ))
    }
}

/// Claims a port until the returned socket is dropped; `None` if another run has claimed it.
fn claim(port: u16) -> io::Result<Option<UnixListener>> {
    let name = SocketAddr::from_abstract_name(format!("postern-lab-port-{port}"))?;
    match UnixListener::bind_addr(&name) {
        Ok(claim) => Ok(Some(claim)),
        Err(taken) if taken.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_port_is_given_once_and_not_while_somebody_listens() {
        let (mut one, mut other) = (PortClaims::default(), PortClaims::default());
        let ports: BTreeSet<u16> = [one.claim_free(), one.claim_free(), other.claim_free()]
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(ports.len(), 3);
        let busy = TcpListener::bind((Ipv4Addr::LOCALHOST, *ports.first().unwrap())).unwrap();
        drop((one, other));
        let mut again = PortClaims::default();
        assert!((0..4).all(|_| again.claim_free().unwrap() != busy.local_addr().unwrap().port()));
    }
}

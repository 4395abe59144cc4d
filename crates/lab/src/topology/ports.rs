//! Free ports of the loopback.
//!
//! Owns: which were given to whom, by any run on this machine. A port is free when nobody listens on it at the moment, and no run has claimed it: between
//! being given and being listened on a port is nobody's to the kernel, so runs tell each other by an abstract Unix socket of its name, which is there for as
//! long as they hold it, in the same network namespace as the port. Whoever else takes one meanwhile is not asked; a component that finds it taken says so in
//! its log. Ports lie below the range that clients take theirs from.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

const FIRST: u16 = 18_000;
const COUNT: u16 = 12_000;

/// Ports that are kept until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Ports {
    own: Vec<UnixListener>,
}

impl Ports {
    /// A port that nobody listens on and that no run has been given.
    pub(super) fn take(&mut self) -> io::Result<u16> {
        // Several runs at a time begin at different places.
        let begin = std::process::id().wrapping_mul(0x9E37_79B1) >> 16;
        for step in 0..COUNT {
            let offset = (begin % u32::from(COUNT) + u32::from(step)) % u32::from(COUNT);
            let port = FIRST + u16::try_from(offset).expect("below the count of ports");
            let Some(claim) = claim(port)? else { continue };
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                self.own.push(claim);
                return Ok(port);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("no port between {FIRST} and {} is free", FIRST + COUNT - 1),
        ))
    }
}

/// Claims a port until what is returned is dropped; `None` when another run has.
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
        let (mut one, mut other) = (Ports::default(), Ports::default());
        let ports: BTreeSet<u16> =
            [one.take(), one.take(), other.take()].into_iter().map(Result::unwrap).collect();
        assert_eq!(ports.len(), 3);
        let busy = TcpListener::bind((Ipv4Addr::LOCALHOST, *ports.first().unwrap())).unwrap();
        drop((one, other));
        let mut again = Ports::default();
        assert!((0..4).all(|_| again.take().unwrap() != busy.local_addr().unwrap().port()));
    }
}

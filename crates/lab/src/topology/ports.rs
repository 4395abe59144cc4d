//! Free ports of the loopback.
//!
//! Owns: which were given to whom in this process. A port is free when nobody listens on it at the moment; whoever it is given to has to
//! be quick, and a component that finds it taken says so in its log. Ports lie below the range that clients take theirs from.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

const FIRST: u16 = 18_000;
const COUNT: u16 = 12_000;

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Ports that are kept until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Ports {
    own: Vec<u16>,
}

impl Ports {
    /// A port that nobody listens on and that this process has not given away.
    pub(super) fn take(&mut self) -> io::Result<u16> {
        let mut given = GIVEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Several runs at a time begin at different places.
        let begin = std::process::id().wrapping_mul(0x9E37_79B1) >> 16;
        for step in 0..COUNT {
            let offset = (begin % u32::from(COUNT) + u32::from(step)) % u32::from(COUNT);
            let port = FIRST + u16::try_from(offset).expect("below the count of ports");
            if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                given.insert(port);
                self.own.push(port);
                return Ok(port);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("no port between {FIRST} and {} is free", FIRST + COUNT - 1),
        ))
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        let mut given = GIVEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for port in &self.own {
            given.remove(port);
        }
    }
}

#[cfg(test)]
mod tests {
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

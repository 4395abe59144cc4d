//! Listening sockets that the service manager passed to the process (systemd.socket(5)).
//!
//! Owns: checking these sockets, and finding the one of a configured address. Does not own: how they
//! arrive, which the binary reads from its environment.
//!
//! They listen before the process starts, and stay open while it restarts. Connections wait
//! meanwhile, so none is refused. A process without the right to listen on a port below 1024 gets
//! one in this way.
//!
//! All workers share the one socket of an address. Sockets of their own (`SO_REUSEPORT`) would need
//! the rights that the process lacks.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use socket2::SockRef;

use crate::config::ListenAddress;
use crate::dial::keepalive;

/// Listening sockets of a service manager. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct InheritedSockets(Arc<Vec<InheritedSocket>>);

/// A checked socket with its address.
#[derive(Debug)]
pub struct InheritedSocket {
    address: ListenAddress,
    socket: PassedSocket,
}

#[derive(Debug)]
enum PassedSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl InheritedSocket {
    /// Takes a TCP socket.
    ///
    /// # Errors
    /// A text with the remedy: the socket does not listen, or an IPv6 socket also accepts IPv4. Such
    /// peers would have addresses that trust lists of IPv4 networks do not match.
    pub fn tcp(socket: TcpListener) -> Result<Self, String> {
        let address = socket.local_addr().map_err(|error| format!("it has no address: {error}"))?;
        let options = SockRef::from(&socket);
        check_listening(&options)?;
        let dual = address.is_ipv6() && !options.only_v6().unwrap_or(false);
        if dual {
            return Err(format!(
                "{address} accepts IPv4 too: set `BindIPv6Only=ipv6-only` in the socket unit, and add `ListenStream=0.0.0.0:{}` \
                 for IPv4",
                address.port()
            ));
        }
        let prepared = socket.set_nonblocking(true).and_then(|()| options.set_tcp_keepalive(&keepalive()));
        prepared.map_err(|error| format!("{address}: {error}"))?;
        Ok(Self { address: ListenAddress::Ip(address), socket: PassedSocket::Tcp(socket) })
    }

    /// Takes a Unix socket.
    ///
    /// # Errors
    /// A text with the remedy: the socket does not listen, or is not at a path.
    pub fn unix(socket: UnixListener) -> Result<Self, String> {
        check_listening(&SockRef::from(&socket))?;
        let path: Option<PathBuf> =
            socket.local_addr().ok().and_then(|address| Some(address.as_pathname()?.to_owned()));
        let path = path.ok_or("a Unix socket has no path: give `ListenStream` an absolute path")?;
        socket.set_nonblocking(true).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { address: ListenAddress::Unix(path.into()), socket: PassedSocket::Unix(socket) })
    }
}

/// A unit with `Accept=yes` passes connections.
fn check_listening(socket: &SockRef<'_>) -> Result<(), String> {
    match socket.is_listener() {
        Ok(true) => Ok(()),
        Ok(false) => Err("it does not listen: set `Accept=no` in the socket unit".into()),
        Err(error) => Err(format!("it cannot be queried: {error}")),
    }
}

impl InheritedSockets {
    /// These sockets.
    pub fn new(sockets: Vec<InheritedSocket>) -> Self {
        Self(Arc::new(sockets))
    }

    /// Their addresses.
    pub fn addresses(&self) -> impl Iterator<Item = &ListenAddress> {
        self.0.iter().map(|socket| &socket.address)
    }

    /// The TCP socket of exactly this address. The process may have it several times.
    ///
    /// # Errors
    /// The system's error when no further descriptor can be had.
    pub fn tcp(&self, address: SocketAddr) -> io::Result<Option<TcpListener>> {
        let sockets = self.0.iter().filter(|socket| socket.address == ListenAddress::Ip(address));
        let mut sockets = sockets.filter_map(|socket| match &socket.socket {
            PassedSocket::Tcp(socket) => Some(socket),
            PassedSocket::Unix(_) => None,
        });
        sockets.next().map(TcpListener::try_clone).transpose()
    }

    /// The Unix socket at this path. The process may have it several times.
    ///
    /// # Errors
    /// The system's error when no further descriptor can be had.
    pub fn unix(&self, path: &Path) -> io::Result<Option<UnixListener>> {
        let mut sockets = self.0.iter().filter_map(|socket| match (&socket.address, &socket.socket) {
            (ListenAddress::Unix(at), PassedSocket::Unix(socket)) if **at == *path => Some(socket),
            _ => None,
        });
        sockets.next().map(UnixListener::try_clone).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn a_socket_is_found_by_its_address_only() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let sockets = InheritedSockets::new(vec![InheritedSocket::tcp(socket).unwrap()]);
        assert!(sockets.tcp(SocketAddr::new(at.ip(), at.port() ^ 1)).unwrap().is_none());
        assert!(sockets.tcp(SocketAddr::from(([0, 0, 0, 0], at.port()))).unwrap().is_none());
        let (first, second) = (sockets.tcp(at).unwrap().unwrap(), sockets.tcp(at).unwrap().unwrap());
        let _client = TcpStream::connect(at).unwrap();
        let accepted = [first, second].map(|socket| socket.accept().is_ok());
        assert_eq!(accepted, [true, false], "one queue, and nobody waits");
        assert_eq!(sockets.addresses().cloned().collect::<Vec<_>>(), [ListenAddress::Ip(at)]);
    }

    #[test]
    fn a_unix_socket_is_found_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let socket = UnixListener::bind(&path).unwrap();
        let sockets = InheritedSockets::new(vec![InheritedSocket::unix(socket).unwrap()]);
        assert!(sockets.unix(&path).unwrap().is_some());
        assert!(sockets.unix(&folder.path().join("b.sock")).unwrap().is_none());
    }

    #[test]
    fn sockets_that_cannot_serve_are_refused_with_the_remedy() {
        let unready = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        unready.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        let why = InheritedSocket::tcp(unready.into()).unwrap_err();
        assert!(why.contains("Accept=no"), "{why}");
        let Ok(both) = Socket::new(Domain::IPV6, Type::STREAM, None) else { return };
        both.set_only_v6(false).unwrap();
        if both.bind(&"[::]:0".parse::<SocketAddr>().unwrap().into()).is_err() {
            return;
        }
        both.listen(1).unwrap();
        let why = InheritedSocket::tcp(both.into()).unwrap_err();
        assert!(why.contains("BindIPv6Only=ipv6-only") && why.contains("ListenStream=0.0.0.0:"), "{why}");
    }
}

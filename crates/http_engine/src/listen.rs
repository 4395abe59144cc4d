//! Listening sockets, and the connections accepted from them.
//!
//! Owns: how TCP and Unix sockets are bound, and one type for both, so that callers need not
//! distinguish them. Does not own: when to accept, what happens to a connection.
//!
//! A process has an address for itself ([`Claim::Exclusive`]) unless it takes over from another
//! process ([`Claim::Shared`]). Two processes that shared an address by accident would both receive
//! requests, each with its own configuration.
//!
//! 1. A TCP socket is bound and listens without `SO_REUSEPORT`. This fails if a process of any user
//!    listens on the same address or on the wildcard. Closed connections do not count
//!    (`SO_REUSEADDR`).
//! 2. Then it sets `SO_REUSEPORT`, so that other workers of this process and a successor of the
//!    same user can join.
//! 3. A Unix socket replaces the file of its predecessor in one step: at any time a connection
//!    reaches either the former socket or the new one. The file stays after the socket is closed,
//!    and refuses connections like a closed port. Removing it could remove the file of a process
//!    that has just taken over. A process counts as listening if connections to the file are
//!    accepted.
//!
//! A socket of the address that the service manager passed comes before all this
//! ([`InheritedSockets`]).
//!
//! Peers of a Unix socket have no IP address. They are on this machine, and count as [`UNIX_PEER`]
//! where an address is needed.

use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::config::ListenAddress;
use crate::dial::keepalive;
use crate::inherited_sockets::InheritedSockets;
use crate::io::Stream;

/// The address that peers of a Unix socket count as.
pub const UNIX_PEER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
/// Maximum length of a Unix socket's path: that of `sun_path` (unix(7)) less the final NUL and
/// [`TEMPORARY_SUFFIX`].
pub const MAX_PATH: usize = 107 - TEMPORARY_SUFFIX.len();
/// Maximum number of connections that wait to be accepted, per socket.
pub const BACKLOG: u16 = 4096;
/// Suffix of the temporary path at which a socket is prepared.
const TEMPORARY_SUFFIX: &str = ".new";

/// Whether other sockets may listen on the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The address must not be in use.
    Exclusive,
    /// The address may be shared with a process that is being replaced, or with this process's
    /// other workers.
    Shared,
}

/// How a process gets its listening sockets.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Whether others may listen on the same addresses.
    pub claim: Claim,
    /// Sockets of the service manager, which are used for their addresses.
    pub inherited: InheritedSockets,
}

impl From<Claim> for ListenOptions {
    /// Without a service manager.
    fn from(claim: Claim) -> Self {
        Self { claim, inherited: InheritedSockets::default() }
    }
}

impl ListenOptions {
    /// The socket that the service manager passed for a TCP address, otherwise a new one
    /// ([`bind_tcp`]).
    ///
    /// # Errors
    /// The system's error, as [`bind_tcp`] says.
    pub fn bind_tcp(&self, address: SocketAddr) -> io::Result<std::net::TcpListener> {
        self.inherited.tcp(address)?.map_or_else(|| bind_tcp(address, self.claim), Ok)
    }
}

/// Message with a command that shows which process listens on an address.
pub fn listener_hint(address: &ListenAddress) -> String {
    let command = match address {
        ListenAddress::Ip(address) => format!("ss -ltnp 'sport = :{}'", address.port()),
        ListenAddress::Unix(path) => format!("ss -lxp src {}", path.display()),
    };
    format!("another process listens there: `{command}` shows it")
}

/// Advice for an address on which listening failed.
pub fn bind_advice(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => in_use_advice(&ListenAddress::Ip(address)),
        _ => "use an address of this machine on which this user may listen".into(),
    }
}

/// Advice for an address that `postern serve` cannot use because it is in use.
pub fn in_use_advice(address: &ListenAddress) -> String {
    format!(
        "{}; `serve --take-over` shares the address with a `postern serve` of this user",
        listener_hint(address)
    )
}

/// Listens on a TCP address. `[::]` means IPv6 only. Does not block.
///
/// # Errors
/// The system's error. `AddrInUse` if another process listens there; with [`Claim::Shared`] only if
/// that process does not share the address. Then it belongs to another user or is not a gateway.
pub fn bind_tcp(address: SocketAddr, claim: Claim) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // IPv4 needs a listener of its own, with its own trust lists.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    if claim == Claim::Shared {
        socket.set_reuse_port(true)?;
    }
    // Accepted sockets inherit it.
    socket.set_tcp_keepalive(&keepalive())?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG.into())?;
    // Earlier it would have let other processes join.
    socket.set_reuse_port(true)?;
    Ok(socket.into())
}

/// Listens on a Unix socket, in place of a predecessor. The permission bits `mode` restrict who may
/// connect: those who may write to the file. Does not block.
///
/// # Errors
/// The system's error. `AlreadyExists` if there is a file that is not a socket, which is left in
/// place. `AddrInUse` if a process listens there, unless with [`Claim::Shared`]. `PermissionDenied`
/// also if this user cannot find out whether a process listens there.
pub fn bind_unix(path: &Path, mode: u32, claim: Claim) -> io::Result<unix::UnixListener> {
    if is_socket(path)? && claim == Claim::Exclusive && is_listened_on(path)? {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(TEMPORARY_SUFFIX);
    let beside = PathBuf::from(beside);
    if is_socket(&beside)? {
        // A process was killed before it renamed its socket.
        fs::remove_file(&beside)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(&beside)?)?;
    // No client can connect before it listens, and no client knows the path before it is renamed.
    let ready = set_mode(&beside, mode)
        .and_then(|()| socket.listen(BACKLOG.into()))
        .and_then(|()| fs::rename(&beside, path));
    if let Err(error) = ready {
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    Ok(socket.into())
}

/// Whether there is a socket at `path`; false if there is no file, an error if there is another
/// kind of file.
fn is_socket(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => Ok(true),
        Ok(_) => {
            let message = format!("{} exists and is not a socket", path.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, message))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether connections to a Unix socket are accepted. Does not wait: a full queue also means that a
/// process listens.
fn is_listened_on(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    is_listening(path, socket.connect(&SockAddr::unix(path)?))
}

/// Interprets the result of a connection attempt to `path`; an error if this user may not connect.
fn is_listening(path: &Path, connected: io::Result<()>) -> io::Result<bool> {
    match connected.map_err(|error| error.kind()) {
        Err(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(false),
        Err(kind @ io::ErrorKind::PermissionDenied) => {
            let message = format!(
                "cannot find out whether another process listens on {}: this user may not connect to it; \
                 remove the file if none does",
                path.display()
            );
            Err(io::Error::new(kind, message))
        }
        _ => Ok(true),
    }
}

/// Sets who may connect to a Unix socket: those whom the permission bits allow to write to its
/// file.
///
/// # Errors
/// The system's error.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Shared by all sockets of one address. It shows when the last of them is closed.
pub(crate) type AddressGuard = Arc<()>;

/// A listening socket that is not registered with a runtime.
pub enum ListeningSocket {
    /// A TCP listening socket.
    Tcp(std::net::TcpListener, AddressGuard),
    /// A Unix socket.
    Unix(unix::UnixListener, AddressGuard),
}

impl ListeningSocket {
    /// Its IP address and port; `None` for a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket, _) => socket.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// Accepts the next connection; returns it with its peer address.
    pub fn accept(&self) -> io::Result<(AcceptedConnection, SocketAddr)> {
        match self {
            Self::Tcp(socket, _) => {
                socket.accept().map(|(socket, peer)| (AcceptedConnection::Tcp(socket), peer))
            }
            Self::Unix(socket, _) => {
                socket.accept().map(|(socket, _)| (AcceptedConnection::Unix(socket), UNIX_PEER))
            }
        }
    }

    /// Sockets for `workers` workers. With TCP each worker gets its own socket, and the kernel
    /// distributes connections. A Unix socket has one file, so all workers share one socket, as they
    /// share one that was inherited.
    pub fn bind(
        address: &ListenAddress,
        mode: u32,
        workers: usize,
        options: &ListenOptions,
    ) -> io::Result<(Vec<Self>, Weak<()>)> {
        let hold = AddressGuard::default();
        let sockets = match address {
            ListenAddress::Ip(address) => match options.inherited.tcp(*address)? {
                Some(socket) => {
                    Self::duplicates(workers, || Ok(Self::Tcp(socket.try_clone()?, hold.clone())))?
                }
                None => Self::bind_each(*address, workers, options.claim, &hold)?,
            },
            ListenAddress::Unix(path) => {
                let inherited = options.inherited.unix(path)?;
                let socket = inherited.map_or_else(|| bind_unix(path, mode, options.claim), Ok)?;
                Self::duplicates(workers, || Ok(Self::Unix(socket.try_clone()?, hold.clone())))?
            }
        };
        Ok((sockets, Arc::downgrade(&hold)))
    }

    fn duplicates(workers: usize, another: impl Fn() -> io::Result<Self>) -> io::Result<Vec<Self>> {
        (0..workers).map(|_| another()).collect()
    }

    fn bind_each(
        mut address: SocketAddr,
        workers: usize,
        mut claim: Claim,
        hold: &AddressGuard,
    ) -> io::Result<Vec<Self>> {
        let mut sockets = Vec::with_capacity(workers);
        for _ in 0..workers {
            let socket = bind_tcp(address, claim)?;
            // The kernel may have chosen the port of the first socket; the others share it.
            (address, claim) = (socket.local_addr()?, Claim::Shared);
            sockets.push(Self::Tcp(socket, hold.clone()));
        }
        Ok(sockets)
    }
}

/// A listening socket that is registered with this thread's runtime.
pub enum Acceptor {
    /// A TCP listening socket.
    Tcp(tokio::net::TcpListener, AddressGuard),
    /// A Unix socket.
    Unix(tokio::net::UnixListener, AddressGuard),
}

impl Acceptor {
    /// Accepts the next connection; returns it with its peer address.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Stream, SocketAddr)>> {
        match self {
            Self::Tcp(socket, _) => {
                socket.poll_accept(cx).map_ok(|(stream, peer)| (Stream::Tcp(stream), peer))
            }
            Self::Unix(socket, _) => {
                socket.poll_accept(cx).map_ok(|(stream, _)| (Stream::Unix(stream), UNIX_PEER))
            }
        }
    }

    /// Deregisters it from the runtime.
    pub fn into_listening(self) -> io::Result<ListeningSocket> {
        match self {
            Self::Tcp(socket, hold) => Ok(ListeningSocket::Tcp(socket.into_std()?, hold)),
            Self::Unix(socket, hold) => Ok(ListeningSocket::Unix(socket.into_std()?, hold)),
        }
    }
}

impl TryFrom<ListeningSocket> for Acceptor {
    type Error = io::Error;

    /// Registers it with this thread's runtime.
    fn try_from(socket: ListeningSocket) -> io::Result<Self> {
        match socket {
            ListeningSocket::Tcp(socket, hold) => {
                Ok(Self::Tcp(tokio::net::TcpListener::from_std(socket)?, hold))
            }
            ListeningSocket::Unix(socket, hold) => {
                Ok(Self::Unix(tokio::net::UnixListener::from_std(socket)?, hold))
            }
        }
    }
}

/// An accepted connection that is not registered with a runtime, so it can be sent to another
/// thread.
pub enum AcceptedConnection {
    /// A TCP connection.
    Tcp(std::net::TcpStream),
    /// A Unix socket connection.
    Unix(unix::UnixStream),
}

impl AcceptedConnection {
    /// Deregisters a connection that was just accepted from its runtime.
    ///
    /// # Errors
    /// The system's error, or `Unsupported` for a stream that is not a plain socket.
    pub fn from_stream(stream: Stream) -> io::Result<Self> {
        match stream {
            Stream::Tcp(stream) => stream.into_std().map(Self::Tcp),
            Stream::Unix(stream) => stream.into_std().map(Self::Unix),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Registers it with this thread's runtime.
    pub fn into_stream(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                tokio::net::TcpStream::from_std(socket).map(Stream::Tcp)
            }
            Self::Unix(socket) => {
                socket.set_nonblocking(true)?;
                tokio::net::UnixStream::from_std(socket).map(Stream::Unix)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{Ipv6Addr, TcpStream};

    use super::*;

    fn port(address: &str, claim: Claim) -> io::Result<std::net::TcpListener> {
        bind_tcp(address.parse().expect("an address"), claim)
    }

    fn in_use<T>(bound: io::Result<T>) -> bool {
        bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    }

    #[test]
    fn who_may_not_connect_cannot_tell_who_listens() {
        let at = Path::new("/run/a.sock");
        let probe = |kind: io::ErrorKind| is_listening(at, Err(kind.into()));
        assert!(is_listening(at, Ok(())).unwrap() && probe(io::ErrorKind::WouldBlock).unwrap());
        assert!(
            !probe(io::ErrorKind::ConnectionRefused).unwrap() && !probe(io::ErrorKind::NotFound).unwrap()
        );
        let error = probe(io::ErrorKind::PermissionDenied).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(
            error.to_string().contains("cannot find out whether")
                && error.to_string().contains("/run/a.sock"),
            "{error}"
        );
    }

    #[test]
    fn an_address_that_is_listened_on_is_refused_whoever_listens_and_however_wide() {
        for (taken, wanted) in [
            ("127.0.0.1", "127.0.0.1"),
            ("0.0.0.0", "127.0.0.1"),
            ("127.0.0.1", "0.0.0.0"),
            ("[::1]", "[::1]"),
            ("[::]", "[::1]"),
        ] {
            if taken.starts_with('[') && std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
                continue;
            }
            for shares in [true, false] {
                let at = format!("{taken}:0");
                let first =
                    if shares { port(&at, Claim::Exclusive) } else { std::net::TcpListener::bind(at) };
                let first = first.expect("a free port");
                let at = format!("{wanted}:{}", first.local_addr().expect("bound").port());
                assert!(in_use(port(&at, Claim::Exclusive)), "{taken} and {wanted}");
                assert_eq!(port(&at, Claim::Shared).is_ok(), shares, "{taken} and {wanted}");
                drop(first);
                assert!(port(&at, Claim::Exclusive).is_ok(), "nobody is left on {at}");
            }
        }
    }

    #[test]
    fn connections_that_are_over_take_no_address() {
        let first = port("127.0.0.1:0", Claim::Exclusive).expect("a free port");
        first.set_nonblocking(false).expect("blocks");
        let at = first.local_addr().expect("bound");
        let mut client = TcpStream::connect(at).expect("connects");
        // The side that closes first stays in TIME_WAIT.
        drop(first.accept().expect("accepts"));
        assert_eq!(client.read(&mut [0]).expect("the end"), 0);
        drop((client, first));
        assert!(bind_tcp(at, Claim::Exclusive).is_ok());
    }

    #[test]
    fn sockets_that_join_get_connections_too() {
        let first = port("127.0.0.1:0", Claim::Exclusive).expect("a free port");
        let at = first.local_addr().expect("bound");
        let second = bind_tcp(at, Claim::Shared).expect("shares");
        let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(at).expect("connects")).collect();
        let count = |socket: &std::net::TcpListener| std::iter::from_fn(|| socket.accept().ok()).count();
        let (ours, theirs) = (count(&first), count(&second));
        assert_eq!(ours + theirs, clients.len());
        assert!(ours > 0 && theirs > 0, "{ours} and {theirs}");
    }
}

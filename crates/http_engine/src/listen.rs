//! Sockets that are listened on, and the connections that come out of them.
//!
//! Owns: how a TCP and a Unix socket is bound, and one type for both, so that whoever accepts need not ask which it is. Does
//! not own: when to accept, what becomes of a connection.
//!
//! A process has an address to itself ([`Claim::Alone`]) unless it is to take over from another one ([`Claim::Shared`]).
//! Two processes that share an address by accident answer in turn, each by its own configuration.
//!
//! 1. A TCP socket is bound and listens without `SO_REUSEPORT`, which fails where anybody listens: on the same address, on
//!    the wildcard, as whichever user. Connections that are over do not count (`SO_REUSEADDR`).
//! 2. From then on it has `SO_REUSEPORT`, so that this process's other workers and a successor of this user can join.
//! 3. A Unix socket has a file, and takes its place in one step: a connection goes to the former socket or to the new one,
//!    and never finds neither. The file stays when its socket is closed, and refuses connections as a closed port does: to
//!    remove it could remove that of a process that has just taken over. Whoever accepts connections there listens.
//!
//! Nobody on a Unix socket has an address. Its peers are on this machine, and count as [`LOCAL`] wherever one is asked for.

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
use crate::io::Stream;

/// Whom the peers of a Unix socket count as.
pub const LOCAL: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
/// Bytes that the path of a Unix socket may have: those of `sun_path` (unix(7)) less the final NUL and [`BESIDE`].
pub const MAX_PATH: usize = 107 - BESIDE.len();
/// Connections that wait to be accepted at most, on each socket.
pub const BACKLOG: u16 = 4096;
/// Added to the path under which a socket is prepared.
const BESIDE: &str = ".new";

/// Whether others may listen on an address as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Nobody else does so far.
    Alone,
    /// As well as whoever does: a process that is taken over, or this one's other workers.
    Shared,
}

/// How to find out who listens on an address that is in use.
pub fn who(address: &ListenAddress) -> String {
    let command = match address {
        ListenAddress::Ip(address) => format!("ss -ltnp 'sport = :{}'", address.port()),
        ListenAddress::Unix(path) => format!("ss -lxp src {}", path.display()),
    };
    format!("another process listens there: `{command}` names it")
}

/// What to do about an address that cannot be listened on.
pub fn remedy(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => taken(&ListenAddress::Ip(address)),
        _ => "give it an address of this machine that this user may listen on".into(),
    }
}

/// What to do about an address that `postern serve` cannot have since it is in use.
pub fn taken(address: &ListenAddress) -> String {
    format!("{}; `serve --take-over` shares the address with a `postern serve` of this user", who(address))
}

/// Listens on an address. `[::]` means IPv6 alone. Does not block.
///
/// # Errors
/// What the system says; `AddrInUse` where somebody listens, and with [`Claim::Shared`] where they do not share: another
/// user's process, or one that is no gateway.
pub fn tcp(address: SocketAddr, claim: Claim) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `[::]` means IPv6 alone: IPv4 is a listener of its own, with its own trust lists.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    if claim == Claim::Shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG.into())?;
    // Only now: it would have let others in.
    socket.set_reuse_port(true)?;
    Ok(socket.into())
}

/// Listens on a Unix socket in place of what may have listened there, for those whom the permission bits `mode` let write
/// to the file. Does not block.
///
/// # Errors
/// What the system says; `AlreadyExists` when there is a file that is no socket, which is left alone; `AddrInUse` where
/// somebody listens, unless with [`Claim::Shared`]; `PermissionDenied` also where nobody can tell whether somebody does.
pub fn unix(path: &Path, mode: u32, claim: Claim) -> io::Result<unix::UnixListener> {
    if is_socket(path)? && claim == Claim::Alone && is_listened_on(path)? {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(BESIDE);
    let beside = PathBuf::from(beside);
    if is_socket(&beside)? {
        // Somebody was killed between two steps.
        fs::remove_file(&beside)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(&beside)?)?;
    // Nobody can connect before it listens, and nobody looks for it before it has its name.
    let ready = set_mode(&beside, mode)
        .and_then(|()| socket.listen(BACKLOG.into()))
        .and_then(|()| fs::rename(&beside, path));
    if let Err(error) = ready {
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    Ok(socket.into())
}

/// Whether there is a socket at `path`; false when there is nothing, an error when there is something else.
fn is_socket(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => {
            let what = format!("{} is there and is no socket", path.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, what))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether connections to a Unix socket are accepted. Nobody is kept waiting: a queue that is full is somebody's.
fn is_listened_on(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    listens(path, socket.connect(&SockAddr::unix(path)?))
}

/// What connecting tells of who listens at `path`; an error where this user may not connect.
fn listens(path: &Path, connected: io::Result<()>) -> io::Result<bool> {
    match connected.map_err(|error| error.kind()) {
        Err(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(false),
        Err(kind @ io::ErrorKind::PermissionDenied) => {
            let what = format!(
                "cannot tell whether another process listens on {}, since this user may not connect to it; \
                 remove the file if none does",
                path.display()
            );
            Err(io::Error::new(kind, what))
        }
        _ => Ok(true),
    }
}

/// Says who may connect to a Unix socket: those whom the permission bits let write to its file.
///
/// # Errors
/// What the system says.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// What all sockets of one address hold, so that it is known when the last of them is closed.
pub(crate) type HeldClaim = Arc<()>;

/// A socket that is listened on, not yet of a runtime.
pub enum Listening {
    /// TCP.
    Tcp(std::net::TcpListener, HeldClaim),
    /// A Unix socket.
    Unix(unix::UnixListener, HeldClaim),
}

impl Listening {
    /// Where, as the system tells it.
    pub fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket, _) => socket.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// The next connection, with its peer.
    pub fn accept(&self) -> io::Result<(Connected, SocketAddr)> {
        match self {
            Self::Tcp(socket, _) => socket.accept().map(|(socket, peer)| (Connected::Tcp(socket), peer)),
            Self::Unix(socket, _) => socket.accept().map(|(socket, _)| (Connected::Unix(socket), LOCAL)),
        }
    }

    /// Sockets for `workers` of them: each its own on a TCP port, for the system to choose among; one for all where there
    /// is a file, which can only lead to one.
    pub fn bind(
        address: &ListenAddress,
        mode: u32,
        workers: usize,
        claim: Claim,
    ) -> io::Result<(Vec<Self>, Weak<()>)> {
        let (hold, mut sockets) = (HeldClaim::default(), Vec::with_capacity(workers));
        match address {
            ListenAddress::Ip(address) => {
                let (mut address, mut claim) = (*address, claim);
                for _ in 0..workers {
                    let socket = tcp(address, claim)?;
                    // The system chooses the port of the first; the others share it.
                    (address, claim) = (socket.local_addr()?, Claim::Shared);
                    sockets.push(Self::Tcp(socket, hold.clone()));
                }
            }
            ListenAddress::Unix(path) => {
                let socket = unix(path, mode, claim)?;
                for _ in 1..workers {
                    sockets.push(Self::Unix(socket.try_clone()?, hold.clone()));
                }
                sockets.push(Self::Unix(socket, hold.clone()));
            }
        }
        Ok((sockets, Arc::downgrade(&hold)))
    }
}

/// A socket that is listened on by the runtime of this thread.
pub enum Acceptor {
    /// TCP.
    Tcp(tokio::net::TcpListener, HeldClaim),
    /// A Unix socket.
    Unix(tokio::net::UnixListener, HeldClaim),
}

impl Acceptor {
    /// The next connection, with its peer.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Stream, SocketAddr)>> {
        match self {
            Self::Tcp(socket, _) => {
                socket.poll_accept(cx).map_ok(|(stream, peer)| (Stream::Tcp(stream), peer))
            }
            Self::Unix(socket, _) => {
                socket.poll_accept(cx).map_ok(|(stream, _)| (Stream::Unix(stream), LOCAL))
            }
        }
    }

    /// Takes it from the runtime.
    pub fn into_listening(self) -> io::Result<Listening> {
        match self {
            Self::Tcp(socket, hold) => Ok(Listening::Tcp(socket.into_std()?, hold)),
            Self::Unix(socket, hold) => Ok(Listening::Unix(socket.into_std()?, hold)),
        }
    }
}

impl TryFrom<Listening> for Acceptor {
    type Error = io::Error;

    /// Gives it to the runtime of this thread.
    fn try_from(socket: Listening) -> io::Result<Self> {
        match socket {
            Listening::Tcp(socket, hold) => Ok(Self::Tcp(tokio::net::TcpListener::from_std(socket)?, hold)),
            Listening::Unix(socket, hold) => {
                Ok(Self::Unix(tokio::net::UnixListener::from_std(socket)?, hold))
            }
        }
    }
}

/// An accepted connection, not of any runtime: it may go to another thread.
pub enum Connected {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// A Unix socket.
    Unix(unix::UnixStream),
}

impl Connected {
    /// Takes a connection that was just accepted from the runtime.
    ///
    /// # Errors
    /// What the system says; and `Unsupported` of a stream that is more than a socket.
    pub fn take(stream: Stream) -> io::Result<Self> {
        match stream {
            Stream::Tcp(stream) => stream.into_std().map(Self::Tcp),
            Stream::Unix(stream) => stream.into_std().map(Self::Unix),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Gives it to the runtime of this thread.
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
        tcp(address.parse().expect("an address"), claim)
    }

    fn in_use<T>(bound: io::Result<T>) -> bool {
        bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    }

    #[test]
    fn who_may_not_connect_cannot_tell_who_listens() {
        let at = Path::new("/run/a.sock");
        let said = |kind: io::ErrorKind| listens(at, Err(kind.into()));
        assert!(listens(at, Ok(())).unwrap() && said(io::ErrorKind::WouldBlock).unwrap());
        assert!(!said(io::ErrorKind::ConnectionRefused).unwrap() && !said(io::ErrorKind::NotFound).unwrap());
        let error = said(io::ErrorKind::PermissionDenied).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(
            error.to_string().contains("cannot tell") && error.to_string().contains("/run/a.sock"),
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
                let first = if shares { port(&at, Claim::Alone) } else { std::net::TcpListener::bind(at) };
                let first = first.expect("a free port");
                let at = format!("{wanted}:{}", first.local_addr().expect("bound").port());
                assert!(in_use(port(&at, Claim::Alone)), "{taken} and {wanted}");
                assert_eq!(port(&at, Claim::Shared).is_ok(), shares, "{taken} and {wanted}");
                drop(first);
                assert!(port(&at, Claim::Alone).is_ok(), "nobody is left on {at}");
            }
        }
    }

    #[test]
    fn connections_that_are_over_take_no_address() {
        let first = port("127.0.0.1:0", Claim::Alone).expect("a free port");
        first.set_nonblocking(false).expect("blocks");
        let at = first.local_addr().expect("bound");
        let mut client = TcpStream::connect(at).expect("connects");
        // Whoever closes first is left in TIME_WAIT.
        drop(first.accept().expect("accepts"));
        assert_eq!(client.read(&mut [0]).expect("the end"), 0);
        drop((client, first));
        assert!(tcp(at, Claim::Alone).is_ok());
    }

    #[test]
    fn sockets_that_join_get_connections_too() {
        let first = port("127.0.0.1:0", Claim::Alone).expect("a free port");
        let at = first.local_addr().expect("bound");
        let second = tcp(at, Claim::Shared).expect("shares");
        let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(at).expect("connects")).collect();
        let count = |socket: &std::net::TcpListener| std::iter::from_fn(|| socket.accept().ok()).count();
        let (ours, theirs) = (count(&first), count(&second));
        assert_eq!(ours + theirs, clients.len());
        assert!(ours > 0 && theirs > 0, "{ours} and {theirs}");
    }
}

//! Sockets that are listened on, and the connections that come out of them.
//!
//! Owns: how a TCP and a Unix socket is bound, and one type for both, so that whoever accepts need not ask which it is. Does
//! not own: when to accept, what becomes of a connection.
//!
//! TCP sockets share their port with every other one of this user's (`SO_REUSEPORT`). A Unix socket has a file, and takes
//! its place in one step: a connection goes to the former socket or to the new one, and never finds neither. The file
//! stays when its socket is closed, and refuses connections as a closed port does: to remove it could remove that
//! of a process that has just taken over.
//!
//! Nobody on a Unix socket has an address. Its peers are on this machine, and count as [`LOCAL`] wherever one is asked for.

use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::config::ListenAddress;
use crate::io::Stream;

/// Whom the peers of a Unix socket count as.
pub const LOCAL: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
/// Bytes that the path of a Unix socket may have: those of `sun_path` (unix(7)) less the final NUL and [`BESIDE`].
pub const MAX_PATH: usize = 107 - BESIDE.len();
/// Connections that wait to be accepted at most, on each socket.
pub(crate) const BACKLOG: u16 = 4096;
/// Added to the path under which a socket is prepared.
const BESIDE: &str = ".new";

/// Listens on an address, together with whoever else does. Does not block.
///
/// # Errors
/// What the system says.
pub fn tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `[::]` means IPv6 alone: IPv4 is a listener of its own, with its own trust lists.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG.into())?;
    Ok(socket.into())
}

/// Listens on a Unix socket in place of what may have listened there, for those whom the permission bits `mode` let write
/// to the file. Does not block.
///
/// # Errors
/// What the system says; `AlreadyExists` when there is a file that is no socket, which is left alone.
pub fn unix(path: &Path, mode: u32) -> io::Result<unix::UnixListener> {
    is_socket(path)?;
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

/// Says who may connect to a Unix socket: those whom the permission bits let write to its file.
///
/// # Errors
/// What the system says.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// A socket that is listened on, not yet of a runtime.
pub(crate) enum Listening {
    Tcp(std::net::TcpListener),
    Unix(unix::UnixListener),
}

impl Listening {
    /// Where, as the system tells it.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// The next connection, with its peer.
    pub(crate) fn accept(&self) -> io::Result<(Connected, SocketAddr)> {
        match self {
            Self::Tcp(socket) => socket.accept().map(|(socket, peer)| (Connected::Tcp(socket), peer)),
            Self::Unix(socket) => socket.accept().map(|(socket, _)| (Connected::Unix(socket), LOCAL)),
        }
    }

    /// Sockets for `workers` of them: each its own on a TCP port, for the system to choose among; one for all where there
    /// is a file, which can only lead to one.
    pub(crate) fn bind(address: &ListenAddress, mode: u32, workers: usize) -> io::Result<Vec<Self>> {
        let mut sockets = Vec::with_capacity(workers);
        match address {
            ListenAddress::Ip(address) => {
                let mut address = *address;
                for _ in 0..workers {
                    let socket = tcp(address)?;
                    // The system chooses the port of the first; the others share it.
                    address = socket.local_addr()?;
                    sockets.push(Self::Tcp(socket));
                }
            }
            ListenAddress::Unix(path) => {
                let socket = unix(path, mode)?;
                for _ in 1..workers {
                    sockets.push(Self::Unix(socket.try_clone()?));
                }
                sockets.push(Self::Unix(socket));
            }
        }
        Ok(sockets)
    }
}

/// A socket that is listened on by the runtime of this thread.
pub(crate) enum Acceptor {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Acceptor {
    /// The next connection, with its peer.
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Stream, SocketAddr)>> {
        match self {
            Self::Tcp(socket) => socket.poll_accept(cx).map_ok(|(stream, peer)| (Stream::Tcp(stream), peer)),
            Self::Unix(socket) => socket.poll_accept(cx).map_ok(|(stream, _)| (Stream::Unix(stream), LOCAL)),
        }
    }

    /// Takes it from the runtime.
    pub(crate) fn into_listening(self) -> io::Result<Listening> {
        match self {
            Self::Tcp(socket) => socket.into_std().map(Listening::Tcp),
            Self::Unix(socket) => socket.into_std().map(Listening::Unix),
        }
    }
}

impl TryFrom<Listening> for Acceptor {
    type Error = io::Error;

    /// Gives it to the runtime of this thread.
    fn try_from(socket: Listening) -> io::Result<Self> {
        match socket {
            Listening::Tcp(socket) => tokio::net::TcpListener::from_std(socket).map(Self::Tcp),
            Listening::Unix(socket) => tokio::net::UnixListener::from_std(socket).map(Self::Unix),
        }
    }
}

/// An accepted connection, not of any runtime: it may go to another thread.
pub(crate) enum Connected {
    Tcp(std::net::TcpStream),
    Unix(unix::UnixStream),
}

impl Connected {
    /// Takes a connection that was just accepted from the runtime.
    ///
    /// # Errors
    /// What the system says; and `Unsupported` of a stream that is more than a socket.
    pub(crate) fn take(stream: Stream) -> io::Result<Self> {
        match stream {
            Stream::Tcp(stream) => stream.into_std().map(Self::Tcp),
            Stream::Unix(stream) => stream.into_std().map(Self::Unix),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Gives it to the runtime of this thread.
    pub(crate) fn into_stream(self) -> io::Result<Stream> {
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

//! Sockets of the configured addresses.
//!
//! Owns: which addresses have sockets, binding those that are new, and what to do when one cannot be
//! bound. Does not own: how a socket is bound ([`http_engine::listen`]), accepting.

use std::collections::HashMap;
use std::io;
use std::sync::Weak;

use http_engine::config::ListenAddress;
use http_engine::inherited_sockets::InheritedSockets;
use http_engine::listen::{self, Claim, ListenOptions, ListeningSocket};

use super::StartError;
use crate::config::{Config, Listener};

/// An address with open sockets.
#[derive(Clone)]
pub(super) struct Bound {
    /// The actual address: port 0 is replaced by the assigned port.
    pub(super) at: ListenAddress,
    /// Whether any of its sockets is still open.
    pub(super) open: Weak<()>,
}

/// Open sockets, by configured address.
pub(super) type Addresses = HashMap<ListenAddress, Bound>;
/// Sockets of one worker, by configured address.
pub(super) type Sockets = Vec<(ListenAddress, ListeningSocket)>;

/// How each address is bound.
pub(super) fn listen_options(
    inherited: &InheritedSockets,
    claim: impl Fn(&ListenAddress) -> Claim,
) -> impl Fn(&ListenAddress) -> ListenOptions {
    move |address| ListenOptions { claim: claim(address), inherited: inherited.clone() }
}

/// Binds the addresses of `config` that are not in `addresses`, for each of `workers`, and adds
/// them. Addresses that are there keep their sockets: a second socket, even for a moment, would
/// receive connections that are lost when it closes.
pub(super) fn bind_new(
    config: &Config,
    workers: usize,
    options: &dyn Fn(&ListenAddress) -> ListenOptions,
    addresses: &mut Addresses,
) -> Result<Vec<Sockets>, StartError> {
    let mut all: Vec<_> = (0..workers).map(|_| Sockets::new()).collect();
    let mut new: Vec<_> = config.listeners.iter().filter(|l| !addresses.contains_key(&l.address)).collect();
    // Binding a Unix socket takes it from another process: nothing may fail afterwards, so these
    // come last.
    new.sort_by_key(|listener| matches!(listener.address, ListenAddress::Unix(_)));
    for listener in new {
        bind_listener(listener, workers, options, addresses, &mut all)?;
    }
    Ok(all)
}

/// Binds the address of one listener for each of `workers`, and adds it to `addresses` and `all`.
pub(super) fn bind_listener(
    listener: &Listener,
    workers: usize,
    options: &dyn Fn(&ListenAddress) -> ListenOptions,
    addresses: &mut Addresses,
    all: &mut [Sockets],
) -> Result<(), StartError> {
    let fault = |source| {
        let (name, address) = (listener.name.to_string(), listener.address.clone());
        StartError::Bind { name, address, source }
    };
    let options = options(&listener.address);
    let bound = ListeningSocket::bind(&listener.address, listener.mode, workers, &options);
    let (sockets, open) = bound.map_err(fault)?;
    let at = sockets.first().and_then(ListeningSocket::local_addr);
    let at = at.map_or_else(|| listener.address.clone(), ListenAddress::Ip);
    addresses.insert(listener.address.clone(), Bound { at, open });
    for (one, socket) in all.iter_mut().zip(sockets) {
        one.push((listener.address.clone(), socket));
    }
    Ok(())
}

/// Sets the permission bits of the new configuration on sockets that stay.
pub(super) fn set_modes(old: &Config, new: &Config) -> Result<(), StartError> {
    for listener in new.listeners.iter() {
        let ListenAddress::Unix(path) = &listener.address else { continue };
        let previous = old.listeners.at(&listener.address);
        if previous.is_some_and(|old| old.mode != listener.mode) {
            listen::set_mode(path, listener.mode).map_err(|source| StartError::Bind {
                name: listener.name.to_string(),
                address: listener.address.clone(),
                source,
            })?;
        }
    }
    Ok(())
}

pub(super) fn remedy(address: &ListenAddress, source: &io::Error) -> String {
    let fixed = match (address, source.kind()) {
        (_, io::ErrorKind::AddrInUse) => return listen::in_use_advice(address),
        (ListenAddress::Ip(_), _) => {
            "check that this machine has the address and that this user may listen on the port"
        }
        (ListenAddress::Unix(_), io::ErrorKind::AlreadyExists) => "move it away, or choose another path",
        (ListenAddress::Unix(_), _) => "check that the directory exists and that this user may write to it",
    };
    fixed.into()
}

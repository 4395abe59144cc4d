//! Block results: what followed from the fields of a request that a connection repeats.
//!
//! Owns: its host in normal form, the name of its bearer token or session in the cache, and the lines
//! that it contributes to the request of the upstream, each with everything else that it follows from.
//! A decision is never among them: a credential is looked up, and a request decided, each time. Does not
//! own: whether a block is the same ([`http_engine::head::BlockMemory`],
//! [`http_engine::http2::fields::FieldMemory`]), how long results are kept ([`crate::serve`]).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use auth::request::{Canonical, KnownHost};
use credentials::authenticate::Authenticator;
use credentials::authenticate::outcome::CredentialName;
use credentials::cache::CacheKey;
use http_engine::head::BlockId;
use login::Login;

use crate::config::Config;
use crate::forward_filter::ForwardFilter;

/// Results of one connection.
#[derive(Default)]
pub(crate) struct BlockResults(RefCell<Option<Box<Results>>>);

#[derive(Default)]
struct Results {
    host: Option<(BlockId, Rc<KnownHost>)>,
    credential: Option<(BlockId, CredentialName)>,
    session: Option<(SessionBasis, CacheKey)>,
    lines: Option<(LinesBasis, ClientLines)>,
}

/// What the name of a session follows from.
struct SessionBasis {
    block: BlockId,
    /// Compared by identity: each may have other keys.
    login: Arc<Login>,
    origin: usize,
}

/// What the client's lines of an upstream's request follow from, besides limits of the connection.
pub(crate) struct LinesBasis {
    pub(crate) block: BlockId,
    /// Compared by identity: each has other routes and rules.
    pub(crate) config: Arc<Config>,
    pub(crate) route: usize,
    /// Index of the upstream among several of the route, if it changes fields in its own way.
    pub(crate) entry: Option<usize>,
    /// Whether the caller has a session, so that an `Authorization` is not for the gateway.
    pub(crate) is_session: bool,
}

/// The lines with the client's fields in the request of an upstream.
struct ClientLines {
    /// The lines, with their ends.
    bytes: Vec<u8>,
    /// Number of fields that no client may set.
    removed: u32,
}

impl PartialEq for LinesBasis {
    fn eq(&self, other: &Self) -> bool {
        let Self { block, config, route, entry, is_session } = self;
        *block == other.block
            && Arc::ptr_eq(config, &other.config)
            && *route == other.route
            && *entry == other.entry
            && *is_session == other.is_session
    }
}

impl BlockResults {
    /// The host of the fields of a request, if it is known.
    pub(crate) fn host(&self, block: Option<BlockId>) -> Option<Rc<KnownHost>> {
        match self.0.borrow().as_deref() {
            Some(Results { host: Some((of, host)), .. }) if Some(*of) == block => Some(host.clone()),
            _ => None,
        }
    }

    /// Remembers the host of the fields of a request, unless it is known. `request` names no other one
    /// in its target.
    pub(crate) fn remember_host(&self, block: BlockId, request: &Canonical<'_>) {
        let host = Rc::new(request.known_host());
        self.0.borrow_mut().get_or_insert_default().host = Some((block, host));
    }

    /// The name of the bearer token in the fields of a request.
    pub(crate) fn credential_name(
        &self,
        block: Option<BlockId>,
        authenticator: &Authenticator,
        token: &[u8],
    ) -> CredentialName {
        let Some(block) = block else { return authenticator.name(token) };
        let mut results = self.0.borrow_mut();
        if let Some(Results { credential: Some((of, name)), .. }) = results.as_deref()
            && *of == block
            && authenticator.knows(name)
        {
            return *name;
        }
        let name = authenticator.name(token);
        results.get_or_insert_default().credential = Some((block, name));
        name
    }

    /// The name of the session whose cookie is in the fields of a request to an origin of the login.
    pub(crate) fn session_name(
        &self,
        block: Option<BlockId>,
        login: &Arc<Login>,
        origin: usize,
        cookie: &[u8],
    ) -> CacheKey {
        let Some(block) = block else { return login.name(origin, cookie) };
        let mut results = self.0.borrow_mut();
        if let Some(Results { session: Some((basis, name)), .. }) = results.as_deref()
            && basis.block == block
            && Arc::ptr_eq(&basis.login, login)
            && basis.origin == origin
        {
            return *name;
        }
        let name = login.name(origin, cookie);
        let basis = SessionBasis { block, login: Arc::clone(login), origin };
        results.get_or_insert_default().session = Some((basis, name));
        name
    }

    /// Appends the client's lines to a head. Where they are not known, `write` makes them with the
    /// filter.
    pub(crate) fn put_lines(
        &self,
        basis: LinesBasis,
        filter: &ForwardFilter<'_>,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut results = self.0.borrow_mut();
        if let Some(Results { lines: Some((of, lines)), .. }) = results.as_deref()
            && *of == basis
        {
            out.extend_from_slice(&lines.bytes);
            filter.add_removed(lines.removed);
            return;
        }
        let (start, before) = (out.len(), filter.removed());
        write(out);
        let results = results.get_or_insert_default();
        // Requests may go to several routes in turn: the memory is used again.
        let mut bytes = results.lines.take().map(|(_, lines)| lines.bytes).unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&out[start..]);
        results.lines = Some((basis, ClientLines { bytes, removed: filter.removed() - before }));
    }

    /// Frees everything.
    pub(crate) fn forget(&self) {
        self.0.replace(None);
    }
}

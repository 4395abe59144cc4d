//! Block results: what followed from the fields of a request that a connection repeats.
//!
//! Owns: its host in normal form, the name of its bearer token or session in the cache, and the lines
//! that it contributes to the request of the upstream, each with everything else that it follows from.
//! A decision is never among them: a credential is looked up, and a request decided, each time. Does not
//! own: whether a block is the same ([`http_engine::head::BlockMemory`],
//! [`http_engine::http2::fields::FieldMemory`]), how long it is remembered ([`crate::serve`]).
//!
//! There are results of one block only, the remembered one, and they go with it. A request that is
//! under way when another takes its place adds nothing. Configurations and logins are compared and not
//! held: a connection keeps none of them after a reload.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::{Arc, Weak};

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

/// Results of one block.
struct Results {
    block: BlockId,
    host: Option<Rc<KnownHost>>,
    credential: Option<CredentialName>,
    session: Option<(SessionBasis, CacheKey)>,
    lines: Option<(LinesBasis<Weak<Config>>, ClientLines)>,
}

/// What the name of a session follows from, besides the block.
struct SessionBasis {
    /// Compared by identity: each may have other keys.
    login: Weak<Login>,
    origin: usize,
}

/// What the client's lines of an upstream's request follow from, besides the block and limits of the
/// connection.
#[derive(Clone, Copy)]
pub(crate) struct LinesBasis<C> {
    /// Compared by identity: each has other routes and rules.
    pub(crate) config: C,
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

impl LinesBasis<&Arc<Config>> {
    fn is(&self, other: &LinesBasis<Weak<Config>>) -> bool {
        let Self { config, route, entry, is_session } = *self;
        is_same(&other.config, config)
            && route == other.route
            && entry == other.entry
            && is_session == other.is_session
    }
}

/// Whether a value is the one that was seen. The address of one that was seen is not used again.
fn is_same<T>(seen: &Weak<T>, value: &Arc<T>) -> bool {
    std::ptr::eq(seen.as_ptr(), Arc::as_ptr(value))
}

impl BlockResults {
    /// Begins with a request that has the remembered block.
    pub(crate) fn begin(&self, block: BlockId) {
        let mut results = self.0.borrow_mut();
        if results.as_ref().is_none_or(|results| results.block != block) {
            let none = Results { block, host: None, credential: None, session: None, lines: None };
            *results = Some(Box::new(none));
        }
    }

    /// The results of a block, if it is the remembered one.
    fn of(&self, block: BlockId) -> Option<RefMut<'_, Results>> {
        RefMut::filter_map(self.0.borrow_mut(), |results| {
            results.as_deref_mut().filter(|results| results.block == block)
        })
        .ok()
    }

    /// The host of the fields of a request, if it is known.
    pub(crate) fn host(&self, block: Option<BlockId>) -> Option<Rc<KnownHost>> {
        self.of(block?)?.host.clone()
    }

    /// Remembers the host of the fields of a request, unless it is known. `request` names no other one
    /// in its target.
    pub(crate) fn remember_host(&self, block: BlockId, request: &Canonical<'_>) {
        if let Some(mut results) = self.of(block) {
            results.host = Some(Rc::new(request.known_host()));
        }
    }

    /// The name of the bearer token in the fields of a request.
    pub(crate) fn credential_name(
        &self,
        block: Option<BlockId>,
        authenticator: &Authenticator,
        token: &[u8],
    ) -> CredentialName {
        let Some(mut results) = block.and_then(|block| self.of(block)) else {
            return authenticator.name(token);
        };
        match &results.credential {
            Some(name) if authenticator.knows(name) => *name,
            _ => *results.credential.insert(authenticator.name(token)),
        }
    }

    /// The name of the session whose cookie is in the fields of a request to an origin of the login.
    pub(crate) fn session_name(
        &self,
        block: Option<BlockId>,
        login: &Arc<Login>,
        origin: usize,
        cookie: &[u8],
    ) -> CacheKey {
        let Some(mut results) = block.and_then(|block| self.of(block)) else {
            return login.name(origin, cookie);
        };
        match &results.session {
            Some((basis, name)) if is_same(&basis.login, login) && basis.origin == origin => *name,
            _ => {
                let name = login.name(origin, cookie);
                results.session = Some((SessionBasis { login: Arc::downgrade(login), origin }, name));
                name
            }
        }
    }

    /// Appends the client's lines to a head. Where they are not known, `write` makes them with the
    /// filter.
    pub(crate) fn put_lines(
        &self,
        block: BlockId,
        basis: LinesBasis<&Arc<Config>>,
        filter: &ForwardFilter<'_>,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(mut results) = self.of(block) else { return write(out) };
        if let Some((of, lines)) = &results.lines
            && basis.is(of)
        {
            out.extend_from_slice(&lines.bytes);
            filter.add_removed(lines.removed);
            return;
        }
        let (start, before) = (out.len(), filter.removed());
        write(out);
        // Requests may go to several routes in turn: the memory is used again.
        let mut bytes = results.lines.take().map(|(_, lines)| lines.bytes).unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&out[start..]);
        let LinesBasis { config, route, entry, is_session } = basis;
        let basis = LinesBasis { config: Arc::downgrade(config), route, entry, is_session };
        results.lines = Some((basis, ClientLines { bytes, removed: filter.removed() - before }));
    }

    /// Frees everything: the block is not remembered any more.
    pub(crate) fn forget(&self) {
        self.0.replace(None);
    }
}

#[cfg(test)]
mod tests {
    use auth::request::{RawRequest, Scheme};
    use http_engine::head::{BlockMemory, Fields, parse_to_remember};

    use super::*;

    /// The numbers of two blocks that a connection remembers one after the other.
    fn blocks() -> [BlockId; 2] {
        let mut memory = BlockMemory::default();
        ["a", "b"].map(|value| {
            let head = format!("GET / HTTP/1.1\r\nHost: app.test\r\nX: {value}\r\n\r\n");
            let is_other = [(); 3].map(|()| {
                let is_other = memory.begin();
                let mut fields = Fields::new();
                let (_, facts) = parse_to_remember(head.as_bytes(), 100, &mut fields).unwrap();
                memory.miss(head.as_bytes(), &fields, facts);
                is_other
            });
            assert_eq!(is_other, [false, false, true]);
            memory.hit();
            memory.block().unwrap().id()
        })
    }

    #[test]
    fn results_go_with_their_block() {
        let [first, second] = blocks();
        assert_ne!(first, second);
        let host = RawRequest {
            method: "GET",
            scheme: Scheme::Http,
            authority: None,
            host: Some(b"app.test"),
            target: b"/",
        };
        let request = Canonical::parse(&host).unwrap();
        let results = BlockResults::default();
        let knows = || [first, second].map(|block| results.host(Some(block)).is_some());
        results.remember_host(first, &request);
        assert_eq!(knows(), [false, false], "no request has the block now");
        results.begin(first);
        results.remember_host(first, &request);
        results.begin(first);
        assert_eq!(knows(), [true, false]);
        assert!(results.host(None).is_none());
        results.begin(second);
        assert_eq!(knows(), [false, false]);
        // A request that began before.
        results.remember_host(first, &request);
        assert_eq!(knows(), [false, false]);
        results.remember_host(second, &request);
        assert_eq!(knows(), [false, true]);
        results.forget();
        results.remember_host(second, &request);
        assert_eq!(knows(), [false, false], "the connection pauses");
    }
}

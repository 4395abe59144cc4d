//! Listeners: the sockets of a configuration, found by name and by address.

use std::collections::HashMap;
use std::sync::Arc;

use http_engine::config::ListenAddress;

use super::Listener;

/// The listeners of a configuration, in order. A clone shares them.
#[derive(Clone, Default)]
pub struct Listeners(Arc<Index>);

#[derive(Default)]
struct Index {
    all: Vec<Arc<Listener>>,
    by_name: HashMap<Box<str>, usize>,
    by_address: HashMap<ListenAddress, usize>,
}

impl Listeners {
    /// All listeners, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Listener>> {
        self.0.all.iter()
    }

    /// The listener with a name.
    pub fn named(&self, name: &str) -> Option<&Arc<Listener>> {
        Some(&self.0.all[*self.0.by_name.get(name)?])
    }

    /// The listener at a configured address.
    pub fn at(&self, address: &ListenAddress) -> Option<&Arc<Listener>> {
        Some(&self.0.all[*self.0.by_address.get(address)?])
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.all.is_empty()
    }
}

impl FromIterator<Arc<Listener>> for Listeners {
    fn from_iter<I: IntoIterator<Item = Arc<Listener>>>(listeners: I) -> Self {
        let all: Vec<_> = listeners.into_iter().collect();
        let numbered = || all.iter().enumerate();
        let by_name = numbered().map(|(at, listener)| (listener.name.clone(), at)).collect();
        let by_address = numbered().map(|(at, listener)| (listener.address.clone(), at)).collect();
        Self(Arc::new(Index { all, by_name, by_address }))
    }
}

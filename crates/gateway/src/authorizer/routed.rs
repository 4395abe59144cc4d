//! Routed authorizers: those that belong to one route of the cluster each.
//!
//! Owns: making one when a worker first needs it, and dropping it when its route is gone. Does not
//! own: which there are ([`crate::config::Routing`]), what an authorizer does (the parent).
//!
//! All workers share an authorizer, with its cached answers. There may be thousands that nobody ever
//! needs, so they are made late.

use std::collections::HashMap;
use std::sync::Arc;

use credentials::cache::CacheSecret;
use credentials::revocation::FollowedIssuers;
use parking_lot::Mutex;
use telemetry::metrics::{AuthorizerMetrics, Metrics};

use super::Authorizer;
use crate::config::{AuthorizerConfig, Routing};

/// Name of all of them in metrics. No authorizer of a file can have it.
const NAME: &str = "ExternalAuth of routes";

/// The authorizers of single routes.
pub(crate) struct RoutedAuthorizers {
    generation: u64,
    secret: CacheSecret,
    follows: FollowedIssuers,
    metrics: Arc<Metrics>,
    /// By number, each with the configuration that it was made for.
    made: Mutex<HashMap<usize, (Arc<AuthorizerConfig>, ActiveAuthorizer)>>,
}

/// An authorizer with its metrics.
#[derive(Clone)]
pub(crate) struct ActiveAuthorizer {
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) counts: Arc<AuthorizerMetrics>,
}

impl RoutedAuthorizers {
    /// None so far. `generation` counts configurations.
    pub(crate) fn new(
        generation: u64,
        secret: &CacheSecret,
        follows: &FollowedIssuers,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let (secret, follows, metrics) = (secret.clone(), follows.clone(), metrics.clone());
        Self { generation, secret, follows, metrics, made: Mutex::default() }
    }

    /// The authorizer with a number, for this configuration of it.
    pub(crate) fn get(&self, at: usize, config: &Arc<AuthorizerConfig>) -> ActiveAuthorizer {
        let mut made = self.made.lock();
        if let Some((of, active)) = made.get(&at)
            && Arc::ptr_eq(of, config)
        {
            return active.clone();
        }
        let authorizer = Authorizer::new(config, at, self.generation, &self.secret, &self.follows, None);
        let new =
            ActiveAuthorizer { authorizer: Arc::new(authorizer), counts: self.metrics.authorizer(NAME) };
        made.insert(at, (config.clone(), new.clone()));
        new
    }

    /// Drops those that no route has any more.
    pub(crate) fn sweep(&self, routing: &Routing) {
        let is_used = |at: usize, of: &Arc<AuthorizerConfig>| {
            routing.authorizer(at).is_some_and(|config| Arc::ptr_eq(config, of))
        };
        self.made.lock().retain(|at, (of, _)| is_used(*at, of));
    }
}

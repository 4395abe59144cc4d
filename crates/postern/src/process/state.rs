//! State of a process that its admin listener and its metrics show.
//!
//! Owns: readiness, notes, and samples of the gateway that runs. Does not own: the parts themselves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use credentials::authenticate::Authenticator;
use credentials::events::Receiver;
use gateway::server::Gateway;
use parking_lot::Mutex;
use telemetry::metrics::{CacheSample, IssuerSample};

use super::gateway_api::GatewayApi;
use crate::provider::RunningProvider;
use crate::readiness;
use crate::revocation::FollowedLog;

/// State that the admin listener shows.
pub(super) struct ProcessState {
    pub(super) gateway: Mutex<Option<Gateway>>,
    pub(super) effective: Mutex<String>,
    pub(super) draining: AtomicBool,
    /// The followed logs of issuers.
    pub(super) followed_logs: Mutex<Vec<Arc<FollowedLog>>>,
    /// Receiver of security events.
    pub(super) events: Option<Arc<Receiver>>,
    /// Health of the provider, if there is one.
    pub(super) provider: Option<ProviderHealth>,
    /// The cluster that routes come from, once it is watched.
    pub(super) gateway_api: OnceLock<GatewayApi>,
}

/// Health of the provider.
pub(super) struct ProviderHealth {
    /// Why requests should go to another node.
    unready: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// What is degraded although requests are answered.
    degraded: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

impl ProviderHealth {
    pub(super) fn new(provider: &RunningProvider) -> Self {
        Self { unready: Box::new(provider.unready()), degraded: Box::new(provider.degraded()) }
    }
}

impl ProcessState {
    pub(super) fn new(
        gateway: Gateway,
        effective: String,
        following: Vec<Arc<FollowedLog>>,
        events: Option<Arc<Receiver>>,
        provider: Option<ProviderHealth>,
    ) -> Self {
        Self {
            gateway: Mutex::new(Some(gateway)),
            effective: Mutex::new(effective),
            draining: AtomicBool::new(false),
            followed_logs: Mutex::new(following),
            events,
            provider,
            gateway_api: OnceLock::new(),
        }
    }

    pub(super) fn authenticator(&self) -> Option<Arc<Authenticator>> {
        self.gateway.lock().as_ref().map(Gateway::authenticator)
    }

    /// Reasons why requests should not be sent to this process.
    pub(super) fn unready(&self) -> Vec<String> {
        if self.draining.load(Ordering::Relaxed) {
            return vec!["draining".into()];
        }
        let running = self.gateway.lock().as_ref().map(|one| (one.config(), one.authenticator()));
        let Some((config, authenticator)) = running else { return vec!["starting".into()] };
        let unusable = authenticator.key_sets().into_iter().filter(|keys| !keys.usable);
        let unusable = unusable.map(|keys| format!("issuer {} has no keys", keys.issuer));
        let following = self.followed_logs();
        let unheard = following.iter().filter_map(|following| following.unready());
        let of_provider = self.provider.as_ref().and_then(|provider| (provider.unready)());
        // While some requests can still be admitted, the process stays ready.
        let gone: Vec<_> = following.iter().map(|following| following.unreachable()).collect();
        let is_gone = |issuer: &str| {
            let about = following.iter().position(|following| following.concerns(issuer));
            about.is_some_and(|at| gone[at].is_some())
        };
        let useless = !readiness::can_admit(&config, is_gone);
        let gone = gone.iter().flatten().filter(|_| useless).cloned();
        let of_cluster = self.gateway_api.get().and_then(GatewayApi::unready);
        unusable.chain(of_provider).chain(of_cluster).chain(unheard).chain(gone).collect()
    }

    /// One line for each degraded dependency, although requests are answered.
    pub(super) fn notes(&self) -> Vec<String> {
        let of_events = self.events.iter().flat_map(|events| events.notes());
        let of_provider = self.provider.as_ref().and_then(|provider| (provider.degraded)());
        let of_cluster = self.gateway_api.get().into_iter().flat_map(GatewayApi::notes);
        let of_logs: Vec<_> = self.followed_logs().iter().flat_map(|one| one.notes()).collect();
        of_logs.into_iter().chain(of_provider).chain(of_events).chain(of_cluster).collect()
    }

    pub(super) fn followed_logs(&self) -> Vec<Arc<FollowedLog>> {
        self.followed_logs.lock().clone()
    }

    pub(super) fn issuers(&self) -> Vec<IssuerSample> {
        let Some(authenticator) = self.authenticator() else { return Vec::new() };
        let samples = authenticator.key_sets().into_iter().map(|keys| IssuerSample {
            name: (&*keys.issuer).into(),
            age: keys.age,
            keys: keys.keys as u64,
            fetches: keys.fetched + keys.failed,
            fetch_errors: keys.failed,
        });
        samples.collect()
    }

    pub(super) fn cache(&self) -> CacheSample {
        let Some(gateway) = &*self.gateway.lock() else { return CacheSample::default() };
        let usage = gateway.authenticator().cache_usage();
        CacheSample {
            entries: usage.facts as u64,
            bytes: usage.bytes as u64,
            evictions: usage.evicted,
            limit_bytes: gateway.config().authentication.cache.bytes as u64,
        }
    }
}

//! Issuers with their keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use auth::identity::Identity;
use auth::token::IssuerConfig;

use super::{AuthenticatorRuntime, KeyOrigin, KeySchedule, KeyStore, KeyStoreRuntime};
use crate::config::IssuerSource;
use crate::revocation::FollowedIssuer;

/// Fetches the keys of an issuer from now on. Keeps those of `before`, if its source is the same.
pub(crate) fn start_key_store(
    issuer: &IssuerSource,
    surroundings: &AuthenticatorRuntime,
    before: Option<&Arc<KeyStore>>,
) -> Arc<KeyStore> {
    let IssuerSource { config, keys, tls, proxies, refresh, max_stale } = issuer;
    let source = KeyOrigin::new(config.issuer(), keys.clone(), tls.clone(), proxies.clone());
    let schedule = KeySchedule { refresh: *refresh, max_stale: *max_stale };
    let means = KeyStoreRuntime {
        clock: surroundings.clock.clone(),
        control: surroundings.control.clone(),
        secret: surroundings.secret.clone(),
        generation: surroundings.generation.clone(),
    };
    KeyStore::start(config.name(), source, schedule, means, before)
}

/// A signer of tokens, with its keys.
pub(super) struct IssuerKeys {
    pub(super) config: Arc<IssuerConfig>,
    pub(super) name: Arc<str>,
    pub(super) keys: Arc<KeyStore>,
    /// The issuer's revocation state, if its log is followed.
    pub(super) followed_issuer: Option<Arc<FollowedIssuer>>,
    /// What was reported about groups that are left out.
    reported: ReportedOnce,
}

/// Whether a line was logged since this configuration is in effect.
#[derive(Default)]
struct ReportedOnce {
    other_types: AtomicBool,
    elsewhere: AtomicBool,
}

impl IssuerKeys {
    /// Keeps the keys of the previous signer, if its source is the same.
    pub(super) fn new(
        issuer: &IssuerSource,
        surroundings: &AuthenticatorRuntime,
        before: Option<&Self>,
    ) -> Self {
        let config = issuer.config.clone();
        let keys = start_key_store(issuer, surroundings, before.map(|before| &before.keys));
        let followed = surroundings.follows.of(config.issuer());
        let reported = ReportedOnce::default();
        Self { name: config.name().into(), config, keys, followed_issuer: followed, reported }
    }

    /// The issuer of tokens with this `iss`: the one that names it exactly, or else the one whose
    /// pattern it fits.
    pub(super) fn position(issuers: &[Self], iss: &str) -> Option<usize> {
        let exact = issuers.iter().position(|own| own.config.issuer() == iss);
        exact.or_else(|| issuers.iter().position(|own| own.config.is_issuer(iss)))
    }

    /// Logs once what the identities of this issuer lack. `partial_groups`: the claim with groups of
    /// which this identity lacks some.
    pub(super) fn report(&self, identity: &Identity, partial_groups: Option<&str>) {
        let issuer = &*self.name;
        if let Some(claim) = partial_groups
            && !self.reported.other_types.swap(true, Relaxed)
        {
            tracing::warn!(issuer, claim, "groups that are neither text nor number are left out");
        }
        if identity.groups_elsewhere && !self.reported.elsewhere.swap(true, Relaxed) {
            tracing::warn!(
                issuer,
                "a token has too many groups and names only where they are, so rules about groups do not \
                 match; let the issuer send fewer groups, or application roles"
            );
        }
    }
}

//! Signing keys.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Admin, AdminFault, seconds};
use crate::keys::{key, ring::Stage};

/// How far a key has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyStage {
    /// Signs.
    Active,
    /// Is published and signs after the next rotation.
    Next,
    /// Is published for what it signed.
    Retired,
}

/// A signing key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct KeyView {
    /// Its identifier (RFC 7638).
    pub kid: String,
    /// What it signs with (RFC 7518 §3.1).
    pub algorithm: String,
    /// How far it has come.
    pub stage: KeyStage,
    /// Since when, in seconds since 1970.
    pub since: u64,
    /// Of the next key: when it may take over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<u64>,
    /// Of a retired key: when it is no longer published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone_at: Option<u64>,
}

/// All keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct KeyList {
    /// Those that sign, the next ones, those that retired.
    pub items: Vec<KeyView>,
}

/// Whose next key takes over.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateKey {
    /// `ES256`, `RS256` or `EdDSA`.
    pub algorithm: String,
}

impl Admin<'_> {
    /// Every key, as the database has them now.
    pub async fn keys(&self) -> Result<KeyList, AdminFault> {
        self.provider.keys().refresh(self.provider.place()).await?;
        Ok(self.key_list())
    }

    fn key_list(&self) -> KeyList {
        let ring = self.provider.keys().ring();
        let view = |state: &crate::keys::ring::KeyState<'_>| {
            let (stage, ready, gone) = match state.stage {
                Stage::Active => (KeyStage::Active, None, None),
                Stage::Next { ready } => (KeyStage::Next, Some(seconds(ready)), None),
                Stage::Retired { until } => (KeyStage::Retired, None, Some(seconds(until))),
            };
            KeyView {
                kid: state.kid.to_owned(),
                algorithm: state.algorithm.to_owned(),
                stage,
                since: seconds(state.since),
                ready_at: ready,
                gone_at: gone,
            }
        };
        KeyList { items: ring.states().iter().map(view).collect() }
    }

    /// The next key of an algorithm takes over. Refused while caches may not have it yet.
    pub async fn rotate_key(&self, rotate: &RotateKey) -> Result<KeyList, AdminFault> {
        let algorithm = key::by_name(&rotate.algorithm).ok_or_else(|| {
            AdminFault::refused("algorithm", format!("{:?} is none of ES256, RS256, EdDSA", rotate.algorithm))
        })?;
        let entry = self.entry("key.rotate", format!("key:{}", key::name(algorithm)), &Value::Null);
        let (keys, place) = (self.provider.keys(), self.provider.place());
        keys.rotate_told(place, algorithm, Some(entry), self.now()).await?;
        Ok(self.key_list())
    }

    /// A key leaked: it is no longer published, and its successor signs at once.
    pub async fn revoke_key(&self, kid: &str) -> Result<KeyList, AdminFault> {
        let known = self.keys().await?.items.into_iter().find(|key| key.kid == kid);
        let algorithm = known.map(|key| key.algorithm).ok_or_else(|| AdminFault::no("key", kid))?;
        let entry = self.entry("key.revoke", format!("key:{kid}"), &json!({ "algorithm": algorithm }));
        let (keys, place) = (self.provider.keys(), self.provider.place());
        keys.revoke_told(place, kid, Some(entry), self.now()).await?;
        Ok(self.key_list())
    }
}

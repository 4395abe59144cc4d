//! Signing key administration: list, rotation and revocation.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::paging::{Listed, Part};
use super::{Admin, AdminFault, Page, UtcTime};
use crate::keys::{key, ring::Stage};

/// Stage in the life of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyStage {
    /// The key signs new tokens.
    Active,
    /// The key is published and signs after the next rotation.
    Next,
    /// The key no longer signs; it stays published so that its tokens can be verified.
    Retired,
}

/// A signing key and its stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct KeyView {
    /// Key id (RFC 7638 thumbprint).
    pub kid: String,
    /// Signature algorithm (RFC 7518 §3.1).
    pub algorithm: String,
    /// Stage in the life of the key.
    pub stage: KeyStage,
    /// Start of this stage.
    pub since: UtcTime,
    /// When the next key may become active; only for that stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<UtcTime>,
    /// When a retired key is no longer published; only for that stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone_at: Option<UtcTime>,
}

impl KeyView {
    /// The stage as in JSON.
    fn stage_name(&self) -> &'static str {
        match self.stage {
            KeyStage::Active => "active",
            KeyStage::Next => "next",
            KeyStage::Retired => "retired",
        }
    }
}

impl Listed for KeyView {
    fn position(&self) -> String {
        self.kid.clone()
    }

    fn searched(&self) -> Vec<Cow<'_, str>> {
        vec![(&self.kid).into(), (&self.algorithm).into(), self.stage_name().into()]
    }
}

/// Query parameters of the list of signing keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListKeys {
    /// Only keys after the one with this `kid`.
    pub after: Option<String>,
    /// Most entries to return: 1 to 500; default 100.
    pub limit: Option<u32>,
    /// Only keys with this text, in any case, in the `kid`, the algorithm or the stage.
    pub search: Option<String>,
}

/// List of all signing keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct KeyList {
    /// The keys: first active, then next, then retired ones.
    pub items: Vec<KeyView>,
}

/// Request to rotate the key of one algorithm.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateKey {
    /// Signature algorithm: `ES256`, `RS256` or `EdDSA`.
    pub algorithm: String,
}

impl Admin<'_> {
    /// Returns all keys, as read from the database now.
    ///
    /// # Errors
    /// [`AdminFault`] when the keys cannot be read.
    pub async fn keys(&self) -> Result<KeyList, AdminFault> {
        self.provider.keys().refresh(self.provider.key_access()).await?;
        Ok(self.key_list())
    }

    /// Lists keys, as read from the database now: first active, then next, then retired ones.
    ///
    /// # Errors
    /// [`AdminFault`] when the limit is out of range or the keys cannot be read.
    pub async fn list_keys(&self, list: &ListKeys) -> Result<Page<KeyView>, AdminFault> {
        let part = Part { search: list.search.as_deref(), limit: list.limit, after: list.after.as_deref() };
        part.of(self.keys().await?.items)
    }

    fn key_list(&self) -> KeyList {
        let ring = self.provider.keys().ring();
        let view = |state: &crate::keys::ring::KeyState<'_>| {
            let (stage, ready, gone) = match state.stage {
                Stage::Active => (KeyStage::Active, None, None),
                Stage::Next { ready } => (KeyStage::Next, Some(UtcTime(ready)), None),
                Stage::Retired { until } => (KeyStage::Retired, None, Some(UtcTime(until))),
            };
            KeyView {
                kid: state.kid.to_owned(),
                algorithm: state.algorithm.to_owned(),
                stage,
                since: UtcTime(state.since),
                ready_at: ready,
                gone_at: gone,
            }
        };
        KeyList { items: ring.states().iter().map(view).collect() }
    }

    /// Activates the next key of an algorithm. Refused while caches may not have that key yet.
    ///
    /// # Errors
    /// [`AdminFault`] when the algorithm is unknown, the next key is too recent or the change
    /// fails.
    pub async fn rotate_key(&self, rotate: &RotateKey) -> Result<KeyList, AdminFault> {
        let algorithm = key::by_name(&rotate.algorithm).ok_or_else(|| {
            AdminFault::refused(
                "algorithm",
                format!("unknown algorithm {:?}: use ES256, RS256 or EdDSA", rotate.algorithm),
            )
        })?;
        let entry = self.entry("key.rotate", format!("key:{}", key::name(algorithm)), &Value::Null);
        let (keys, place) = (self.provider.keys(), self.provider.key_access());
        keys.rotate_audited(place, algorithm, Some(entry), self.now()).await?;
        Ok(self.key_list())
    }

    /// Revokes a leaked key: it is no longer published, and its successor signs immediately.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no such key or the change fails.
    pub async fn revoke_key(&self, kid: &str) -> Result<KeyList, AdminFault> {
        let known = self.keys().await?.items.into_iter().find(|key| key.kid == kid);
        let algorithm = known.map(|key| key.algorithm).ok_or_else(|| AdminFault::not_found("key", kid))?;
        let entry = self.entry("key.revoke", format!("key:{kid}"), &json!({ "algorithm": algorithm }));
        let (keys, place) = (self.provider.keys(), self.provider.key_access());
        keys.revoke_audited(place, kid, Some(entry), self.now()).await?;
        Ok(self.key_list())
    }
}

//! Configurations for unit tests.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{LoginConfig, Origin};
use crate::keys::SessionKeys;
use crate::pages::LoginPages;

/// A login at these origins, each with its own sessions, without providers.
pub(crate) fn config(origins: Vec<Origin>) -> LoginConfig {
    LoginConfig {
        path: "/oauth2".into(),
        origins,
        wildcards: Vec::new(),
        shared: None,
        frame_ancestors: None,
        keys: SessionKeys::parse("sPf6+jr9AWqgv7caKskT3PFDwsi8v5jOk96uPwMQOHQ=").unwrap(),
        lifetime: Duration::from_hours(12),
        idle: Duration::from_hours(1),
        refresh: Duration::from_mins(5),
        ttl: Duration::from_secs(10),
        page: false,
        pages: Arc::new(LoginPages::new(Arc::default()).unwrap()),
        providers: Vec::new(),
        version: 1,
    }
}

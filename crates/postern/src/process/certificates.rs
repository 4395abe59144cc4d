//! Certificates of the applied configuration, which are renewed even while another is refused.
//!
//! Owns: reading their files again after a refused reload, and the log lines about it. Does not
//! own: when that is ([`crate::lifecycle`]), the renewal itself ([`http_engine::tls`]).

use std::sync::Arc;

use auth::time::Timestamp;
use http_engine::tls::{Renewal, ServerCertificates};

/// Certificates of all listeners and of the provider.
pub(super) struct AppliedCertificates(pub(super) Vec<Arc<ServerCertificates>>);

impl AppliedCertificates {
    /// Uses each certificate that has changed and is not faulty. A faulty one stays as it is.
    pub(super) fn renew(&self, now: Timestamp) {
        for Renewal { certificate, outcome } in self.0.iter().flat_map(|all| all.renew(now)) {
            let file = certificate.display();
            match outcome {
                Ok(warnings) => {
                    tracing::info!(certificate = %file, "certificate renewed");
                    for warning in warnings {
                        tracing::warn!("{warning}");
                    }
                }
                Err(error) => tracing::error!(certificate = %file, %error, "certificate not renewed"),
            }
        }
    }
}

//! Upstream status: metrics of the lookups of upstream names.

use http_engine::upstream::discovery::DiscoveryStatus;
use telemetry::metrics::{Collect, Encoder, FamilyKind};

/// Numbers about an upstream whose endpoints change.
#[derive(Debug, Clone)]
pub struct UpstreamStatus(pub DiscoveryStatus);

impl Collect for UpstreamStatus {
    fn collect(all: &[Self], e: &mut Encoder) {
        if all.is_empty() {
            return;
        }
        let mut family = e.family(
            "postern_upstream_endpoints",
            FamilyKind::Gauge,
            "Endpoints of an upstream that has names or health checks.",
        );
        for Self(status) in all {
            family.sample(&[("upstream", &*status.upstream)], status.endpoints as u64);
        }
        let mut family = e.family(
            "postern_upstream_healthy_endpoints",
            FamilyKind::Gauge,
            "Endpoints of such an upstream that pass their health checks, or are not checked.",
        );
        for Self(status) in all {
            family.sample(&[("upstream", &*status.upstream)], status.healthy_endpoints as u64);
        }
        let mut family = e.family(
            "postern_upstream_lookups",
            FamilyKind::Counter,
            "Lookups of the names of an upstream, by result.",
        );
        for Self(status) in all {
            for (result, count) in [("success", status.lookups), ("failure", status.failed_lookups)] {
                family.sample(&[("upstream", &*status.upstream), ("result", result)], count);
            }
        }
    }
}

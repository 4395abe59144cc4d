//! Metrics of routes: which objects have their own, beside those of their listeners.
//!
//! Owns: the decision, and the metrics that the rules of an object share. Does not own: counting
//! (`telemetry`).

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use controller::names::ObjectKey;
use controller::plan::RoutePlan;
use telemetry::metrics::GatewayRouteMetrics;

/// The label by which a route asks for metrics of its own.
pub const ROUTE_METRICS_LABEL: &str = "postern.dev/route-metrics";

/// Which routes have metrics of their own. Each has up to 15 series, so in a large cluster those of
/// all routes are many times those of all Gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RouteMetricsMode {
    /// None.
    Off,
    /// Those with the label [`ROUTE_METRICS_LABEL`] and the value `true`.
    #[default]
    Labeled,
    /// All.
    All,
}

impl RouteMetricsMode {
    fn includes(self, plan: &RoutePlan) -> bool {
        match self {
            Self::Off => false,
            Self::Labeled => {
                let labels = plan.labels.as_ref();
                labels
                    .and_then(|labels| labels.get(ROUTE_METRICS_LABEL))
                    .is_some_and(|value| &**value == "true")
            }
            Self::All => true,
        }
    }
}

/// The metrics of routes. The routing owns them: they exist as long as a version in use has the
/// route, and a changed route keeps its own.
#[derive(Default)]
pub(crate) struct RouteMetricsByObject {
    known: HashMap<ObjectKey, Weak<GatewayRouteMetrics>>,
    /// Number of entries at which those that are not used any more are dropped.
    limit: usize,
}

impl RouteMetricsByObject {
    /// The metrics of the object that a rule belongs to; `None`: it has none of its own.
    pub(crate) fn of(
        &mut self,
        plan: &RoutePlan,
        mode: RouteMetricsMode,
    ) -> Option<Arc<GatewayRouteMetrics>> {
        if !mode.includes(plan) {
            return None;
        }
        let object = &plan.id.route;
        if let Some(known) = self.known.get(object).and_then(Weak::upgrade) {
            return Some(known);
        }
        if self.known.len() >= self.limit.max(64) {
            self.known.retain(|_, metrics| metrics.strong_count() > 0);
            self.limit = self.known.len() * 2;
        }
        let new = Arc::new(GatewayRouteMetrics::new(format!("{} {}", object.kind.name(), object.at)));
        self.known.insert(object.clone(), Arc::downgrade(&new));
        Some(new)
    }
}

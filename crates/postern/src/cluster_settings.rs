//! Settings of the controller and the compiler of a Kubernetes cluster, from the table
//! `[gateway_api]`. The process and `postern check -f` have the same.
//!
//! Owns: the translation. Does not own: the table (`config`), and what is done with the settings.

use cluster::{CompilerSettings, DefaultPolicy, RouteMetricsMode, SUPPORTED_FEATURES};
use config::{GatewayApiSettings, raw};
use controller::names::{Name, NamespacedName};
use controller::settings::Settings;
use http_engine::clock::{Clock as _, SystemClock};
use http_engine::tls::PresentedCertificate;

/// What the operator decides about routes of the cluster.
pub(crate) fn compiler(settings: &GatewayApiSettings) -> CompilerSettings {
    CompilerSettings {
        default_policy: match settings.default_policy {
            raw::DefaultPolicy::Deny => DefaultPolicy::Deny,
            raw::DefaultPolicy::Public => DefaultPolicy::Public,
        },
        listener: settings.listener.clone(),
        tls: settings.tls.clone(),
        zone: settings.zone.as_deref().map(Box::from),
        route_metrics: match settings.route_metrics {
            raw::RouteMetrics::Off => RouteMetricsMode::Off,
            raw::RouteMetrics::Labeled => RouteMetricsMode::Labeled,
            raw::RouteMetrics::All => RouteMetricsMode::All,
        },
    }
}

/// What the operator decides about objects, with the check of certificates.
pub(crate) fn controller(settings: &GatewayApiSettings) -> Settings {
    Settings {
        experimental: settings.experimental,
        exclusive_hosts: settings.exclusive_hosts,
        ingress_gateway: settings
            .ingress_gateway
            .as_ref()
            .map(|(namespace, name)| NamespacedName::new(namespace.as_str(), name.as_str())),
        route_labels: settings
            .route_labels
            .iter()
            .map(|(key, value)| (Name::from(key.as_str()), Name::from(value.as_str())))
            .collect(),
        supported_features: SUPPORTED_FEATURES.to_vec(),
        certificate_check: check_certificate,
        match_check: cluster::check_match,
        ..Settings::new(&settings.controller_name)
    }
}

/// Whether a certificate chain and its key (both PEM) can be served now.
pub(crate) fn check_certificate(chain: &[u8], key: &[u8]) -> Result<(), String> {
    let certificate = PresentedCertificate::from_pem("the Secret", chain, key, SystemClock.now().wall);
    certificate.map(drop).map_err(|error| error.to_string())
}

//! TLS to the backends of a Route of OpenShift with the termination `reencrypt`.
//!
//! Owns: the authorities of the backends, and whether the names in their certificates count.
//! Does not own: which Service a Route names ([`crate::ingress`]).
//! Flow: `destinationCACertificate`, else the authorities of OpenShift → [`UpstreamTls`].

use std::sync::Arc;

use crate::known::Known;
use crate::names::{Name, NamespacedName};
use crate::plan::{CaSource, NameCheck, UpstreamTls};
use crate::settings::has_certificates;

/// The ConfigMap that OpenShift puts into each namespace.
pub const SERVICE_AUTHORITIES: &str = "openshift-service-ca.crt";

/// The TLS of a Service behind a Route, or why there is none. Without authorities in the Route, the
/// certificate must be one that OpenShift issued for the Service. With authorities in the Route every
/// certificate of theirs is valid, as for the router of OpenShift.
pub fn tls(known: &Known, route: &NamespacedName, service: &NamespacedName) -> Result<UpstreamTls, String> {
    let object = known.openshift_routes.get(route);
    let object = object.and_then(|object| object.spec.reencrypts());
    let own = object.map(|tls| &tls.destination_ca_certificate).filter(|own| !own.is_empty());
    let (bundle, name_check): (Arc<[u8]>, _) = match own {
        Some(own) => {
            has_certificates(own.as_bytes())
                .map_err(|problem| format!("tls.destinationCACertificate {problem}"))?;
            (Arc::from(own.as_bytes()), NameCheck::AnyName)
        }
        None => {
            let at = NamespacedName::new(service.namespace.clone(), SERVICE_AUTHORITIES);
            let found = known.config_maps.get(&at).and_then(|data| data.service_authorities.clone());
            let found = found.ok_or_else(|| {
                format!(
                    "there is no entry service-ca.crt in ConfigMap {at}: set tls.destinationCACertificate to \
                     the authorities of the backend"
                )
            })?;
            has_certificates(&found)
                .map_err(|problem| format!("service-ca.crt of ConfigMap {at} {problem}"))?;
            (found, NameCheck::Required)
        }
    };
    let hostname = Name::from(format!("{}.{}.svc", service.name, service.namespace));
    let authorities = CaSource::Bundles(vec![bundle]);
    Ok(UpstreamTls { hostname, authorities, subject_alt_names: Vec::new(), name_check })
}

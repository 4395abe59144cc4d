//! Certificates of Ingresses and Routes on the ports of their Gateway.
//!
//! Owns: which of several certificates for a host counts: that of the oldest object.
//! Does not own: which object may have the host ([`crate::attach`]).
//! Flow: `replace` notes those of an object; `put_into` adds those that count to the plan.

use std::collections::BTreeMap;

use crate::names::{Name, ObjectKey};
use crate::objects::Seconds;
use crate::plan::{GatewayPlan, HostCertificate, KeyPair};

/// A certificate with its port and host.
pub(super) type Certificate = (u16, Name, KeyPair);

/// The certificates of all objects by port and host, and by the age of the objects.
#[derive(Debug, Default)]
pub(super) struct Certificates(BTreeMap<(u16, Name), BTreeMap<(Seconds, ObjectKey), KeyPair>>);

impl Certificates {
    /// Replaces the certificates of an object, whose former ones are `former`. Each list comes with
    /// the time when the object was created.
    pub(super) fn replace(
        &mut self,
        object: &ObjectKey,
        (former_created, former): (Seconds, &[Certificate]),
        (created, new): (Seconds, &[Certificate]),
    ) {
        for (port, host, _) in former {
            let at = (*port, host.clone());
            if let Some(pairs) = self.0.get_mut(&at) {
                pairs.remove(&(former_created, object.clone()));
                if pairs.is_empty() {
                    self.0.remove(&at);
                }
            }
        }
        for (port, host, pair) in new {
            let pairs = self.0.entry((*port, host.clone())).or_default();
            pairs.insert((created, object.clone()), pair.clone());
        }
    }

    /// Sets the certificates of the sockets of a Gateway.
    pub(super) fn put_into(&self, plan: &mut GatewayPlan) {
        for socket in &mut plan.sockets {
            let port = socket.id.port;
            let of_port = self.0.range((port, Name::default())..).take_while(|((own, _), _)| *own == port);
            let certificates = of_port.filter_map(|((_, host), pairs)| {
                let pair = pairs.values().next()?.clone();
                Some(HostCertificate { host: host.clone(), pair })
            });
            socket.certificates = certificates.collect();
        }
    }
}

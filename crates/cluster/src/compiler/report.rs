//! What the controller is told of a version, so that the status of objects says it.
//!
//! Owns: faults of a version as the controller's types. Does not own: finding them (the parent), the
//! conditions (`controller::conditions`).

use controller::plan::{Changes, DataPlaneReport, ListenerFault, PlanFault};

use super::{Compiled, RuleFault};

impl Compiled {
    /// The report of this version. `changes` are those that were carried out; `None`: everything was
    /// compiled again.
    pub fn report(&self, changes: Option<&Changes>) -> DataPlaneReport {
        let rules = self.rules.iter().filter_map(|fault| {
            let RuleFault { problem, id, .. } = fault.clone();
            Some((id?, PlanFault { policy: problem.policy, problem: problem.text }))
        });
        // The certificate of an Ingress is presented beside those of the listener.
        let listeners = self.sockets.iter().filter(|fault| fault.host.is_none());
        let listeners = listeners.map(|fault| ListenerFault {
            socket: fault.socket.clone(),
            listener: fault.listener.clone(),
            problem: fault.problem.clone(),
        });
        let taken_over = changes.iter().flat_map(|changes| changes.gateways.keys());
        let upstreams = self.upstreams.iter().map(|fault| (fault.key.clone(), fault.problem.clone()));
        DataPlaneReport {
            is_whole: changes.is_none(),
            rules: rules.collect(),
            gateways: taken_over.chain(&self.gateways).cloned().collect(),
            listeners: listeners.collect(),
            upstreams: upstreams.collect(),
        }
    }
}

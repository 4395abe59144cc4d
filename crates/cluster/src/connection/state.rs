//! State: the objects of the cluster, and everything that follows from them here.
//!
//! Owns: the order in which a change passes through the parts, what is known of Services, and that
//! nothing is served before every kind was listed once. Does not own: threads and the network (the
//! parent).
//!
//! Flow: `Notice → World → Compiler → World → Step`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use controller::known::GatewayAddresses;
use controller::names::{Interner, Kind, Name, NamespacedName};
use controller::objects;
use controller::plan::{Changes, GatewayPlan, ObjectFaults, SocketId, StatusDocument};
use controller::world::{Event, World};
use http_engine::config::ListenAddress;
use tokio::time::Instant;

use super::retries::Retries;
use super::services::{NoPortLeft, ServiceSettings, Services, WantedService};
use super::watch::{Notice, WatchId};
use crate::compiler::{Compiled, Compiler, FileBase, RuleFault};
use crate::policy::BodyChecker;

/// First pause before a Service is written or deleted again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How clients reach the Gateways.
#[derive(Debug, Clone)]
pub enum Exposure {
    /// By a Service of type `LoadBalancer` for each Gateway.
    Services(ServiceSettings),
    /// At these addresses, by the ports as they are written.
    Host(Vec<IpAddr>),
}

/// What follows from the objects, as far as it is known.
pub(super) struct State {
    pub(super) world: World,
    interner: Interner,
    compiler: Compiler,
    /// Checks bodies of policies; the world has it too.
    bodies: BodyChecker,
    exposed: Exposed,
    bind: IpAddr,
    /// The configuration whose file the routing begins with.
    pub(super) generation: u64,
    /// Watches whose objects have not been listed yet.
    missing: BTreeSet<WatchId>,
    is_synced: bool,
    pub(super) leads: bool,
    gateways: BTreeMap<NamespacedName, Arc<GatewayPlan>>,
    /// Gateways whose ports are served elsewhere than before.
    moved: BTreeSet<NamespacedName>,
    /// Gateways whose Service may differ from what they need.
    unchecked_services: BTreeSet<NamespacedName>,
    /// Gateways whose Service could not be written.
    failed_writes: Retries<NamespacedName, ()>,
    /// Services that could not be deleted.
    failed_deletions: Retries<String, ()>,
    /// Whether the status of a Gateway may differ by what became of a Service.
    has_service_news: bool,
}

enum Exposed {
    Services(Services),
    Host(Vec<String>),
}

/// What is to be done after some notices.
#[derive(Default)]
pub(super) struct Step {
    /// The next version of the routing, if there is one.
    pub(super) compiled: Option<Compiled>,
    /// Status documents to write, if this replica leads.
    pub(super) statuses: Vec<StatusDocument>,
    /// Faults of objects that their status has no room for, among those that have changed.
    pub(super) faults: Vec<ObjectFaults>,
}

/// What the leader has to do with a Service.
pub(super) enum ServiceTask {
    /// Create or change it.
    Write(NamespacedName, WantedService),
    /// Delete the Service with this name.
    Delete(String),
}

impl State {
    pub(super) fn new(
        world: World,
        (compiler, bodies): (Compiler, BodyChecker),
        (exposure, bind): (Exposure, IpAddr),
        generation: u64,
        missing: BTreeSet<WatchId>,
    ) -> Self {
        let exposed = match exposure {
            Exposure::Services(settings) => Exposed::Services(Services::new(settings)),
            Exposure::Host(addresses) => Exposed::Host(addresses.iter().map(ToString::to_string).collect()),
        };
        Self {
            world,
            interner: Interner::default(),
            compiler,
            bodies,
            exposed,
            bind,
            generation,
            missing,
            is_synced: false,
            leads: false,
            gateways: BTreeMap::new(),
            moved: BTreeSet::new(),
            unchecked_services: BTreeSet::new(),
            failed_writes: Retries::default(),
            failed_deletions: Retries::default(),
            has_service_news: false,
        }
    }

    /// Whether every kind was listed once.
    pub(super) fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Takes note of something. [`Self::step`] draws the consequences.
    pub(super) fn note(&mut self, notice: Notice) {
        match notice {
            Notice::Seen(kind, value) => {
                if kind == Kind::Service {
                    let differs = self.services().and_then(|services| services.set(&value));
                    if let Some(gateway) = differs {
                        self.service_differs(gateway);
                    }
                }
                match objects::read(kind, &value, &mut self.interner) {
                    Ok(object) => self.world.apply(Event::Set(object)),
                    Err(error) => tracing::error!(kind = kind.name(), %error, "object cannot be read"),
                }
                if let (Kind::Gateway, Exposed::Host(addresses)) = (kind, &self.exposed) {
                    let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
                    let gateway = NamespacedName::new(text("namespace"), text("name"));
                    let addresses =
                        GatewayAddresses { assigned: addresses.clone(), ..GatewayAddresses::default() };
                    self.world.apply(Event::Addresses(gateway, addresses));
                }
            }
            Notice::Gone(kind, at) => {
                if kind == Kind::Service {
                    let gateway = self.services().and_then(|services| services.remove(&at));
                    if let Some(gateway) = gateway {
                        self.service_differs(gateway);
                    }
                }
                if let (Kind::Gateway, Exposed::Host(_)) = (kind, &self.exposed) {
                    self.world.apply(Event::Addresses(at.clone(), GatewayAddresses::default()));
                }
                self.world.apply(Event::Removed(at.of(kind)));
            }
            Notice::Listed(watch) => {
                self.missing.remove(&watch);
            }
            Notice::BundleVersion(version) => {
                self.world.apply(Event::BundleVersion(version.map(Name::from)));
            }
            // The world was told by `rebase`, and by the writer of Services.
            Notice::FileChanged | Notice::ServicesTried => {}
            Notice::Leads(leads) => {
                self.leads = leads;
                self.unchecked_services.extend(self.gateways.keys().cloned());
                (self.failed_writes, self.failed_deletions) = Default::default();
            }
        }
    }

    fn services(&mut self) -> Option<&mut Services> {
        match &mut self.exposed {
            Exposed::Services(services) => Some(services),
            Exposed::Host(_) => None,
        }
    }

    /// The addresses and ports of a Gateway may differ.
    fn service_differs(&mut self, gateway: NamespacedName) {
        let Exposed::Services(services) = &mut self.exposed else { return };
        self.world.apply(Event::Addresses(gateway.clone(), services.addresses(&gateway)));
        self.moved.insert(gateway.clone());
        self.unchecked_services.insert(gateway);
        self.unchecked_services.extend(services.may_get_ports());
    }

    /// Draws the consequences of what was noted; nothing before every kind was listed once.
    pub(super) fn step(&mut self, now: Timestamp) -> Step {
        if !self.is_synced {
            if !self.missing.is_empty() {
                return Step::default();
            }
            self.is_synced = true;
        }
        let mut changes = self.world.derive();
        self.take_gateways(&mut changes);
        let compiled = (!changes.is_empty()).then(|| {
            let address = address_of(&self.exposed, self.bind);
            self.compiler.apply(&changes, &address, now)
        });
        if let Some(compiled) = &compiled {
            self.world.apply(Event::Reported(compiled.report(Some(&changes))));
        }
        // With what the compiler found, so that no status says what is known to be wrong.
        self.world.derive_statuses(now.as_secs().cast_signed(), &mut changes);
        Step { compiled, statuses: changes.statuses, faults: changes.faults }
    }

    /// Takes note of the Gateways in changes, and adds those whose ports have moved.
    fn take_gateways(&mut self, changes: &mut Changes) {
        for gateway in std::mem::take(&mut self.moved) {
            let is_gone = changes.gateways_removed.contains(&gateway);
            if let Some(plan) = self.gateways.get(&gateway).filter(|_| !is_gone) {
                changes.gateways.entry(gateway).or_insert_with(|| plan.clone());
            }
        }
        for gateway in &changes.gateways_removed {
            self.gateways.remove(gateway);
            self.unchecked_services.insert(gateway.clone());
            self.failed_writes.forget(gateway);
            if let Exposed::Services(services) = &mut self.exposed {
                services.forget(gateway);
                self.world.apply(Event::Addresses(gateway.clone(), services.addresses(gateway)));
            }
        }
        for (gateway, plan) in &changes.gateways {
            self.gateways.insert(gateway.clone(), plan.clone());
            self.unchecked_services.insert(gateway.clone());
        }
    }

    /// What is to be done with Services. Services of Gateways that are gone are deleted only if
    /// `may_delete`. With it come the faults that are new.
    pub(super) fn service_tasks(
        &mut self,
        may_delete: bool,
        now: Instant,
    ) -> (Vec<ServiceTask>, Vec<NoPortLeft>) {
        let Exposed::Services(services) = &mut self.exposed else { return Default::default() };
        if !(self.leads && self.is_synced) {
            return Default::default();
        }
        while let Some((gateway, ())) = self.failed_writes.take_due(now) {
            self.unchecked_services.insert(gateway);
        }
        while self.failed_deletions.take_due(now).is_some() {}
        self.unchecked_services.extend(services.may_get_ports());
        let (mut tasks, mut faults) = (Vec::new(), Vec::new());
        for gateway in std::mem::take(&mut self.unchecked_services) {
            let Some(plan) = self.gateways.get(&gateway) else { continue };
            let former = services.addresses(&gateway);
            let (wanted, fault) = services.wanted(plan);
            if wanted.is_none() {
                self.failed_writes.forget(&gateway);
            }
            let addresses = services.addresses(&gateway);
            if addresses != former {
                faults.extend(fault);
                self.world.apply(Event::Addresses(gateway.clone(), addresses));
                self.has_service_news = true;
            }
            tasks.extend(wanted.map(|wanted| ServiceTask::Write(gateway, wanted)));
        }
        if may_delete {
            // A deleted GatewayClass, such as with another name in the chart, takes no addresses away.
            let is_kept = |gateway: &NamespacedName| {
                self.gateways.contains_key(gateway) || self.world.lacks_class(gateway)
            };
            let gone = services.orphans(is_kept);
            let gone = gone.into_iter().filter(|name| !self.failed_deletions.is_waiting(name));
            tasks.extend(gone.map(ServiceTask::Delete));
        }
        (tasks, faults)
    }

    /// When a Service is to be tried again.
    pub(super) fn next_service_retry(&self) -> Option<Instant> {
        let due = [self.failed_writes.next_due(), self.failed_deletions.next_due()];
        due.into_iter().flatten().min().filter(|_| self.leads)
    }

    /// Takes note that a task is done.
    pub(super) fn service_done(&mut self, task: &ServiceTask) {
        match task {
            ServiceTask::Write(gateway, _) => {
                self.failed_writes.forget(gateway);
                self.note_write(gateway, |services| services.written(gateway));
            }
            ServiceTask::Delete(name) => self.failed_deletions.forget(name),
        }
    }

    /// Takes note that a task has failed, and why, if the API server has refused it. Answers whether
    /// that is new.
    pub(super) fn service_failed(
        &mut self,
        task: ServiceTask,
        refusal: Option<String>,
        now: Instant,
    ) -> bool {
        match task {
            ServiceTask::Write(gateway, _) => {
                self.failed_writes.failed(gateway.clone(), (), RETRY_PAUSE, now);
                self.note_write(&gateway, |services| services.not_written(&gateway, refusal))
            }
            ServiceTask::Delete(name) => {
                self.failed_deletions.failed(name, (), RETRY_PAUSE, now);
                false
            }
        }
    }

    /// Whether the status of a Gateway may differ by what became of a Service, since this was asked last.
    pub(super) fn take_service_news(&mut self) -> bool {
        std::mem::take(&mut self.has_service_news)
    }

    /// Passes on what became of a write. Answers whether it changes the status of the Gateway.
    fn note_write(&mut self, gateway: &NamespacedName, note: impl FnOnce(&mut Services)) -> bool {
        let Exposed::Services(services) = &mut self.exposed else { return false };
        if !self.gateways.contains_key(gateway) {
            services.forget(gateway);
            self.failed_writes.forget(gateway);
            return false;
        }
        let former = services.addresses(gateway);
        note(services);
        let addresses = services.addresses(gateway);
        let differs = addresses != former;
        if differs {
            self.world.apply(Event::Addresses(gateway.clone(), addresses));
            self.has_service_news = true;
        }
        differs
    }

    /// Namespace of the Services; `None`: Gateways have none.
    pub(super) fn service_namespace(&self) -> Option<&str> {
        match &self.exposed {
            Exposed::Services(services) => Some(services.namespace()),
            Exposed::Host(_) => None,
        }
    }

    /// Compiles everything again for another configuration file.
    ///
    /// # Errors
    /// As [`Compiler::rebase`]; nothing changes then.
    pub(super) fn rebase(
        &mut self,
        base: FileBase,
        now: Timestamp,
    ) -> Result<(Compiled, FileBase), RuleFault> {
        let address = address_of(&self.exposed, self.bind);
        let checker = base.checker.clone();
        let rebased = self.compiler.rebase(base, &address, now)?;
        self.bodies.set_file(checker);
        self.world.apply(Event::Reported(rebased.0.report(None)));
        self.world.apply(Event::PolicyCheckChanged);
        Ok(rebased)
    }
}

/// Finds the address on which a port of a Gateway is served; `None`: no port of the pods is chosen
/// yet.
fn address_of(exposed: &Exposed, bind: IpAddr) -> impl Fn(&SocketId) -> Option<ListenAddress> + '_ {
    move |socket| {
        let port = match exposed {
            Exposed::Services(services) => services.target(socket)?,
            Exposed::Host(_) => socket.port,
        };
        Some(ListenAddress::Ip(SocketAddr::new(bind, port)))
    }
}

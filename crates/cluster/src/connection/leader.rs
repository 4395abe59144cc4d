//! Leader: which replica writes status, addresses and Services.
//!
//! Owns: acquiring, renewing and releasing one `Lease` (coordination.k8s.io/v1). Does not own: what
//! the leader does.
//!
//! A replica leads only as long as its own clock says that no other can have taken the lease. It
//! takes over a lease that it has seen unchanged for the whole duration, so clocks of different
//! machines are never compared. Every change names the version that it replaces. So of two replicas
//! that try at once, one wins.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff;
use kube::api::{Api, PostParams};
use outage::Outage;
use tokio::sync::watch;
use tokio::time::Instant;

use super::watched::describe;

/// How long a lease is valid without being renewed.
const DURATION: Duration = Duration::from_secs(10);
/// Time between two renewals, and between two looks at another's lease.
const PERIOD: Duration = Duration::from_secs(2);
/// A leader that could not renew for this long stops leading, before another can take over.
const GIVE_UP: Duration = Duration::from_secs(7);
/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The lease of this installation.
pub(super) struct Election {
    pub(super) leases: Api<Lease>,
    /// Name of the lease.
    pub(super) name: String,
    /// Name of this replica.
    pub(super) identity: String,
}

/// Another's lease, and since when it is unchanged.
struct Observed {
    version: Option<String>,
    since: Instant,
}

impl Election {
    /// Takes part until `stop` is set, then releases the lease. `leads` says whether this replica
    /// leads.
    pub(super) async fn run(self, leads: watch::Sender<bool>, mut stop: watch::Receiver<bool>) {
        let outage =
            Outage::new(format!("lease {}", self.name)).with_effect("no replica may be writing status");
        let mut observed: Option<Observed> = None;
        let mut renewed: Option<Instant> = None;
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                // An error means that the sender is gone, which also means stop.
                _ = stop.wait_for(|stop| *stop) => break,
            }
            let began = Instant::now();
            let outcome = tokio::time::timeout(REQUEST_TIMEOUT, self.attempt(&mut observed)).await;
            match outcome {
                Ok(Ok(leading)) => {
                    outage.succeeded();
                    renewed = leading.then_some(began);
                }
                Ok(Err(error)) => outage.failed(describe(&error)),
                Err(_) => outage.failed("the API server does not answer in time"),
            }
            let is_leader = renewed.is_some_and(|at| at.elapsed() < GIVE_UP);
            leads.send_if_modified(|leads| std::mem::replace(leads, is_leader) != is_leader);
        }
        if renewed.is_some() {
            leads.send_replace(false);
            let _ = tokio::time::timeout(REQUEST_TIMEOUT, self.release()).await;
        }
    }

    /// Renews the lease, or takes it if it is free. Answers whether this replica has it.
    async fn attempt(&self, observed: &mut Option<Observed>) -> kube::Result<bool> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            return Self::won(self.leases.create(&PostParams::default(), &self.lease(None)).await);
        };
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        if holder == self.identity || holder.is_empty() {
            return self.replace(&lease).await;
        }
        let version = &lease.metadata.resource_version;
        match observed {
            Some(Observed { version: known, since }) if known == version => {
                if since.elapsed() < DURATION {
                    Ok(false)
                } else {
                    self.replace(&lease).await
                }
            }
            _ => {
                *observed = Some(Observed { version: version.clone(), since: Instant::now() });
                Ok(false)
            }
        }
    }

    async fn replace(&self, former: &Lease) -> kube::Result<bool> {
        Self::won(self.leases.replace(&self.name, &PostParams::default(), &self.lease(Some(former))).await)
    }

    /// Another replica that was quicker is no failure.
    fn won(written: kube::Result<Lease>) -> kube::Result<bool> {
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Our lease in place of a former one.
    fn lease(&self, former: Option<&Lease>) -> Lease {
        let now = MicroTime(jiff::Timestamp::now());
        let spec = former.and_then(|lease| lease.spec.as_ref());
        let ours = spec.filter(|spec| spec.holder_identity.as_deref() == Some(&*self.identity));
        let transitions = spec.and_then(|spec| spec.lease_transitions).unwrap_or_default();
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: former.and_then(|lease| lease.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                acquire_time: ours.map_or(Some(now.clone()), |spec| spec.acquire_time.clone()),
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                lease_transitions: Some(transitions + i32::from(ours.is_none() && former.is_some())),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Lets another replica lead at once.
    async fn release(&self) -> kube::Result<()> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else { return Ok(()) };
        let ours = |spec: &LeaseSpec| spec.holder_identity.as_deref() == Some(&*self.identity);
        if !lease.spec.as_ref().is_some_and(ours) {
            return Ok(());
        }
        let mut free = self.lease(Some(&lease));
        if let Some(spec) = &mut free.spec {
            spec.holder_identity = Some(String::new());
        }
        self.leases.replace(&self.name, &PostParams::default(), &free).await.map(drop)
    }
}

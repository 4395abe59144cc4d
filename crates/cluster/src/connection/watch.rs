//! Watches: all objects of a kind, now and from then on.
//!
//! Owns: one watch per kind and namespace, what a failed watch means, and the state of the watches.
//! Does not own: the protocol of a watch (`kube::runtime`), what the objects mean (`controller`).
//!
//! A watch that breaks is begun again where it ended, or with a new list if the API server does not
//! know that point any more (410). Meanwhile the objects seen last stay in force.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::names::{Kind, NamespacedName};
use futures_util::StreamExt as _;
use kube::Client;
use kube::runtime::watcher::{self, Event, watcher};
use outage::Outage;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use super::watched::{Watched, api, describe};

/// Shortest and longest pause before a watch is begun again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Pause before a kind that the API server does not have is looked for again.
const ABSENT_PAUSE: Duration = Duration::from_secs(5);
/// For how long an API server may say that it does not have a kind before there are no objects of it.
/// One that starts says so for some seconds.
const ABSENT_FOR: Duration = Duration::from_mins(1);
/// Time without an error after which a watch that broke counts as running again. It says nothing
/// when no object changes.
const QUIET: Duration = Duration::from_secs(3);
/// How long the API server keeps a watch open. Then the watch is begun again, so that a connection
/// on which nothing arrives any more is noticed.
const WATCH_SECONDS: u32 = 60;
/// Objects per page of a list.
const PAGE: u32 = 500;

/// What a watch has seen.
pub(super) enum Notice {
    /// An object is new or has changed.
    Seen(Kind, Value),
    /// An object is gone.
    Gone(Kind, NamespacedName),
    /// All objects of the watch that there were have been seen.
    Listed(WatchId),
    /// The version of the definitions of the Gateway API.
    BundleVersion(Option<String>),
    /// Whether this replica leads.
    Leads(bool),
    /// Another configuration file is in force.
    FileChanged,
    /// Services were tried to be written, and the state knows what became of it.
    ServicesTried,
}

/// Where notices go, with the time at which they arrived.
pub(super) type Notices = Sender<(Instant, Notice)>;

/// Which watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId {
    /// The kind.
    pub kind: Kind,
    /// The namespace; `None`: all objects of the kind.
    pub namespace: Option<Arc<str>>,
}

impl fmt::Display for WatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.plural())?;
        self.namespace.iter().try_for_each(|namespace| write!(f, " in {namespace}"))
    }
}

/// What is known about a watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchState {
    /// Whether all objects were seen once.
    pub is_listed: bool,
    /// Why the watch does not run. The objects seen last stay in force.
    pub problem: Option<WatchProblem>,
    /// How often it was begun with a list.
    pub lists: u64,
    /// How often it broke.
    pub failures: u64,
}

/// Why a watch does not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchProblem {
    /// The account may not list or watch the kind; what the API server says.
    #[error("{0}")]
    Forbidden(String),
    /// The API server does not have the kind: its definition is not installed.
    #[error("the API server does not have this kind; install its definition (CRD)")]
    Absent,
    /// The API server cannot be reached, or answers with an error.
    #[error("{0}")]
    Unavailable(String),
}

/// The states of all watches.
#[derive(Debug, Clone, Default)]
pub(super) struct Watches(Arc<Mutex<BTreeMap<WatchId, WatchState>>>);

impl Watches {
    pub(super) fn states(&self) -> BTreeMap<WatchId, WatchState> {
        self.0.lock().clone()
    }

    fn note(&self, id: &WatchId, change: impl FnOnce(&mut WatchState)) {
        let mut states = self.0.lock();
        match states.get_mut(id) {
            Some(state) => change(state),
            None => change(states.entry(id.clone()).or_default()),
        }
    }
}

/// A watch of one kind, in one namespace or in all.
pub(super) struct Watch {
    pub(super) id: WatchId,
    pub(super) notices: Notices,
    pub(super) watches: Watches,
}

/// Which objects of a kind are of interest, as a field selector. Large Secrets that no listener can
/// use are left out.
fn fields(kind: Kind) -> Option<&'static str> {
    (kind == Kind::Secret).then_some(
        "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token,\
         type!=kubernetes.io/dockerconfigjson,type!=kubernetes.io/dockercfg",
    )
}

/// Failures of a watch since it last ran.
#[derive(Default)]
struct Failures {
    in_a_row: u32,
    absent_since: Option<tokio::time::Instant>,
}

impl Watch {
    /// Watches until nobody receives the notices any more.
    pub(super) async fn run(self, client: Client) {
        self.watches.note(&self.id, |_| ());
        let config = watcher::Config::default().page_size(PAGE).timeout(WATCH_SECONDS);
        let config = fields(self.id.kind).iter().fold(config, |config, fields| config.fields(fields));
        let api = api(&client, self.id.kind, self.id.namespace.as_deref());
        let outage =
            Outage::new(format!("watch of {}", self.id)).with_effect("the objects seen last stay in force");
        let mut stream = Box::pin(watcher(api, config));
        let mut seen = SeenObjects::default();
        let mut failures = Failures::default();
        loop {
            let event = match tokio::time::timeout(QUIET, stream.next()).await {
                // Nothing happens, and that is no failure.
                Err(_) => {
                    if failures.in_a_row > 0 {
                        self.runs(&outage, &mut failures);
                    }
                    continue;
                }
                Ok(None) => return,
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(error))) => {
                    let failed = self.failed(&error, (&client, &outage), &mut seen, &mut failures);
                    let Some(pause) = failed.await else {
                        return;
                    };
                    tokio::time::sleep(pause).await;
                    continue;
                }
            };
            if !matches!(event, Event::Init) && failures.in_a_row > 0 {
                self.runs(&outage, &mut failures);
            }
            if self.forward(event, &mut seen).await.is_none() {
                return;
            }
        }
    }

    /// Notes that the watch runs again.
    fn runs(&self, outage: &Outage, failures: &mut Failures) {
        *failures = Failures::default();
        outage.succeeded();
        self.watches.note(&self.id, |state| state.problem = None);
    }

    /// Notes why the watch broke. Answers how long to wait; `None`: nobody receives the notices.
    async fn failed(
        &self,
        error: &watcher::Error,
        (client, outage): (&Client, &Outage),
        seen: &mut SeenObjects,
        failures: &mut Failures,
    ) -> Option<Duration> {
        failures.in_a_row += 1;
        let problem = problem(error);
        let is_absent = problem == WatchProblem::Absent;
        self.watches.note(&self.id, |state| {
            state.failures += 1;
            state.problem = Some(problem.clone());
        });
        if !is_absent {
            outage.failed(&problem);
            failures.absent_since = None;
            let doubled = PAUSES.0.saturating_mul(1 << (failures.in_a_row - 1).min(10));
            return Some(doubled.min(PAUSES.1));
        }
        let since = *failures.absent_since.get_or_insert_with(tokio::time::Instant::now);
        if is_required(self.id.kind) {
            return Some(ABSENT_PAUSE);
        }
        let was_listed = self.watches.states().get(&self.id).is_some_and(|state| state.is_listed);
        if since.elapsed() >= ABSENT_FOR || !was_listed && is_surely_absent(client, self.id.kind).await {
            // Without the kind there are no objects of it.
            for gone in seen.clear() {
                self.send(Notice::Gone(self.id.kind, gone)).await?;
            }
            self.listed().await?;
        }
        Some(ABSENT_PAUSE)
    }

    async fn send(&self, notice: Notice) -> Option<()> {
        self.notices.send((Instant::now(), notice)).await.ok()
    }

    async fn listed(&self) -> Option<()> {
        self.watches.note(&self.id, |state| state.is_listed = true);
        self.send(Notice::Listed(self.id.clone())).await
    }

    /// Passes an event on; `None`: nobody receives it.
    async fn forward(&self, event: Event<Watched>, seen: &mut SeenObjects) -> Option<()> {
        match event {
            Event::Init => {
                seen.begin_list();
                self.watches.note(&self.id, |state| state.lists += 1);
                Some(())
            }
            Event::InitApply(object) | Event::Apply(object) => {
                seen.add(object.at());
                self.send(Notice::Seen(self.id.kind, object.value)).await
            }
            Event::InitDone => {
                for gone in seen.end_list() {
                    self.send(Notice::Gone(self.id.kind, gone)).await?;
                }
                self.listed().await
            }
            Event::Delete(object) => {
                let name = object.at();
                seen.remove(&name);
                self.send(Notice::Gone(self.id.kind, name)).await
            }
        }
    }
}

/// Whether requests are answered only with the objects of the kind. Without policies, routes would be
/// open that somebody has closed, and the kind comes with Postern.
pub(super) fn is_required(kind: Kind) -> bool {
    kind == Kind::AccessPolicy
}

/// Whether an API server that does not have a kind knows its kinds already. One that starts knows none
/// of those that definitions add.
async fn is_surely_absent(client: &Client, kind: Kind) -> bool {
    match client.list_api_group_resources(&kind.api_version()).await {
        Ok(found) => !found.resources.iter().any(|resource| resource.name == kind.plural()),
        // The group is not there. Those of the Gateway API are, if it knows its kinds.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            client.list_api_group_resources(&Kind::GatewayClass.api_version()).await.is_ok()
        }
        Err(_) => false,
    }
}

fn problem(error: &watcher::Error) -> WatchProblem {
    use watcher::Error as E;
    let status = match error {
        E::InitialListFailed(kube::Error::Api(status))
        | E::WatchStartFailed(kube::Error::Api(status))
        | E::WatchFailed(kube::Error::Api(status))
        | E::WatchError(status) => Some(status),
        _ => None,
    };
    match status {
        Some(status) if status.code == 403 => WatchProblem::Forbidden(status.message.clone()),
        Some(status) if status.code == 404 => WatchProblem::Absent,
        _ => WatchProblem::Unavailable(describe(error)),
    }
}

/// The objects that a watch has seen, so that a new list shows which are gone.
#[derive(Default)]
struct SeenObjects {
    /// With the number of the list that had it last.
    objects: BTreeMap<NamespacedName, u64>,
    list: u64,
}

impl SeenObjects {
    fn begin_list(&mut self) {
        self.list += 1;
    }

    fn add(&mut self, name: NamespacedName) {
        self.objects.insert(name, self.list);
    }

    fn remove(&mut self, name: &NamespacedName) {
        self.objects.remove(name);
    }

    /// Takes the objects that the list did not have.
    fn end_list(&mut self) -> Vec<NamespacedName> {
        let list = self.list;
        self.objects.extract_if(.., |_, seen| *seen != list).map(|(name, _)| name).collect()
    }

    /// Takes all objects.
    fn clear(&mut self) -> Vec<NamespacedName> {
        std::mem::take(&mut self.objects).into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::test_api::{client, refusal};
    use super::*;

    /// After how many seconds a kind that lists as 404 counts as listed; `None`: not within an hour.
    /// `groups` are those that the API server tells of, with the resource that each has.
    async fn listed_after(kind: Kind, groups: &'static [(&'static str, &'static str)]) -> Option<u64> {
        let client = client(move |_, path| async move {
            match groups.iter().find(|(group, _)| path == format!("/apis/{group}/v1")) {
                Some((group, resource)) => {
                    let resource = json!({
                        "name": resource, "singularName": "", "namespaced": true, "kind": "X", "verbs": [],
                    });
                    let version = format!("{group}/v1");
                    (
                        200,
                        json!({ "kind": "APIResourceList", "groupVersion": version, "resources": [resource] }),
                    )
                }
                None => refusal(404, "page not found"),
            }
        });
        let (notices, mut received) = tokio::sync::mpsc::channel(16);
        let watch = Watch { id: WatchId { kind, namespace: None }, notices, watches: Watches::default() };
        let (began, watches) = (tokio::time::Instant::now(), watch.watches.clone());
        let task = tokio::spawn(watch.run(client));
        let listed = tokio::time::timeout(Duration::from_hours(1), received.recv()).await;
        task.abort();
        let is_listed = watches.states().values().all(|state| state.is_listed);
        assert_eq!(is_listed, listed.is_ok());
        listed.ok().map(|_| began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_is_absent_at_a_start_only_if_the_api_server_knows_its_kinds() {
        use controller::names::GATEWAY_GROUP;
        let starts = listed_after(Kind::BackendTlsPolicy, &[]).await;
        assert!(starts.is_some_and(|seconds| (60..70).contains(&seconds)), "{starts:?}");
        let is_there = listed_after(Kind::BackendTlsPolicy, &[(GATEWAY_GROUP, "backendtlspolicies")]).await;
        assert!(is_there.is_some_and(|seconds| (60..70).contains(&seconds)), "{is_there:?}");
        assert_eq!(listed_after(Kind::BackendTlsPolicy, &[(GATEWAY_GROUP, "gateways")]).await, Some(0));
        assert_eq!(listed_after(Kind::OpenShiftRoute, &[(GATEWAY_GROUP, "gateways")]).await, Some(0));
        assert_eq!(listed_after(Kind::AccessPolicy, &[(GATEWAY_GROUP, "gateways")]).await, None);
    }

    #[test]
    fn a_new_list_shows_what_is_gone() {
        let name = |name: &str| NamespacedName::new("ns", name);
        let mut seen = SeenObjects::default();
        seen.begin_list();
        for one in ["a", "b"] {
            seen.add(name(one));
        }
        assert_eq!(seen.end_list(), []);
        seen.add(name("c"));
        seen.remove(&name("b"));
        seen.begin_list();
        seen.add(name("c"));
        assert_eq!(seen.end_list(), [name("a")]);
        assert_eq!(seen.clear(), [name("c")]);
        assert_eq!(seen.end_list(), []);
    }
}

//! Writer of Services: carries out what the leader has to do with the Services of Gateways.
//!
//! Owns: the order and the repetition of these writes. Does not own: which Service a Gateway needs
//! ([`super::services`]).

use std::sync::Arc;
use std::time::Duration;

use controller::names::Kind;
use futures_util::StreamExt as _;
use futures_util::stream;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use outage::Outage;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::state::{ServiceTask, State};
use super::watch::Watches;
use super::watched::{Watched, api, describe};

/// Field manager of the Services (server-side apply).
const MANAGER: &str = "postern";
/// Writes in flight.
const CONCURRENCY: usize = 8;
/// Pause before failed writes are tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Writes Services for ever, whenever `changed` says that some may differ.
pub(super) async fn run(
    state: Arc<Mutex<State>>,
    watches: Watches,
    changed: Arc<Notify>,
    client: kube::Client,
) {
    let Some(namespace) = state.lock().service_namespace().map(str::to_owned) else { return };
    let services = api(&client, Kind::Service, Some(&namespace));
    let outage = Outage::new("Services of Gateways").with_effect("new Gateways get no address");
    loop {
        changed.notified().await;
        let (tasks, faults) = state.lock().service_tasks(gateways_are_known(&watches));
        for fault in faults {
            tracing::error!("{fault}");
        }
        let writes = tasks.into_iter().map(|task| carry_out(task, &services, &state, &outage));
        let failed = stream::iter(writes).buffer_unordered(CONCURRENCY).any(async |is_done| !is_done);
        if failed.await {
            tokio::time::sleep(RETRY_PAUSE).await;
            changed.notify_one();
        }
    }
}

/// Whether a Gateway that is not known is certainly gone. A Service is deleted only then: with it
/// goes its address.
fn gateways_are_known(watches: &Watches) -> bool {
    let concerned = |kind| matches!(kind, Kind::Gateway | Kind::GatewayClass);
    watches.states().iter().filter(|(id, _)| concerned(id.kind)).all(|(_, state)| state.problem.is_none())
}

/// Carries out a task. Answers whether it is done.
async fn carry_out(
    task: ServiceTask,
    services: &Api<Watched>,
    state: &Mutex<State>,
    outage: &Outage,
) -> bool {
    let (name, result) = match &task {
        ServiceTask::Write(_, wanted) => {
            let params = PatchParams::apply(MANAGER).force();
            let written = services.patch(&wanted.name, &params, &Patch::Apply(&wanted.body)).await;
            (&wanted.name, written.map(drop))
        }
        ServiceTask::Delete(name) => {
            let deleted = services.delete(name, &DeleteParams::default()).await.map(drop);
            (name, deleted.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) }))
        }
    };
    match result {
        Ok(()) => {
            outage.succeeded();
            true
        }
        Err(error) => {
            outage.failed(format!("{name}: {}", describe(&error)));
            if let ServiceTask::Write(gateway, _) = task {
                state.lock().service_not_written(gateway);
            }
            false
        }
    }
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

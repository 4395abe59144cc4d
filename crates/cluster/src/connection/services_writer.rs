//! Writer of Services: carries out what the leader has to do with the Services of Gateways.
//!
//! Owns: the order and the repetition of these writes. Does not own: which Service a Gateway needs
//! ([`super::services`]).

use std::sync::Arc;
use std::time::Duration;

use controller::names::Kind;
use futures_util::{StreamExt as _, stream};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use outage::{Outage, RECOVERY_PERIOD};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::retries::until;
use super::state::{ServiceTask, State};
use super::watch::{Notice, Notices, Watches};
use super::watched::{Watched, api, describe};

/// Field manager of the Services (server-side apply).
const MANAGER: &str = "postern";
/// Writes in flight.
const CONCURRENCY: usize = 8;
/// Time limit of a write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes Services for ever, whenever `changed` says that some may differ. A notice tells when the
/// status of a Gateway may differ by that.
pub(super) async fn run(
    state: Arc<Mutex<State>>,
    watches: Watches,
    (changed, notices): (Arc<Notify>, Notices),
    client: kube::Client,
) {
    let Some(namespace) = state.lock().service_namespace().map(str::to_owned) else { return };
    let services = api(&client, Kind::Service, Some(&namespace));
    let outage = Outage::new("Services of Gateways").with_effect("new Gateways get no address");
    let outage = outage.with_recovery_period(RECOVERY_PERIOD);
    loop {
        let due = state.lock().next_service_retry();
        tokio::select! {
            () = changed.notified() => {}
            () = until(due) => {}
        }
        let (tasks, faults) = state.lock().service_tasks(gateways_are_known(&watches), Instant::now());
        for fault in faults {
            tracing::error!("{fault}");
        }
        let writes = tasks.into_iter().map(|task| carry_out(task, &services, &state, &outage));
        // All of them, whatever becomes of one.
        stream::iter(writes).for_each_concurrent(CONCURRENCY, |write| write).await;
        let has_news = state.lock().take_service_news();
        if has_news && notices.send((std::time::Instant::now(), Notice::ServicesTried)).await.is_err() {
            return;
        }
    }
}

/// Whether a Gateway that is not known is certainly gone. A Service is deleted only then: with it
/// goes its address.
fn gateways_are_known(watches: &Watches) -> bool {
    let concerned = |kind| matches!(kind, Kind::Gateway | Kind::GatewayClass);
    watches.states().iter().filter(|(id, _)| concerned(id.kind)).all(|(_, state)| state.problem.is_none())
}

/// Carries out a task, and tells what became of it.
async fn carry_out(task: ServiceTask, services: &Api<Watched>, state: &Mutex<State>, outage: &Outage) {
    let attempt = async {
        match &task {
            ServiceTask::Write(_, wanted) => {
                let params = PatchParams::apply(MANAGER).force();
                services.patch(&wanted.name, &params, &Patch::Apply(&wanted.body)).await.map(drop)
            }
            ServiceTask::Delete(name) => {
                let deleted = services.delete(name, &DeleteParams::default()).await.map(drop);
                deleted.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
            }
        }
    };
    let result = tokio::time::timeout(WRITE_TIMEOUT, attempt).await;
    let name = match &task {
        ServiceTask::Write(_, wanted) => wanted.name.clone(),
        ServiceTask::Delete(name) => name.clone(),
    };
    let (why, refusal) = match result {
        Ok(Ok(())) => {
            outage.succeeded();
            state.lock().service_done(&task);
            return;
        }
        Ok(Err(error)) => (describe(&error), refusal(&error)),
        Err(_) => ("the API server does not answer in time".to_owned(), None),
    };
    let is_refused = refusal.is_some();
    let is_new = state.lock().service_failed(task, refusal, Instant::now());
    if !is_refused {
        outage.failed(format!("{name}: {why}"));
    } else if is_new {
        tracing::warn!("Service {name} of a Gateway is refused: {why}");
    }
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// What the API server says, if it refuses this Service and not every request.
fn refusal(error: &kube::Error) -> Option<String> {
    match error {
        kube::Error::Api(status)
            if (400..500).contains(&status.code) && !matches!(status.code, 401 | 408 | 409 | 429) =>
        {
            Some(status.message.clone())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::{IpAddr, Ipv4Addr};

    use auth::time::Timestamp;
    use config::raw::ExternalTrafficPolicy;
    use controller::names::NamespacedName;
    use controller::settings::Settings;
    use controller::world::World;
    use dataplane::harness::{Fixture, Setup, Upstream, load_all, now};
    use http_engine::tls::policy::TlsPolicy;
    use serde_json::{Value, json};

    use super::super::services::ServiceSettings;
    use super::super::state::Exposure;
    use super::super::test_api::{client, refusal};
    use super::*;
    use crate::compiler::{Compiler, CompilerSettings, DefaultPolicy, FileBase};
    use crate::policy::BodyChecker;
    use crate::route_metrics::RouteMetricsMode;

    /// The state of a leader, with a class and ports of the pods for its Gateways.
    fn leader() -> State {
        let fixture = Fixture::with(Setup::default(), Upstream::start());
        let file = Setup::default().file(fixture.dir.path(), fixture.upstream.address);
        let loaded = load_all(fixture.dir.path(), &file);
        let settings = CompilerSettings {
            default_policy: DefaultPolicy::Deny,
            listener: (**loaded.config.listeners.iter().next().unwrap()).clone(),
            tls: TlsPolicy::default(),
            zone: None,
            route_metrics: RouteMetricsMode::Labeled,
        };
        let base = FileBase { checker: loaded.route_checker, routing: loaded.config.routing.clone() };
        let compiler = Compiler::new(settings, base, at()).unwrap();
        let bodies = BodyChecker::new(compiler.checker().clone());
        let services = ServiceSettings {
            namespace: "postern".into(),
            installation: "postern-gateway-api".into(),
            selector: BTreeMap::new(),
            ports: 20_000..=20_039,
            external_traffic_policy: ExternalTrafficPolicy::Local,
        };
        let exposure = (Exposure::Services(services), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let world = World::new(Settings::new("postern.dev/gateway-controller"));
        let mut state = State::new(world, (compiler, bodies), exposure, 1, BTreeSet::new());
        let class = json!({
            "metadata": { "name": "postern" },
            "spec": { "controllerName": "postern.dev/gateway-controller" },
        });
        state.note(Notice::Seen(Kind::GatewayClass, class));
        state.note(Notice::Leads(true));
        state
    }

    fn at() -> Timestamp {
        Timestamp::from_secs(now())
    }

    fn gateway(name: &str, ports: std::ops::Range<u16>) -> Notice {
        let listener = |port: u16| json!({ "name": format!("p{port}"), "port": port, "protocol": "HTTP" });
        let object = json!({
            "metadata": { "name": name, "namespace": "team", "generation": 1 },
            "spec": { "gatewayClassName": "postern", "listeners": ports.map(listener).collect::<Value>() },
        });
        Notice::Seen(Kind::Gateway, object)
    }

    /// Runs the writer against an API server that refuses what begins with `gw-bad`. Answers the names
    /// that it was asked to write.
    fn start(state: &Arc<Mutex<State>>) -> (Arc<Notify>, Arc<Mutex<Vec<String>>>) {
        let (changed, asked) = (Arc::new(Notify::new()), Arc::<Mutex<Vec<String>>>::default());
        let log = asked.clone();
        let client = client(move |_, path| {
            let name = path.rsplit('/').next().unwrap().to_owned();
            log.lock().push(name.clone());
            async move {
                if name.starts_with("gw-bad") {
                    return refusal(403, "exceeded quota: load balancers");
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                (200, json!({ "metadata": { "name": name } }))
            }
        });
        let (notices, mut received) = tokio::sync::mpsc::channel(16);
        let writer = run(state.clone(), Watches::default(), (changed.clone(), notices), client);
        tokio::spawn(writer);
        tokio::spawn(async move { while received.recv().await.is_some() {} });
        (changed, asked)
    }

    fn programmed(state: &Mutex<State>, name: &str) -> String {
        let statuses = state.lock().world.statuses(0);
        let object = NamespacedName::new("team", name).of(Kind::Gateway);
        let document = statuses.into_iter().find(|one| one.object == object).expect("a document");
        let body: Value = serde_json::from_str(&document.body).unwrap();
        let conditions = body["status"]["conditions"].as_array().unwrap();
        let programmed = conditions.iter().find(|one| one["type"] == "Programmed").unwrap();
        format!("{}: {}", programmed["reason"].as_str().unwrap(), programmed["message"].as_str().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_is_refused_holds_no_other_up() {
        let state = Arc::new(Mutex::new(leader()));
        {
            let mut state = state.lock();
            state.note(gateway("bad", 80..81));
            (0..20).for_each(|number| state.note(gateway(&format!("good-{number}"), 80..81)));
            state.step(at());
        }
        let (changed, asked) = start(&state);
        changed.notify_one();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let count = |prefix: &str| asked.lock().iter().filter(|name| name.starts_with(prefix)).count();
        assert_eq!((count("gw-good"), count("gw-bad")), (20, 1));
        state.lock().step(at());
        assert_eq!(
            programmed(&state, "bad"),
            "AddressNotAssigned: the Service of the Gateway is refused: exceeded quota: load balancers"
        );
        // At 0, 1, 3, 7, 15, 31 and 63 seconds, and then each minute; nothing else is written again.
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(count("gw-good"), 20);
        assert!((14..18).contains(&count("gw-bad")), "{}", count("gw-bad"));
        // It is gone.
        state.lock().note(Notice::Gone(Kind::Gateway, NamespacedName::new("team", "bad")));
        state.lock().step(at());
        changed.notify_one();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = count("gw-bad");
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(count("gw-bad"), before);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_got_no_port_is_told_and_gets_one_that_is_freed() {
        let state = Arc::new(Mutex::new(leader()));
        let tasks = |state: &mut State| {
            let (tasks, faults) = state.service_tasks(false, Instant::now());
            let bodies = tasks.iter().filter_map(|task| match task {
                ServiceTask::Write(_, wanted) => Some(wanted.body.clone()),
                ServiceTask::Delete(_) => None,
            });
            (bodies.collect::<Vec<_>>(), faults.len())
        };
        state.lock().note(gateway("large", 100..140));
        state.lock().step(at());
        let (large, _) = tasks(&mut state.lock());
        state.lock().note(Notice::Seen(Kind::Service, large[0].clone()));
        state.lock().note(gateway("late", 80..81));
        state.lock().step(at());
        assert_eq!(tasks(&mut state.lock()), (Vec::new(), 1));
        state.lock().step(at());
        let told = programmed(&state, "late");
        assert!(
            told.starts_with("AddressNotAssigned: no port from 20000 to 20039 is left for port 80"),
            "{told}"
        );
        let name = large[0]["metadata"]["name"].as_str().unwrap();
        state.lock().note(Notice::Gone(Kind::Gateway, NamespacedName::new("team", "large")));
        state.lock().note(Notice::Gone(Kind::Service, NamespacedName::new("postern", name)));
        state.lock().step(at());
        let (late, faults) = tasks(&mut state.lock());
        assert_eq!((late.len(), faults), (1, 0));
        assert_eq!(
            programmed(&state, "late"),
            "AddressNotAssigned: no address is assigned to the Gateway yet"
        );
        // It has an address, and a change of it is refused.
        let mut seen = late[0].clone();
        seen["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
        state.lock().note(Notice::Seen(Kind::Service, seen));
        state.lock().note(gateway("late", 80..82));
        state.lock().step(at());
        let task = state.lock().service_tasks(false, Instant::now()).0.pop().expect("a write");
        assert!(state.lock().service_failed(task, Some("no".to_owned()), Instant::now()));
        state.lock().step(at());
        assert_eq!(programmed(&state, "late"), "NoResources: the Service of the Gateway is refused: no");
    }
}

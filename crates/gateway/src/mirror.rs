//! Mirror: sends copies of permitted requests to further upstreams, and discards their responses.
//!
//! Owns: when a copy is sent, the exchange with the mirror, and how it is counted. A copy never
//! delays a request and never makes it fail. Does not own: which requests are copied and what their
//! heads contain ([`crate::forward`]), the copy of the body ([`crate::mirror_body`]), the exchange
//! itself, which is that of every request: slots, connections, time limits, endpoint health.
//!
//! Flow: `pipeline → prepare`; `exchange → begin`, when the request has its slot at its own
//! upstream; then a task per copy.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use credentials::authenticate::Verified;
use http_engine::deadline::Deadline;
use http_engine::http_stream::{AddedField, ClientEnd, Downstream, HttpStreamError, ResponseView};
use http_engine::labels::MirrorResult;
use telemetry::metrics::WorkerMetrics;

use crate::config::Route;
use crate::forward::ForwardedRequest;
use crate::forward::exchange::exchange;
use crate::mirror_body::{BodyCopies, MirrorBody};
use crate::per_worker::MirrorCounts;
use crate::record::{RecordDetail, RequestRecord};
use crate::refusal::Refusal;
use crate::worker::{ActiveConfig, Worker};

/// A copy of a request that is ready to be sent.
struct Copy {
    request: Box<ForwardedRequest>,
    client: DiscardingClient,
    deadline: Deadline,
    /// What authorized the request: the copy ends with it.
    record: RequestRecord,
    counts: MirrorCounts,
    metrics: Rc<WorkerMetrics>,
}

/// Takes the place of the client.
struct DiscardingClient {
    body: MirrorBody,
}

/// Arranges that the copies of a request are sent with it.
pub(crate) fn prepare(
    mut outbound: Box<ForwardedRequest>,
    worker: &Worker,
    running: &ActiveConfig,
    (route, caller): (&Route, Option<&Arc<Verified>>),
    record: &RequestRecord,
) -> Box<ForwardedRequest> {
    if !route.mirrors.is_empty() {
        let counts = running.counts.of(&running.config.routing, record.route, record.scope).of_mirrors();
        add_copies(&mut outbound, worker, &counts, caller, record);
    }
    outbound
}

fn add_copies(
    outbound: &mut ForwardedRequest,
    worker: &Worker,
    counts: &MirrorCounts,
    caller: Option<&Arc<Verified>>,
    record: &RequestRecord,
) {
    let mut bodies = BodyCopies::default();
    let has_body = outbound.has_body();
    let mut copies = Vec::new();
    for copied in outbound.take_copies() {
        let Some((request, buffer)) = copied else {
            counts.count(&worker.metrics, MirrorResult::Failed);
            continue;
        };
        let body = if has_body { bodies.add(buffer) } else { MirrorBody::empty() };
        let (started, detail) = (worker.clock.monotonic(), RecordDetail::default());
        let mut own = RequestRecord::begin(started, record.protocol, None, detail);
        own.caller = caller.cloned();
        own.route_consents.clone_from(&record.route_consents);
        own.guard_consents.clone_from(&record.guard_consents);
        copies.push(Copy {
            request,
            client: DiscardingClient { body },
            deadline: worker.deadlines.register(),
            record: own,
            counts: counts.clone(),
            metrics: worker.metrics.clone(),
        });
    }
    if copies.is_empty() {
        return;
    }
    let begin = || {
        for copy in copies {
            tokio::task::spawn_local(copy.send());
        }
    };
    outbound.mirror(Box::new(begin), has_body.then_some(bodies));
}

impl Copy {
    async fn send(mut self) {
        let result = exchange(&mut self.request, &mut self.client, &self.deadline, &mut self.record).await;
        let given_up = self.client.body.is_given_up();
        let result = match result {
            Ok(relayed) if relayed.fault.is_none() => MirrorResult::Completed,
            Err(Refusal::Overloaded | Refusal::ClientStalled) => MirrorResult::Dropped,
            Ok(_) | Err(_) if given_up => MirrorResult::Dropped,
            Ok(relayed) => {
                tracing::debug!(fault = ?relayed.fault, route = self.counts.name(), "mirrored request failed");
                MirrorResult::Failed
            }
            Err(refusal) => {
                tracing::debug!(reason = %refusal.text(), route = self.counts.name(), "mirrored request failed");
                MirrorResult::Failed
            }
        };
        self.counts.count(&self.metrics, result);
    }
}

impl Downstream for DiscardingClient {
    type Leg = MirrorBody;

    fn stream(&mut self) -> &mut MirrorBody {
        &mut self.body
    }

    fn send_interim(&mut self, _: &ResponseView<'_>) -> Result<(), HttpStreamError> {
        Ok(())
    }

    fn send_head(&mut self, _: &ResponseView<'_>, _: &[AddedField]) -> Result<(), HttpStreamError> {
        Ok(())
    }

    fn poll_client_end(&mut self, _: &mut Context<'_>) -> Poll<ClientEnd> {
        Poll::Pending
    }

    fn is_broken(&self) -> bool {
        false
    }
}

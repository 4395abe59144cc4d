//! Export: the queue between workers and collector, and the task that drains it.
//!
//! Owns: the size limit, batches, retries, and counts of the result of each span. Does not own:
//! HTTP ([`super::client`]), the content of spans ([`super::span`]).

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use outage::Outage;
use prost::Message as _;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::client::{Client, CollectorAnswer, CollectorEndpoint};
use super::otlp::{ExportRequest, KeyValue, Resource, ResourceSpans, Scope, ScopeSpans, Span};
use super::span::FinishedRequest;

/// Settings of the span export.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The collector that receives the spans.
    pub endpoint: CollectorEndpoint,
    /// `service.name` of the resource.
    pub service: Box<str>,
    /// `service.version` of the resource.
    pub version: Box<str>,
    /// Maximum number of waiting spans; more are dropped. Default 4096.
    pub queue: usize,
    /// Maximum number of spans in a message. Default 512.
    pub batch: usize,
    /// How long a span waits for others. Default 5 s.
    pub interval: Duration,
    /// How long the collector may take to respond. Default 10 s.
    pub timeout: Duration,
    /// Attempts per batch. Default 5.
    pub attempts: u32,
    /// Pause after the first attempt; doubled after each further one, up to 30 s. If the collector
    /// states a time, that is used instead. Default 1 s.
    pub initial_pause: Duration,
    /// How long sending the remaining spans may take when the process ends. Default 5 s.
    pub drain: Duration,
}

impl ExportOptions {
    /// The default settings for `endpoint`.
    pub fn new(endpoint: CollectorEndpoint) -> Self {
        Self {
            endpoint,
            service: "postern".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            queue: 4096,
            batch: 512,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            attempts: 5,
            initial_pause: Duration::from_secs(1),
            drain: Duration::from_secs(5),
        }
    }
}

/// Counts of sampled spans by result, since the process started.
#[derive(Debug, Default)]
pub struct TraceStats {
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    rejected: AtomicU64,
}

impl TraceStats {
    /// Spans that the collector accepted.
    pub fn exported(&self) -> u64 {
        self.exported.load(Relaxed)
    }

    /// Spans dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Spans given up after the last attempt, or at the end of the process.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Spans that the collector refused.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Relaxed)
    }
}

/// The workers' end of the queue.
#[derive(Debug)]
pub struct Queue {
    sender: Sender<Span>,
    stats: Arc<TraceStats>,
}

impl Queue {
    /// Queues the spans of a request, or drops and counts them. Never blocks.
    pub(super) fn enqueue(&self, finished: &FinishedRequest<'_>) {
        // checked first: creating spans for a full queue would cost most under the highest load
        if self.sender.capacity() == 0 {
            let spans = 1 + u64::from(finished.record.forwarded.is_some());
            self.stats.dropped.fetch_add(spans, Relaxed);
            return;
        }
        for span in finished.spans() {
            if self.sender.try_send(span).is_err() {
                self.stats.dropped.fetch_add(1, Relaxed);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Self {
        Self { sender: channel(1).0, stats: Arc::default() }
    }
}

/// The task that sends spans, to be run on the control runtime.
pub struct Exporter {
    options: ExportOptions,
    spans: Receiver<Span>,
    stats: Arc<TraceStats>,
    client: Client,
    outage: Outage,
}

impl Exporter {
    /// A queue for the workers, and the task that drains it. Raises `queue`, `batch` and `attempts`
    /// of the options to at least 1.
    pub fn new(mut options: ExportOptions) -> (Arc<Queue>, Self) {
        options.queue = options.queue.max(1);
        options.batch = options.batch.max(1);
        options.attempts = options.attempts.max(1);
        let (sender, spans) = channel(options.queue);
        let stats = Arc::<TraceStats>::default();
        let client = Client::new(options.endpoint.clone(), options.timeout);
        let queue = Queue { sender, stats: Arc::clone(&stats) };
        let outage = Outage::new("span collector").with_effect("spans are lost");
        (Arc::new(queue), Self { options, spans, stats, client, outage })
    }

    /// Counts of spans by result.
    pub fn stats(&self) -> Arc<TraceStats> {
        Arc::clone(&self.stats)
    }

    /// Sends batches until `stop` is ready or every [`Queue`] is dropped; then sends the remaining
    /// spans within [`ExportOptions::drain`].
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut batch = Vec::with_capacity(self.options.batch);
        loop {
            tokio::select! {
                () = &mut stop => break,
                gathered = fill_batch(&mut self.spans, &mut batch, self.options.batch, self.options.interval) => {
                    if !gathered {
                        break;
                    }
                }
            }
            tokio::select! {
                () = self.send(&batch) => batch.clear(),
                // the interrupted batch is sent again below: a collector recognises duplicates by
                // their ids
                () = &mut stop => break,
            }
        }
        self.drain(batch).await;
    }

    /// Sends the last batches. Closes the queue first, so that later spans count as dropped.
    async fn drain(mut self, mut batch: Vec<Span>) {
        self.spans.close();
        let deadline = Instant::now() + self.options.drain;
        loop {
            while batch.len() < self.options.batch
                && let Ok(span) = self.spans.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            if timeout_at(deadline, self.send(&batch)).await.is_err() {
                let left = batch.len() + std::iter::from_fn(|| self.spans.try_recv().ok()).count();
                self.stats.failed.fetch_add(left as u64, Relaxed);
                tracing::warn!(spans = left, "spans lost at shutdown");
                return;
            }
            batch.clear();
        }
    }

    /// Sends one batch, with retries, and counts the result.
    async fn send(&mut self, batch: &[Span]) {
        let spans = batch.len() as u64;
        let body = self.encode(batch);
        let mut wait = self.options.initial_pause;
        for attempt in 1..=self.options.attempts {
            let pause = match self.client.post(body.clone()).await {
                Ok(CollectorAnswer::Accepted { rejected }) => {
                    self.outage.succeeded();
                    let rejected = rejected.min(spans);
                    self.stats.rejected.fetch_add(rejected, Relaxed);
                    self.stats.exported.fetch_add(spans - rejected, Relaxed);
                    return;
                }
                Ok(CollectorAnswer::Refused(status)) => {
                    self.outage.failed(format_args!("collector answered {status}"));
                    self.stats.rejected.fetch_add(spans, Relaxed);
                    return;
                }
                Ok(CollectorAnswer::RetryLater(after)) => {
                    self.outage.failed("collector asked to retry later");
                    after.unwrap_or(wait)
                }
                Err(error) => {
                    self.outage.failed(error);
                    wait
                }
            };
            if attempt < self.options.attempts {
                let until = Instant::now() + jitter(pause.min(MAX_PAUSE), batch);
                sleep_until(until).await;
            }
            wait = (wait * 2).min(MAX_PAUSE);
        }
        tracing::debug!(endpoint = ?self.options.endpoint, spans, "spans given up");
        self.stats.failed.fetch_add(spans, Relaxed);
    }

    fn encode(&self, batch: &[Span]) -> Bytes {
        let request = ExportRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(Resource {
                    attributes: vec![
                        KeyValue::text("service.name", &*self.options.service),
                        KeyValue::text("service.version", &*self.options.version),
                    ],
                }),
                scope_spans: vec![ScopeSpans {
                    scope: Some(Scope {
                        name: "postern.gateway".to_owned(),
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                    }),
                    spans: batch.to_vec(),
                }],
            }],
        };
        request.encode_to_vec().into()
    }
}

/// Maximum pause, even if the collector asks for a longer one.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A random pause from half of `pause` to `pause`, so that many gateways do not retry at the same
/// instant. The id of a span provides the randomness.
fn jitter(pause: Duration, batch: &[Span]) -> Duration {
    let byte = batch.first().and_then(|span| span.span_id.first()).copied().unwrap_or(255);
    pause / 2 + pause / 2 * u32::from(byte) / 255
}

/// Fills `batch` until it is full, or until `interval` after its first span. `false`: no more spans
/// will come. Cancel-safe, because the caller owns `batch`.
async fn fill_batch(
    spans: &mut Receiver<Span>,
    batch: &mut Vec<Span>,
    most: usize,
    interval: Duration,
) -> bool {
    if batch.is_empty() && spans.recv_many(batch, most).await == 0 {
        return false;
    }
    let deadline = Instant::now() + interval;
    while batch.len() < most {
        let room = most - batch.len();
        match timeout_at(deadline, spans.recv_many(batch, room)).await {
            Ok(0) => return false,
            Ok(_) => {}
            Err(_) => return true,
        }
    }
    true
}

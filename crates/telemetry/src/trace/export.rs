//! The queue between workers and collector, and the task that empties it.
//!
//! Owns: the bound, batches, retries, and the counts of what became of each span. Does not own: HTTP
//! ([`super::client`]) or the spans' content ([`super::span`]).

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
use super::span::Finished;

/// Where spans go and how they are gathered.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The collector.
    pub endpoint: CollectorEndpoint,
    /// `service.name` of the resource.
    pub service: Box<str>,
    /// `service.version` of the resource.
    pub version: Box<str>,
    /// Spans that may wait; more are dropped. Default 4096.
    pub queue: usize,
    /// Spans of one message at most. Default 512.
    pub batch: usize,
    /// How long a span waits for others. Default 5 s.
    pub interval: Duration,
    /// How long the collector may take to answer. Default 10 s.
    pub timeout: Duration,
    /// Attempts per batch. Default 5.
    pub attempts: u32,
    /// Pause after the first attempt; doubled after each further one, up to 30 s. A collector that names a time
    /// is left alone for that long instead. Default 1 s.
    pub pause: Duration,
    /// How long may be spent sending what is left when the process ends. Default 5 s.
    pub drain: Duration,
}

impl ExportOptions {
    /// The defaults, towards `endpoint`.
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
            pause: Duration::from_secs(1),
            drain: Duration::from_secs(5),
        }
    }
}

/// What became of sampled spans since the process began.
#[derive(Debug, Default)]
pub struct TraceStats {
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    rejected: AtomicU64,
}

impl TraceStats {
    /// Taken by the collector.
    pub fn exported(&self) -> u64 {
        self.exported.load(Relaxed)
    }

    /// Found no room in the queue.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Given up after the last attempt, or when the process ended.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Reached the collector and were refused.
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
    /// Puts both spans of a request in, or drops and counts them. Never blocks.
    pub(super) fn offer(&self, finished: &Finished<'_>) {
        // making spans for a full queue would cost most when there is least time
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

/// The task that sends spans. To be run on the control runtime.
pub struct Exporter {
    options: ExportOptions,
    spans: Receiver<Span>,
    stats: Arc<TraceStats>,
    client: Client,
    outage: Outage,
}

impl Exporter {
    /// A queue for the workers and the task that empties it. The figures of `options` are at least 1.
    pub fn new(mut options: ExportOptions) -> (Arc<Queue>, Self) {
        options.queue = options.queue.max(1);
        options.batch = options.batch.max(1);
        options.attempts = options.attempts.max(1);
        let (sender, spans) = channel(options.queue);
        let stats = Arc::<TraceStats>::default();
        let client = Client::new(options.endpoint.clone(), options.timeout);
        let queue = Queue { sender, stats: Arc::clone(&stats) };
        let outage = Outage::of("span collector").with_effect("spans are lost");
        (Arc::new(queue), Self { options, spans, stats, client, outage })
    }

    /// What became of spans.
    pub fn stats(&self) -> Arc<TraceStats> {
        Arc::clone(&self.stats)
    }

    /// Sends batches until `stop` is ready or every [`Queue`] is gone; then what is left, for as long as
    /// [`ExportOptions::drain`] allows.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut batch = Vec::with_capacity(self.options.batch);
        loop {
            tokio::select! {
                () = &mut stop => break,
                gathered = gather(&mut self.spans, &mut batch, self.options.batch, self.options.interval) => {
                    if !gathered {
                        break;
                    }
                }
            }
            tokio::select! {
                () = self.send(&batch) => batch.clear(),
                // what is under way is sent again below: a collector tells spans apart by their identifiers
                () = &mut stop => break,
            }
        }
        self.drain(batch).await;
    }

    /// The last batches. The queue is closed first, so that late spans count as dropped.
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
                tracing::warn!(spans = left, "spans were not sent before the end");
                return;
            }
            batch.clear();
        }
    }

    /// Sends one batch, with retries, and counts what became of it.
    async fn send(&mut self, batch: &[Span]) {
        let spans = batch.len() as u64;
        let body = self.encode(batch);
        let mut wait = self.options.pause;
        for attempt in 1..=self.options.attempts {
            let pause = match self.client.post(body.clone()).await {
                Ok(CollectorAnswer::Taken { rejected }) => {
                    self.outage.succeeded();
                    let rejected = rejected.min(spans);
                    self.stats.rejected.fetch_add(rejected, Relaxed);
                    self.stats.exported.fetch_add(spans - rejected, Relaxed);
                    return;
                }
                Ok(CollectorAnswer::Refused(status)) => {
                    self.outage.failed(format_args!("it answered {status}"));
                    self.stats.rejected.fetch_add(spans, Relaxed);
                    return;
                }
                Ok(CollectorAnswer::Later(after)) => {
                    self.outage.failed("it takes no spans now");
                    after.unwrap_or(wait)
                }
                Err(error) => {
                    self.outage.failed(error);
                    wait
                }
            };
            if attempt < self.options.attempts {
                let until = Instant::now() + spread(pause.min(LONGEST_PAUSE), batch);
                sleep_until(until).await;
            }
            wait = (wait * 2).min(LONGEST_PAUSE);
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

/// No pause is longer than this, whatever a collector says.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Half the pause up to all of it, so that many gateways do not come back at the same instant. A span's
/// identifier is random enough to choose.
fn spread(pause: Duration, batch: &[Span]) -> Duration {
    let byte = batch.first().and_then(|span| span.span_id.first()).copied().unwrap_or(255);
    pause / 2 + pause / 2 * u32::from(byte) / 255
}

/// Fills `batch`: until it is full, or `interval` after its first span. `false`: there will be no more.
/// Nothing is lost when this is dropped half-way, for `batch` is the caller's.
async fn gather(spans: &mut Receiver<Span>, batch: &mut Vec<Span>, most: usize, interval: Duration) -> bool {
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

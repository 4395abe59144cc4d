//! HTTP transport: carries messages to and from a remote provider without a broker.
//!
//! Owns: queries, each of which is a request whose response carries the messages that answer it.
//! Also an event stream (`GET …/revocation/events`), over which the provider sends new revocations
//! at once. If the stream breaks or does not exist, a revocation arrives with the next query, half
//! a second later. Does not own: the exchanges ([`Remote`]).
//!
//! Hanging queries never block a new one. If the limit of queries in flight is reached, one is
//! given up. The oldest one is kept, because it may only be slow. If the provider is silent, one
//! query is in flight at a time. The next one replaces it after a tenth of a second over another
//! connection, because the old connection may be broken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use coherence::silence::Silence;
use coherence::transport::{QUEUE, Subscription, Topic, Transport, TransportState};
use coherence::wire;
use http::{Method, StatusCode};
use http_engine::http_client::StreamedResponse;
use outage::Outage;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::remote::Remote;
use crate::revocation::random::random;

/// Largest number of queries in flight.
const MAX_IN_FLIGHT: usize = 8;
/// Largest number of queries in flight to a silent provider.
const MAX_IN_FLIGHT_SILENT: usize = 1;
/// Longest pause in the event stream. The provider sends a comment line when there is no event.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// The stream is closed when nothing arrives for this time.
const STREAM_TIMEOUT: Duration = Duration::from_secs(7);
/// Pause between two attempts to open the stream: the first and the longest.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const MAX_RETRY: Duration = Duration::from_secs(5);
/// Pause before another attempt at a provider that has no event stream.
const NO_STREAM_RETRY: Duration = Duration::from_mins(1);
/// Prefix of a message on its line of the stream.
pub const EVENT_DATA_PREFIX: &[u8] = b"data: ";

/// Messages in a response, each in base64.
#[derive(Debug, Serialize, Deserialize)]
pub struct MessageStream {
    /// The messages in the order in which they were created.
    pub messages: Vec<String>,
}

/// Encodes bytes in the form that these messages use (base64).
pub fn encode_message(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Transport over HTTP to one remote provider.
pub struct HttpTransport {
    queries: mpsc::Sender<(Topic, Bytes)>,
    subscribers: Arc<Subscribers>,
    state: watch::Receiver<TransportState>,
    stream_task: AbortHandle,
}

/// Channels that receive the provider's messages.
type Subscribers = Mutex<Vec<mpsc::Sender<Bytes>>>;

impl HttpTransport {
    /// Creates the transport to a provider, which may be silent. Its tasks run on this runtime and
    /// end with the transport.
    pub fn new(remote: Remote, silence: Arc<Silence>, outage: Outage, on: &Handle) -> Self {
        let (questions, waiting) = mpsc::channel(QUEUE);
        let (state_sender, state) = watch::channel(TransportState::Starting);
        let subscribers = Arc::<Subscribers>::default();
        let sender = QuerySender {
            remote: remote.clone(),
            silence,
            subscribers: subscribers.clone(),
            state_sender,
            outage,
        };
        on.spawn(sender.run(waiting));
        let listening = on.spawn(run_event_stream(remote, subscribers.clone())).abort_handle();
        Self { queries: questions, subscribers, state, stream_task: listening }
    }
}

impl Drop for HttpTransport {
    fn drop(&mut self) {
        self.stream_task.abort();
    }
}

/// State of the task that sends queries.
struct QuerySender {
    remote: Remote,
    silence: Arc<Silence>,
    subscribers: Arc<Subscribers>,
    state_sender: watch::Sender<TransportState>,
    outage: Outage,
}

impl QuerySender {
    async fn run(self, mut waiting: mpsc::Receiver<(Topic, Bytes)>) {
        let sender = Arc::new(self);
        let mut under_way = QueriesInFlight::default();
        while let Some((_, question)) = waiting.recv().await {
            let silent = sender.silence.is_silent();
            // First find out with a probe whether it answers at all.
            if silent && !wire::is_probe(&question) {
                continue;
            }
            let given_up = under_way.make_room(if silent { MAX_IN_FLIGHT_SILENT } else { MAX_IN_FLIGHT });
            if silent && given_up {
                sender.set_state(TransportState::Down(sender.remote.no_answer_message().into()));
            }
            under_way.0.push_back(tokio::spawn(sender.clone().exchange(question)).abort_handle());
        }
    }

    async fn exchange(self: Arc<Self>, question: Bytes) {
        match exchange(&self.remote, question).await {
            Ok(messages) => {
                self.set_state(TransportState::Up);
                deliver(&self.subscribers, &messages);
            }
            Err(why) => self.set_state(TransportState::Down(why.into())),
        }
    }

    /// Updates the state of the transport.
    fn set_state(&self, now: TransportState) {
        match &now {
            TransportState::Down(why) => self.outage.failed(why),
            TransportState::Up | TransportState::Starting => self.outage.succeeded(),
        }
        self.state_sender.send_if_modified(|before| {
            let (was, is) =
                (matches!(before, TransportState::Down(_)), matches!(now, TransportState::Down(_)));
            // A different cause of the same outage is not a change.
            let news = *before != now && was != is || *before == TransportState::Starting;
            *before = now;
            news
        });
    }
}

/// Exchanges in flight, in the order in which they started.
#[derive(Default)]
struct QueriesInFlight(VecDeque<AbortHandle>);

impl QueriesInFlight {
    /// Cancels as many exchanges as needed to stay below `most`. Returns whether it cancelled any.
    /// It keeps the oldest one if it can cancel another.
    fn make_room(&mut self, most: usize) -> bool {
        self.0.retain(|exchange| !exchange.is_finished());
        let given_up = self.0.len() >= most;
        while self.0.len() >= most {
            let oldest = usize::from(most > 1);
            let Some(exchange) = self.0.remove(oldest) else { break };
            exchange.abort();
        }
        given_up
    }
}

impl Drop for QueriesInFlight {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

async fn exchange(remote: &Remote, question: Bytes) -> Result<Vec<Bytes>, String> {
    let answer = remote.send(Method::POST, "messages", "application/octet-stream", question).await?;
    let MessageStream { messages } =
        serde_json::from_slice(&answer).map_err(|_| "the response has no valid messages")?;
    let messages = messages.iter().map(|text| STANDARD.decode(text).map(Bytes::from));
    messages.collect::<Result<_, _>>().map_err(|_| "the response has no valid messages".to_owned())
}

/// Delivers the messages of the event stream, and opens the stream again when it ends.
async fn run_event_stream(remote: Remote, subscribers: Arc<Subscribers>) {
    let mut pause = FIRST_RETRY;
    loop {
        match remote.events().await {
            Ok((StatusCode::OK, stream)) => {
                tracing::debug!("revocation event stream open");
                if read_event_stream(stream, &subscribers).await {
                    pause = FIRST_RETRY;
                }
            }
            Ok((status, _)) => {
                tracing::debug!(%status, "revocation event stream refused, polling instead");
                if matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) {
                    pause = NO_STREAM_RETRY;
                }
            }
            Err(why) => tracing::debug!(%why, "revocation event stream failed"),
        }
        // Spread the reconnects of many consumers after a node has ended.
        let share = random().map_or(0, u16::from_le_bytes);
        sleep(pause.mul_f64(0.5 + f64::from(share) / f64::from(u16::MAX) / 2.0)).await;
        pause = (pause * 2).min(MAX_RETRY);
    }
}

/// Reads the stream until it ends, breaks or is silent. Returns whether it was useful: every stream
/// begins with a comment line, so one that brings no more must not be reopened at once.
async fn read_event_stream(mut stream: StreamedResponse, subscribers: &Subscribers) -> bool {
    let (mut lines, mut pieces) = (EventStreamParser::default(), 0_u64);
    while let Ok(Ok(Some(bytes))) = timeout(STREAM_TIMEOUT, stream.next()).await {
        pieces += 1;
        let Some(messages) = lines.take(&bytes) else { break };
        deliver(subscribers, &messages);
    }
    pieces > 1
}

/// Parses an event stream whose pieces end anywhere.
#[derive(Default)]
struct EventStreamParser(Vec<u8>);

impl EventStreamParser {
    /// Length limit of a line. A longer one contains no message.
    const MAX: usize = EVENT_DATA_PREFIX.len() + wire::MAX_MESSAGE.div_ceil(3) * 4 + 2;

    /// Messages that this piece completes. `None`: this is not such an event stream.
    fn take(&mut self, piece: &[u8]) -> Option<Vec<Bytes>> {
        self.0.extend_from_slice(piece);
        let mut messages = Vec::new();
        let whole = self.0.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in self.0[..whole].split(|byte| *byte == b'\n') {
            // Other lines are comments, or belong to a later version.
            if let Some(text) = line.trim_ascii_end().strip_prefix(EVENT_DATA_PREFIX) {
                messages.push(Bytes::from(STANDARD.decode(text).ok()?));
            }
        }
        self.0.drain(..whole);
        (self.0.len() <= Self::MAX).then_some(messages)
    }
}

fn deliver(subscribers: &Subscribers, messages: &[Bytes]) {
    subscribers.lock().retain(|to| {
        // A full queue drops the message.
        for message in messages {
            let _ = to.try_send(message.clone());
        }
        !to.is_closed()
    });
}

impl Transport for HttpTransport {
    fn send(&self, topic: &Topic, message: Bytes) {
        // This transport sends queries only. No other node receives messages from it.
        if matches!(topic, Topic::Questions(_)) {
            let _ = self.queries.try_send((topic.clone(), message));
        }
    }

    fn subscribe(&self, topic: Topic) -> Subscription {
        let (to, subscription) = mpsc::channel(QUEUE);
        // It serves one log, and no queries arrive here.
        if matches!(topic, Topic::Events(_)) {
            self.subscribers.lock().push(to);
        }
        subscription
    }

    fn state(&self) -> watch::Receiver<TransportState> {
        self.state.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_from_pieces_that_end_anywhere() {
        let stream = b":\n\ndata: b25l\n\n: stir\ndata: dHdv\r\n\nevent: later\nretry: 5\ndata: dGhyZWU=\n\n";
        for length in 1..=stream.len() {
            let mut lines = EventStreamParser::default();
            let read: Vec<_> = stream.chunks(length).flat_map(|piece| lines.take(piece).unwrap()).collect();
            assert_eq!(read, ["one", "two", "three"], "in pieces of {length}");
        }
    }

    #[tokio::test]
    async fn who_hangs_makes_room_for_the_next_and_the_first_is_waited_for() {
        let hang = || tokio::spawn(std::future::pending::<()>());
        let mut under_way = QueriesInFlight::default();
        let hanging: Vec<_> = (0..20)
            .map(|_| {
                under_way.make_room(MAX_IN_FLIGHT);
                let hanging = hang();
                under_way.0.push_back(hanging.abort_handle());
                hanging
            })
            .collect();
        tokio::task::yield_now().await;
        let left: Vec<_> = (0..20).filter(|at| !hanging[*at].is_finished()).collect();
        assert_eq!(left, [0, 13, 14, 15, 16, 17, 18, 19]);
        assert!(under_way.make_room(MAX_IN_FLIGHT_SILENT), "nobody is waited for who is silent");
        tokio::task::yield_now().await;
        assert!(
            hanging.iter().all(tokio::task::JoinHandle::is_finished)
                && !under_way.make_room(MAX_IN_FLIGHT_SILENT)
        );
    }

    #[test]
    fn what_is_no_event_stream_is_given_up() {
        assert_eq!(EventStreamParser::default().take(b"data: not base64!\n"), None);
        let mut endless = EventStreamParser::default();
        assert!((0..100).any(|_| endless.take(&[b'a'; 1000]).is_none()), "and is not kept without end");
    }
}

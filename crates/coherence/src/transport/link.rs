//! Link: what all transports over a server have in common.
//!
//! Owns: the task that holds the connection, the queue to it, the order in which servers are tried,
//! the pauses between attempts, and the reported [state](TransportState). Does not own: the log
//! lines of an [`Outage`], the protocol of a server ([`Server`] does), nor the subscriptions
//! ([`Subscribers`]).
//!
//! ```text
//! send ─▶ queue ─▶ ┌ task ──────────────────────────────┐
//!                  │ dial, carry until it fails, wait   │ ⇄ server
//! subscription ◀── └────────────────────────────────────┘ ─▶ state, log
//! ```
//!
//! The task owns everything: when the [`Link`] is dropped, the task is aborted, and the connection
//! closes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outage::Outage;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::socket::Address;
use super::subscribers::Subscribers;
use super::{QUEUE, Subscription, Topic, Transport, TransportState};

/// Longest time for a connection to become usable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause between attempts: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A connection that lasted this long resets the pauses.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// A connection that lasted this long counts as established. A server that accepts each and ends it
/// at once counts as down.
pub(super) const ESTABLISHED_AFTER: Duration = Duration::from_secs(1);

/// A message to send, with its topic.
pub(super) type Outgoing = (Topic, Bytes);

/// One kind of server: how to get a connection that carries messages.
pub(super) trait Server: Send + Sync + 'static {
    /// A connection of this kind.
    type Session: Session;
    /// Name of this kind in states and logs.
    const KIND: &'static str;

    /// Addresses to try, in this order.
    fn addresses(&self) -> &[Address];

    /// Connects, logs in, and subscribes to the topics. The error is the cause, with what to check;
    /// the address need not be in it, and no secret may be.
    fn connect(
        &self,
        address: &Address,
        subscribers: &Subscribers,
    ) -> impl Future<Output = Result<Self::Session, String>> + Send;
}

/// A connection that is ready.
pub(super) trait Session: Send {
    /// Carries messages from the queue to the server, and from the server to the subscribers, and
    /// updates the server's subscriptions. Runs until that fails or the server is
    /// [silent](super::socket::SILENCE). Returns the cause, as [`Server::connect`] does.
    fn run(
        self,
        queue: &mut mpsc::Receiver<Outgoing>,
        subscribers: &Subscribers,
    ) -> impl Future<Output = String> + Send;
}

/// A transport over a server. The connection ends when this is dropped.
#[derive(Debug)]
pub struct Link {
    queue: mpsc::Sender<Outgoing>,
    subscribers: Arc<Subscribers>,
    state: watch::Receiver<TransportState>,
    task: AbortHandle,
}

impl Link {
    /// Begins to connect. Needs a Tokio runtime. Failures and recoveries are reported to this
    /// outage.
    pub(super) fn start(server: impl Server, outage: Outage) -> Self {
        let (queue, outgoing) = mpsc::channel(QUEUE);
        let (state_sender, state) = watch::channel(TransportState::Starting);
        let subscribers = Arc::new(Subscribers::default());
        // A connection reports success only once, so it counts without a calm period.
        let outage = outage.with_recovery_period(Duration::ZERO);
        let keeper =
            ConnectionTask { server, outgoing, state_sender, subscribers: Arc::clone(&subscribers), outage };
        let task = tokio::spawn(keeper.run()).abort_handle();
        Self { queue, subscribers, state, task }
    }
}

impl Transport for Link {
    fn send(&self, topic: &Topic, message: Bytes) {
        if *self.state.borrow() == TransportState::Up {
            // A full queue drops the message, as the protocol expects.
            let _ = self.queue.try_send((topic.clone(), message));
        }
    }

    fn subscribe(&self, topic: Topic) -> Subscription {
        self.subscribers.add(topic)
    }

    fn state(&self) -> watch::Receiver<TransportState> {
        self.state.clone()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the task owns.
struct ConnectionTask<S> {
    server: S,
    outgoing: mpsc::Receiver<Outgoing>,
    state_sender: watch::Sender<TransportState>,
    subscribers: Arc<Subscribers>,
    outage: Outage,
}

impl<S: Server> ConnectionTask<S> {
    async fn run(mut self) {
        let mut pauses = Backoff::default();
        loop {
            let why = match connect_any(&self.server, &self.subscribers).await {
                Ok((address, session)) => {
                    // Messages for the connection before are too late.
                    while self.outgoing.try_recv().is_ok() {}
                    self.publish_state(TransportState::Up);
                    let began = Instant::now();
                    let carried = session.run(&mut self.outgoing, &self.subscribers);
                    let why = wait_ended(carried, || self.outage.succeeded()).await;
                    pauses.connection_ended(began.elapsed());
                    with_address::<S>(address, why)
                }
                Err(why) => why,
            };
            self.publish_state(TransportState::Down(why.into()));
            tokio::time::sleep(pauses.next()).await;
        }
    }

    /// Publishes the state, and logs a change.
    fn publish_state(&self, state: TransportState) {
        match &state {
            TransportState::Down(why) => self.outage.failed(why),
            _ if *self.state_sender.borrow() == TransportState::Starting => {
                tracing::info!(transport = S::KIND, "message transport connected");
            }
            _ => tracing::debug!(transport = S::KIND, "message transport reconnected"),
        }
        self.state_sender.send_if_modified(|current| {
            let news = *current != state;
            *current = state;
            news
        });
    }
}

/// Waits for the end of a connection; calls `has_held` once it has lasted for
/// [`ESTABLISHED_AFTER`].
pub(super) async fn wait_ended<T>(connection: impl Future<Output = T>, has_held: impl FnOnce()) -> T {
    tokio::pin!(connection);
    match tokio::time::timeout(ESTABLISHED_AFTER, &mut connection).await {
        Ok(ended) => ended,
        Err(_) => {
            has_held();
            connection.await
        }
    }
}

/// Connects to the first server that accepts; the error has the causes of all.
async fn connect_any<'a, S: Server>(
    server: &'a S,
    subscribers: &Subscribers,
) -> Result<(&'a Address, S::Session), String> {
    let mut causes = Vec::new();
    for address in server.addresses() {
        let dialled = tokio::time::timeout(CONNECT_TIMEOUT, server.connect(address, subscribers)).await;
        match dialled.unwrap_or_else(|_| Err(no_answer(CONNECT_TIMEOUT))) {
            Ok(session) => return Ok((address, session)),
            Err(why) => causes.push(with_address::<S>(address, why)),
        }
    }
    Err(causes.join("; "))
}

fn with_address<S: Server>(address: &Address, why: impl fmt::Display) -> String {
    format!("{} at {address}: {why}", S::KIND)
}

/// The cause when there is no answer in time.
pub(super) fn no_answer(after: Duration) -> String {
    format!(
        "no answer for {} s; check that it runs, its load, and the network in between",
        after.as_secs_f32()
    )
}

/// Pauses: each twice the one before, and less by up to a half, so that nodes do not reconnect at
/// the same time.
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(PAUSES.0)
    }
}

impl Backoff {
    /// Notes how long a connection has lasted.
    fn connection_ended(&mut self, held: Duration) {
        if held >= STABLE_AFTER {
            self.0 = PAUSES.0;
        }
    }

    fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSES.1);
        let mut random = [0];
        // Without randomness the pause is the longest.
        let _ = aws_lc_rs::rand::fill(&mut random);
        pause.mul_f64(1.0 - f64::from(random[0]) / f64::from(u8::MAX) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn pauses_grow_to_five_seconds_and_begin_anew_after_what_was_sound() {
        let mut pauses = Backoff::default();
        for longest in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            let pause = pauses.next();
            let longest = Duration::from_millis(longest);
            assert!((longest / 2..=longest).contains(&pause), "{pause:?} of {longest:?}");
        }
        pauses.connection_ended(Duration::from_secs(1));
        assert!(pauses.next() >= PAUSES.1 / 2, "what ends at once is not tried at once");
        pauses.connection_ended(STABLE_AFTER);
        assert!(pauses.next() <= PAUSES.0);
    }

    /// A server that accepts no connection, and how often it was tried.
    struct Absent([Address; 2], watch::Sender<usize>);

    impl Server for Absent {
        type Session = Nothing;
        const KIND: &'static str = "Nothing";

        fn addresses(&self) -> &[Address] {
            &self.0
        }

        async fn connect(&self, _: &Address, _: &Subscribers) -> Result<Nothing, String> {
            self.1.send_modify(|attempts| *attempts += 1);
            Err(format!("not there at try {}", *self.1.borrow()))
        }
    }

    struct Nothing;

    impl Session for Nothing {
        async fn run(self, _: &mut mpsc::Receiver<Outgoing>, _: &Subscribers) -> String {
            std::future::pending().await
        }
    }

    fn absent() -> (Absent, watch::Receiver<usize>) {
        let (count, tried) = watch::channel(0);
        (Absent([Address::tcp("a", 1), Address::tcp("b", 2)], count), tried)
    }

    /// What is logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn however_often_it_fails_is_logged_once() {
        let log = Log::default();
        let lines = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || lines.clone()).finish();
        let _logged = tracing::subscriber::set_default(subscriber);
        // With only one dispatcher, the first log line on another test's thread decides for all
        // threads whether it is enabled.
        let _second = tracing::Dispatch::new(tracing_subscriber::registry());
        let (server, mut tried) = absent();
        let _link = Link::start(server, Outage::new("broker nothing"));
        tried.wait_for(|attempts| *attempts >= 8).await.unwrap();
        let log = String::from_utf8(log.0.lock().clone()).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("WARN") && log.contains("Nothing at a:1: not there at try 1"), "{log}");
    }

    #[tokio::test]
    async fn a_state_that_is_down_names_every_server_and_its_cause() {
        let link = Link::start(absent().0, Outage::new("broker nothing"));
        let mut state = link.state();
        let down = state.wait_for(|state| *state != TransportState::Starting).await.unwrap().clone();
        assert_eq!(
            down,
            TransportState::Down(
                "Nothing at a:1: not there at try 1; Nothing at b:2: not there at try 2".into()
            )
        );
        drop(link);
        assert!(state.changed().await.is_err(), "the task ends with the link");
    }
}

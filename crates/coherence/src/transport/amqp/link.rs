//! AMQP link: one topic in one direction (AMQP 1.0 part 2.6).
//!
//! Owns: how a link is requested, and the messages on it. Does not own: the connection, or what
//! happens after a link has ended.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fe2o3_amqp::link::builder::{Builder, WithName, WithSource, WithTarget};
use fe2o3_amqp::link::role::{ReceiverMarker, SenderMarker};
use fe2o3_amqp::link::{CreditMode, Receiver, Sender};
use fe2o3_amqp::types::definitions::SenderSettleMode;
use fe2o3_amqp::types::messaging::{Body, Data, Header, Message, Source, Target, TerminusExpiryPolicy};
use fe2o3_amqp::types::primitives::{Binary, Symbol, Value};
use fe2o3_amqp::{Delivery, Sendable};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::socket::IDLE_TIMEOUT;
use super::{AmqpSettings, CLOSE_TIMEOUT, Shared, TIME_TO_LIVE};
use crate::transport::Topic;
use crate::transport::amqp::diagnosis::Broker;
use crate::wire;

/// Messages that a broker may send ahead (link credit).
const CREDIT: u32 = 1000;

/// Largest message on a link, in bytes: a larger one ends the link. A message up to this size that
/// exceeds the wire format's limit is dropped alone.
const MAX_MESSAGE: u64 = 1 << 20;

/// A broker that sent something this short a time ago is not silent: it is asked to do so every
/// half of the limit.
const RECENT: Duration = IDLE_TIMEOUT.saturating_sub(Duration::from_secs(1));

/// Capability of the requested address: a topic, not a queue.
const TOPIC_CAPABILITY: &str = "topic";

/// Why a link has ended.
#[derive(Debug)]
pub(super) enum LinkEnd {
    /// The topic has no subscriber.
    NoSubscriber(Topic),
    /// The broker ended it, or broke the protocol. `None`: the connection ended, and its outcome
    /// has the cause.
    Broken(Option<String>),
}

/// What a link needs to explain its end, or why it is stuck.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) broker: String,
    pub(super) settings: Arc<AmqpSettings>,
    /// When the broker last sent something.
    pub(super) last_read: watch::Receiver<Instant>,
}

impl Context {
    fn broker(&self) -> Broker<'_> {
        Broker { address: &self.broker, login: &self.settings.login }
    }

    /// Waits until a message that is sent now has waited for too long at a broker that still sends.
    /// One that sends nothing is silent, which ends the connection and is the better explanation.
    async fn wait_stuck(&self) {
        tokio::time::sleep(IDLE_TIMEOUT).await;
        let mut last_read = self.last_read.clone();
        if last_read.wait_for(|at| at.elapsed() < RECENT).await.is_err() {
            // The socket is gone: the link ends.
            std::future::pending::<()>().await;
        }
    }
}

/// Link to the broker. IBM MQ publishes to the topic that the link's name gives.
pub(super) fn sender(
    topic: &Topic,
    address: &str,
) -> Builder<SenderMarker, Target, WithName, WithSource, WithTarget> {
    let target =
        Target::builder().address(address).capabilities(vec![Symbol::from(TOPIC_CAPABILITY)]).build();
    Sender::builder()
        .name(topic.to_string())
        .target(target)
        .sender_settle_mode(SenderSettleMode::Settled)
        .verify_incoming_source(false)
        .verify_incoming_target(false)
}

/// Link from the broker: a subscription of its own that ends with the link. IBM MQ reads
/// "private:", which is its default, and the topic from the name. The library requires different
/// names for both directions.
pub(super) fn receiver(
    topic: &Topic,
    address: &str,
) -> Builder<ReceiverMarker, Target, WithName, WithSource, WithTarget> {
    let source = Source::builder()
        .address(address)
        .expiry_policy(TerminusExpiryPolicy::LinkDetach)
        .capabilities(vec![Symbol::from(TOPIC_CAPABILITY)])
        .build();
    Receiver::builder()
        .name(format!("private:{topic}"))
        .source(source)
        .sender_settle_mode(SenderSettleMode::Settled)
        .max_message_size(MAX_MESSAGE)
        .credit_mode(CreditMode::Auto(CREDIT))
        // Messages that the sender has settled get no outcome; the others must be accepted, or the
        // credit runs out.
        .auto_accept(true)
        .verify_incoming_source(false)
        .verify_incoming_target(false)
}

/// Sends the queued messages, as the broker gives credit.
pub(super) async fn send(
    mut sender: Sender,
    address: String,
    mut queue: mpsc::Receiver<Bytes>,
    shared: Arc<Shared>,
    context: Context,
) -> LinkEnd {
    loop {
        let message = tokio::select! {
            message = queue.recv() => message,
            error = sender.on_detach() => {
                return LinkEnd::Broken(context.broker().detached(&address, &error));
            }
        };
        // The queue was replaced: this link ends with its connection, and a new one follows.
        let Some(message) = message else { return std::future::pending().await };
        let mut sending = pin!(sender.send(envelope(&message)));
        let sent = tokio::select! {
            biased;
            sent = &mut sending => sent,
            () = context.wait_stuck() => {
                let _stuck = shared.mark_stuck(context.broker().no_credit(&address));
                sending.await
            }
        };
        if let Err(error) = sent {
            return LinkEnd::Broken(context.broker().sending(&address, &error));
        }
    }
}

fn envelope(message: &Bytes) -> Sendable<Data> {
    let life = u32::try_from(TIME_TO_LIVE.as_millis()).unwrap_or(u32::MAX);
    let header = Header::builder().durable(false).ttl(life).build();
    let message = Message::builder().header(header).data(Binary::from(message.to_vec())).build();
    Sendable::builder().message(message).settled(true).build()
}

/// Delivers incoming messages, until the topic has no subscriber.
pub(super) async fn receive(
    mut receiver: Receiver,
    address: String,
    topic: Topic,
    shared: Arc<Shared>,
    context: Context,
) -> LinkEnd {
    loop {
        match receiver.recv::<Body<Value>>().await {
            Ok(delivery) => {
                let Some(message) = content(delivery) else { continue };
                if !shared.subscribers.deliver(&topic, &message) {
                    let _ = timeout(CLOSE_TIMEOUT, receiver.close()).await;
                    return LinkEnd::NoSubscriber(topic);
                }
            }
            // A message that cannot be decoded is dropped. It has used up credit and does not count
            // as accepted.
            Err(error) if error.recovery().link_is_usable() => {
                if receiver.set_credit(CREDIT).await.is_err() {
                    return LinkEnd::Broken(None);
                }
            }
            Err(error) => return LinkEnd::Broken(context.broker().receiving(&address, &error)),
        }
    }
}

/// The payload of a message; `None` when it is not one data section, or too large.
fn content(delivery: Delivery<Body<Value>>) -> Option<Bytes> {
    let mut sections = delivery.into_body().try_into_data().ok()?;
    let (first, second) = (sections.next()?, sections.next());
    (second.is_none() && first.len() <= wire::MAX_MESSAGE).then(|| Bytes::from(first.into_vec()))
}

#[cfg(test)]
mod tests {
    use super::super::{Addressing, AmqpLogin};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_broker_that_still_sends_counts_as_accepting_nothing() {
        let (heard, last_read) = watch::channel(Instant::now());
        let (brokers, login, addressing) = (Vec::new(), AmqpLogin::Anonymous, Addressing::Plain);
        let settings = Arc::new(AmqpSettings { brokers, tls: None, login, addressing, seed: 0 });
        let context = Context { broker: "127.0.0.1:5672".to_owned(), settings, last_read };
        // The last data arrives just after the message was sent, and is read late.
        let mut stuck = pin!(context.wait_stuck());
        assert!(timeout(IDLE_TIMEOUT / 10, &mut stuck).await.is_err());
        heard.send_replace(Instant::now());
        assert!(timeout(IDLE_TIMEOUT * 2, &mut stuck).await.is_err(), "it is silent");
        heard.send_replace(Instant::now());
        assert!(timeout(IDLE_TIMEOUT / 10, stuck).await.is_ok(), "it sends, and accepts nothing");

        let mut stuck = pin!(context.wait_stuck());
        assert!(timeout(IDLE_TIMEOUT * 3 / 4, &mut stuck).await.is_err(), "too early");
        heard.send_replace(Instant::now());
        assert!(timeout(IDLE_TIMEOUT / 2, stuck).await.is_ok(), "its heartbeats arrive");
    }
}

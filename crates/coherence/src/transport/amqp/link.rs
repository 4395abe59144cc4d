//! One topic in one direction (AMQP 1.0 part 2.6).
//!
//! Owns: how a link is asked for, and messages on their way over it. Does not own: the connection, or what
//! becomes of a link that ended.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use fe2o3_amqp::link::builder::{Builder, WithName, WithSource, WithTarget};
use fe2o3_amqp::link::role::{ReceiverMarker, SenderMarker};
use fe2o3_amqp::link::{CreditMode, Receiver, Sender};
use fe2o3_amqp::types::definitions::SenderSettleMode;
use fe2o3_amqp::types::messaging::{Body, Data, Header, Message, Source, Target, TerminusExpiryPolicy};
use fe2o3_amqp::types::primitives::{Binary, Symbol, Value};
use fe2o3_amqp::{Delivery, Sendable};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::socket::SILENCE;
use super::{AmqpSettings, FAREWELL, Shared, TIME_TO_LIVE};
use crate::transport::Topic;
use crate::transport::amqp::diagnosis::Broker;
use crate::wire;

/// Messages that a broker may send ahead.
const CREDIT: u32 = 1000;

/// A larger one, in bytes, ends its link; up to it, one that is larger than it should be is dropped by
/// itself.
const LARGEST: u64 = 1 << 20;

/// What a broker is asked for: an address that is a topic, not a queue.
const TOPIC: &str = "topic";

/// Why a link is no more.
#[derive(Debug)]
pub(super) enum Ended {
    /// Nobody reads the topic.
    Unused(Topic),
    /// The broker, or the rules. `None`: the connection ended, and it knows why.
    Broken(Option<String>),
}

/// What a link needs to know to say why it ended.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) broker: String,
    pub(super) settings: Arc<AmqpSettings>,
}

impl Context {
    fn broker(&self) -> Broker<'_> {
        Broker { address: &self.broker, login: &self.settings.login }
    }
}

/// Towards the broker. IBM MQ publishes to the topic that the link is named by.
pub(super) fn sender(
    topic: &Topic,
    address: &str,
) -> Builder<SenderMarker, Target, WithName, WithSource, WithTarget> {
    let target = Target::builder().address(address).capabilities(vec![Symbol::from(TOPIC)]).build();
    Sender::builder()
        .name(topic.to_string())
        .target(target)
        .sender_settle_mode(SenderSettleMode::Settled)
        .verify_incoming_source(false)
        .verify_incoming_target(false)
}

/// From the broker: a subscription of its own that ends with the link. IBM MQ reads "private:", which it
/// takes for granted, and the topic in the name. The library wants names to differ whatever the direction.
pub(super) fn receiver(
    topic: &Topic,
    address: &str,
) -> Builder<ReceiverMarker, Target, WithName, WithSource, WithTarget> {
    let source = Source::builder()
        .address(address)
        .expiry_policy(TerminusExpiryPolicy::LinkDetach)
        .capabilities(vec![Symbol::from(TOPIC)])
        .build();
    Receiver::builder()
        .name(format!("private:{topic}"))
        .source(source)
        .sender_settle_mode(SenderSettleMode::Settled)
        .max_message_size(LARGEST)
        .credit_mode(CreditMode::Auto(CREDIT))
        // Nothing is said about messages that were settled before; the rest must be, or credit ends.
        .auto_accept(true)
        .verify_incoming_source(false)
        .verify_incoming_target(false)
}

/// Sends what is queued, as the broker gives credit for it.
pub(super) async fn send(
    mut sender: Sender,
    address: String,
    mut queue: mpsc::Receiver<Bytes>,
    shared: Arc<Shared>,
    context: Context,
) -> Ended {
    loop {
        let message = tokio::select! {
            message = queue.recv() => message,
            error = sender.on_detach() => {
                return Ended::Broken(context.broker().detached(&address, &error));
            }
        };
        // Its queue was replaced: so is this link, with its connection.
        let Some(message) = message else { return std::future::pending().await };
        let mut sending = pin!(sender.send(envelope(&message)));
        let sent = match timeout(SILENCE, &mut sending).await {
            Ok(sent) => sent,
            Err(_) => {
                let _stuck = shared.stuck(context.broker().takes_nothing(&address));
                sending.await
            }
        };
        if let Err(error) = sent {
            return Ended::Broken(context.broker().sending(&address, &error));
        }
    }
}

fn envelope(message: &Bytes) -> Sendable<Data> {
    let life = u32::try_from(TIME_TO_LIVE.as_millis()).unwrap_or(u32::MAX);
    let header = Header::builder().durable(false).ttl(life).build();
    let message = Message::builder().header(header).data(Binary::from(message.to_vec())).build();
    Sendable::builder().message(message).settled(true).build()
}

/// Hands out what comes, until nobody takes it.
pub(super) async fn receive(
    mut receiver: Receiver,
    address: String,
    topic: Topic,
    shared: Arc<Shared>,
    context: Context,
) -> Ended {
    loop {
        match receiver.recv::<Body<Value>>().await {
            Ok(delivery) => {
                let Some(message) = content(delivery) else { continue };
                if !shared.subscribers.deliver(&topic, &message) {
                    let _ = timeout(FAREWELL, receiver.close()).await;
                    return Ended::Unused(topic);
                }
            }
            // What cannot be read is dropped. It has used up credit and does not count as taken.
            Err(error) if error.recovery().link_is_usable() => {
                if receiver.set_credit(CREDIT).await.is_err() {
                    return Ended::Broken(None);
                }
            }
            Err(error) => return Ended::Broken(context.broker().receiving(&address, &error)),
        }
    }
}

/// The bytes of a message; `None` when it has none, or too many.
fn content(delivery: Delivery<Body<Value>>) -> Option<Bytes> {
    let mut sections = delivery.into_body().try_into_data().ok()?;
    let (first, second) = (sections.next()?, sections.next());
    (second.is_none() && first.len() <= wire::MAX).then(|| Bytes::from(first.into_vec()))
}

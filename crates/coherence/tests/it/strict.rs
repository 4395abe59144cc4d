//! A minimal broker that accepts what IBM MQ documents to accept, and rejects everything else: the
//! product itself is not available for tests.
//!
//! The rules are those of "AMQP 1.0 support" in its manual, and those that the transport has set
//! itself: one session; links named by their topic, with the capability `topic`; no transactions;
//! no outcome but "accepted"; names of containers of letters, digits and `%/._`; nothing durable;
//! messages settled when they are sent, with a time to live.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use fe2o3_amqp::types::definitions::{AmqpError, Error, Handle, ReceiverSettleMode, Role, SenderSettleMode};
use fe2o3_amqp::types::messaging::{DeliveryState, Header, Target, TargetArchetype, TerminusDurability};
use fe2o3_amqp::types::performatives::{
    Attach, Begin, Close, Detach, End, Flow, Open, Performative, Transfer,
};
use fe2o3_amqp::types::primitives::{Array, Symbol};
use fe2o3_amqp::types::sasl::{SaslCode, SaslInit, SaslMechanisms, SaslOutcome};
use parking_lot::Mutex;
use serde_amqp::read::IoReader;
use serde_amqp::serde::Serialize;
use serde_amqp::serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Messages that a link may send ahead.
const CREDIT: u32 = 1000;
const WINDOW: u32 = 100_000;

/// The broker. It ends when this is dropped.
pub(crate) struct Strict {
    pub(crate) address: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    complaints: Mutex<Vec<String>>,
    /// Container names of all connections so far: like ActiveMQ Classic, which may not have noticed
    /// that a connection ended.
    containers: Mutex<HashSet<String>>,
    /// Subscribers by topic.
    subscribers: Mutex<HashMap<String, Vec<Subscriber>>>,
}

impl Shared {
    fn publish(&self, topic: &str, payload: &Bytes) {
        if let Some(list) = self.subscribers.lock().get_mut(topic) {
            list.retain(|(to, handle)| to.send(Input::Deliver(*handle, payload.clone())).is_ok());
        }
    }
}

/// A connection, and the handle of a link on it.
type Subscriber = (mpsc::UnboundedSender<Input>, u32);

/// What a connection waits for.
enum Input {
    Frame(Box<Performative>, Bytes),
    Deliver(u32, Bytes),
    Gone,
}

impl Drop for Strict {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Strict {
    /// Starts a broker that accepts this SASL mechanism, and no topic with "forbidden" in it.
    pub(crate) async fn start(mechanism: &'static str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared::default());
        let held = shared.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = held.clone();
                tokio::spawn(async move {
                    if let Err(complaint) = serve(client, mechanism, &shared).await {
                        shared.complaints.lock().push(complaint);
                    }
                });
            }
        });
        Self { address, shared, task }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        self.shared.complaints.lock().clone()
    }
}

fn check(holds: bool, rule: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(rule.into()) }
}

async fn write(to: &mut OwnedWriteHalf, kind: u8, body: &impl Serialize, payload: &[u8]) {
    let body = serde_amqp::to_vec(body).unwrap();
    let length = u32::try_from(8 + body.len() + payload.len()).unwrap();
    let header = [2, kind, 0, 0];
    // The reader notices when the peer has closed.
    let _ = to.write_all(&[&length.to_be_bytes()[..], &header, &body, payload].concat()).await;
}

/// The body of a frame; `None` at the end of the stream.
async fn read(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let length = from.read_u32().await.ok()?;
    let mut frame = vec![0; length as usize - 4];
    from.read_exact(&mut frame).await.ok()?;
    Some(frame.split_off(4))
}

fn parse<T: DeserializeOwned>(from: &mut &[u8]) -> T {
    T::deserialize(&mut serde_amqp::de::Deserializer::new(IoReader::new(from))).unwrap()
}

async fn login(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, mechanism: &str) -> Result<(), String> {
    let mut header = [0; 8];
    from.read_exact(&mut header).await.map_err(|error| error.to_string())?;
    check(header == *b"AMQP\x03\x01\x00\x00", "a login first")?;
    to.write_all(&header).await.map_err(|error| error.to_string())?;
    write(to, 1, &SaslMechanisms { sasl_server_mechanisms: Array(vec![Symbol::from(mechanism)]) }, b"").await;
    let init = read(from).await.ok_or("a login")?;
    let init: SaslInit = parse(&mut &init[..]);
    check(init.mechanism == Symbol::from(mechanism), "a mechanism that was offered")?;
    write(to, 1, &SaslOutcome { code: SaslCode::Ok, additional_data: None }, b"").await;
    from.read_exact(&mut header).await.map_err(|error| error.to_string())?;
    check(header == *b"AMQP\x00\x01\x00\x00", "AMQP 1.0.0")?;
    to.write_all(&header).await.map_err(|error| error.to_string())
}

async fn serve(client: TcpStream, mechanism: &str, shared: &Arc<Shared>) -> Result<(), String> {
    client.set_nodelay(true).unwrap();
    let (mut from, mut to) = client.into_split();
    login(&mut from, &mut to, mechanism).await?;
    let (me, mut inputs) = mpsc::unbounded_channel();
    let frames = me.clone();
    tokio::spawn(async move {
        while let Some(frame) = read(&mut from).await {
            if !frame.is_empty() {
                let mut rest = &frame[..];
                let performative = Box::new(parse(&mut rest));
                let _ = frames.send(Input::Frame(performative, Bytes::copy_from_slice(rest)));
            }
        }
        let _ = frames.send(Input::Gone);
    });
    let (shared, links) = (shared.clone(), HashMap::new());
    let mut connection = Connection { to, me, shared, links, opened: false, sessions: 0, deliveries: 0 };
    let mut beat = tokio::time::interval(std::time::Duration::from_millis(500));
    loop {
        let input = tokio::select! {
            input = inputs.recv() => input.unwrap_or(Input::Gone),
            // An open is the first frame (AMQP 1.0 part 2.4.1), even before one that is empty.
            _ = beat.tick(), if connection.opened => {
                let _ = connection.to.write_all(&[0, 0, 0, 8, 2, 0, 0, 0]).await;
                continue;
            }
        };
        match input {
            Input::Frame(performative, payload) => {
                if !connection.take(*performative, payload).await? {
                    return Ok(());
                }
            }
            Input::Deliver(handle, payload) => connection.deliver(handle, payload).await,
            Input::Gone => return Ok(()),
        }
    }
}

/// A link, by its handle.
struct Link {
    topic: String,
    role: Role,
    credit: u32,
    count: u32,
    waiting: VecDeque<Bytes>,
}

struct Connection {
    to: OwnedWriteHalf,
    me: mpsc::UnboundedSender<Input>,
    shared: Arc<Shared>,
    opened: bool,
    sessions: u32,
    links: HashMap<u32, Link>,
    deliveries: u32,
}

impl Connection {
    async fn say(&mut self, performative: &impl Serialize) {
        write(&mut self.to, 0, performative, b"").await;
    }

    /// Processes a performative; returns whether to continue.
    async fn take(&mut self, performative: Performative, payload: Bytes) -> Result<bool, String> {
        match performative {
            Performative::Open(open) => self.open(&open).await?,
            Performative::Begin(_) => self.begin().await?,
            Performative::Attach(attach) => self.attach(attach).await?,
            Performative::Flow(flow) => self.flow(&flow).await,
            Performative::Transfer(transfer) => self.transfer(&transfer, &payload).await?,
            Performative::Disposition(disposition) => {
                check(
                    matches!(disposition.state, Some(DeliveryState::Accepted(_))),
                    "no outcome but accepted",
                )?;
            }
            Performative::Detach(detach) => {
                self.links.remove(&detach.handle.0);
                self.say(&Detach { error: None, ..detach }).await;
            }
            Performative::End(_) => self.say(&End { error: None }).await,
            Performative::Close(_) => {
                self.say(&Close { error: None }).await;
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn open(&mut self, open: &Open) -> Result<(), String> {
        let name = &open.container_id;
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || "%/._".contains(letter);
        check(
            (1..=256).contains(&name.len()) && name.chars().all(allowed),
            format!("no container is {name}"),
        )?;
        let is_new = self.shared.containers.lock().insert(name.clone());
        check(is_new, format!("a connection of {name} was here already"))?;
        check(open.idle_time_out.is_some_and(|timeout| timeout <= 2500), "heartbeats every few seconds")?;
        self.say(&Open { container_id: "strict".into(), hostname: None, ..open.clone() }).await;
        self.opened = true;
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), String> {
        self.sessions += 1;
        check(self.sessions == 1, "one session on a connection")?;
        let begin = Begin {
            remote_channel: Some(0),
            next_outgoing_id: 0,
            incoming_window: WINDOW,
            outgoing_window: WINDOW,
            handle_max: Handle(u32::MAX),
            offered_capabilities: None,
            desired_capabilities: None,
            properties: None,
        };
        self.say(&begin).await;
        Ok(())
    }

    async fn attach(&mut self, attach: Attach) -> Result<(), String> {
        let topic = check_attach(&attach)?;
        let handle = attach.handle.0;
        let forbidden = topic.contains("forbidden");
        let mut answer = attach.clone();
        let role = std::mem::replace(&mut answer.role, opposite(&attach.role));
        match role {
            Role::Sender if forbidden => answer.target = None,
            Role::Receiver if forbidden => answer.source = None,
            _ => {}
        }
        answer.initial_delivery_count = matches!(role, Role::Receiver).then_some(0);
        self.say(&answer).await;
        if forbidden {
            let error = Error::new(AmqpError::UnauthorizedAccess, "MQRC 2035".to_owned(), None);
            self.say(&Detach { handle: attach.handle, closed: true, error: Some(error) }).await;
            return Ok(());
        }
        if matches!(role, Role::Sender) {
            self.give_credit(handle, 0).await;
        } else {
            let subscriber = (self.me.clone(), handle);
            self.shared.subscribers.lock().entry(topic.clone()).or_default().push(subscriber);
        }
        self.links.insert(handle, Link { topic, role, credit: 0, count: 0, waiting: VecDeque::new() });
        Ok(())
    }

    async fn give_credit(&mut self, handle: u32, count: u32) {
        let flow = Flow {
            next_incoming_id: Some(0),
            incoming_window: WINDOW,
            next_outgoing_id: self.deliveries,
            outgoing_window: WINDOW,
            handle: Some(Handle(handle)),
            delivery_count: Some(count),
            link_credit: Some(CREDIT),
            available: None,
            drain: false,
            echo: false,
            properties: None,
        };
        self.say(&flow).await;
    }

    async fn flow(&mut self, flow: &Flow) {
        let Some(handle) = &flow.handle else { return };
        let Some(link) = self.links.get_mut(&handle.0) else { return };
        let (count, credit) = (flow.delivery_count.unwrap_or(0), flow.link_credit.unwrap_or(0));
        link.credit = count.wrapping_add(credit).wrapping_sub(link.count);
        self.drain(handle.0).await;
    }

    async fn transfer(&mut self, transfer: &Transfer, payload: &Bytes) -> Result<(), String> {
        let handle = transfer.handle.0;
        let link = self.links.get_mut(&handle).ok_or("a link that was attached")?;
        check(matches!(link.role, Role::Sender), "messages go over links that send")?;
        check(transfer.settled == Some(true), "messages settled when they are sent")?;
        check(!transfer.more && transfer.state.is_none(), "a message in one frame, in no transaction")?;
        let header: Header = parse(&mut &payload[..]);
        check(!header.durable, "nothing durable")?;
        check(header.ttl == Some(5000), "messages that live for five seconds")?;
        link.count += 1;
        let (topic, count) = (link.topic.clone(), link.count);
        self.shared.publish(&topic, payload);
        if count % (CREDIT / 2) == 0 {
            self.give_credit(handle, count).await;
        }
        Ok(())
    }

    async fn deliver(&mut self, handle: u32, payload: Bytes) {
        if let Some(link) = self.links.get_mut(&handle) {
            link.waiting.push_back(payload);
            self.drain(handle).await;
        }
    }

    /// Sends the waiting messages, as far as there is credit.
    async fn drain(&mut self, handle: u32) {
        let Some(link) = self.links.get_mut(&handle) else { return };
        while link.credit > 0
            && let Some(payload) = link.waiting.pop_front()
        {
            (link.credit, link.count) = (link.credit - 1, link.count.wrapping_add(1));
            let transfer = Transfer {
                handle: Handle(handle),
                delivery_id: Some(self.deliveries),
                delivery_tag: Some(self.deliveries.to_be_bytes().to_vec().into()),
                message_format: Some(0),
                settled: Some(true),
                more: false,
                rcv_settle_mode: None,
                state: None,
                resume: false,
                aborted: false,
                batchable: false,
            };
            self.deliveries = self.deliveries.wrapping_add(1);
            write(&mut self.to, 0, &transfer, &payload).await;
        }
    }
}

fn opposite(role: &Role) -> Role {
    match role {
        Role::Sender => Role::Receiver,
        Role::Receiver => Role::Sender,
    }
}

/// The topic of a link; the error is the rule that it breaks.
fn check_attach(attach: &Attach) -> Result<String, String> {
    let target = attach.target.as_deref().map(|TargetArchetype::Target(target)| target);
    let plain = |target: &Target| !target.dynamic && target.durable == TerminusDurability::None;
    check(target.is_none_or(plain), "a target that is neither made up nor durable")?;
    let source = attach.source.as_deref().ok_or("a source")?;
    check(!source.dynamic && source.durable == TerminusDurability::None, "a source that is not durable")?;
    check(source.filter.is_none() && attach.properties.is_none(), "nothing in addition")?;
    check(attach.snd_settle_mode == SenderSettleMode::Settled, "messages settled when they are sent")?;
    check(attach.rcv_settle_mode == ReceiverSettleMode::First, "settled once")?;
    let (address, capabilities, name) = match attach.role {
        Role::Sender => {
            let target = target.ok_or("a target")?;
            (&target.address, &target.capabilities, attach.name.as_str())
        }
        Role::Receiver => {
            let name = attach.name.strip_prefix("private:").unwrap_or(&attach.name);
            (&source.address, &source.capabilities, name)
        }
    };
    let topic = capabilities.as_ref().is_some_and(|Array(list)| list[..] == [Symbol::from("topic")]);
    check(topic, "the capability topic")?;
    check(address.as_deref() == Some(name), format!("links named by their topic, not {name}"))?;
    check(!name.contains([':', '/', '#', '+', '*']), format!("a topic without wildcards, not {name}"))?;
    Ok(name.to_owned())
}

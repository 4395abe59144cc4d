//! WebSocket client (RFC 6455): opens a connection per WebSocket, sends messages at a rate and
//! expects each of them back.
//!
//! Owns: one WebSocket from handshake to close. Does not own: when it starts.
//!
//! 1. The handshake is a prepared request. The WebSocket is open when its 101 has arrived.
//! 2. Messages are due at fixed times, whatever came back until then. If the peer does not read, a
//!    round trip counts from the time at which its message was due.
//! 3. When every message has come back, the client closes. A close before that is the peer's.

use std::collections::VecDeque;
use std::rc::Rc;

use lab_analysis::units::{nanos, seconds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};

use super::frame::{self, FrameReader, Received};
use super::observer::EventTimes;
use super::{Exchange, WebSocketSettings};
use crate::load::ending::CONNECT_FAILURE_PAUSE;
use crate::load::response::{ProtocolViolation, ResponseReader};
use crate::load::{Deadline, Failure, Io, Random, RequestFault, TargetSession};

/// Bytes read at once.
const READ_SIZE: usize = 16 * 1024;
/// Beginning of every message of the client, which tells it from those of the server.
const OWN: &[u8] = b"lab ";

/// The worker of one slot: one WebSocket after the other.
pub(crate) struct Worker {
    pub(crate) session: Rc<TargetSession>,
    /// Prepared handshakes, one per token.
    pub(crate) requests: Rc<[Box<[u8]>]>,
    pub(crate) slot: usize,
    pub(crate) closed: bool,
    pub(crate) random: Random,
}

impl Worker {
    pub(crate) async fn run(mut self) {
        let deadline = Deadline::new();
        let session = Rc::clone(&self.session);
        let Exchange::WebSocket(settings) = &session.exchange else { return };
        while let Some(arrival) = session.next(self.slot).await {
            let started = session.start(&arrival);
            let until = started.saturating_add(session.timeout);
            let request = &self.requests[arrival.variant];
            let mut socket = Socket {
                settings,
                times: EventTimes::new(&session, &arrival, started),
                frames: FrameReader::default(),
                random: &mut self.random,
                is_open: false,
                sent: 0,
                away: VecDeque::new(),
                written: started,
                last_message: started,
                last_received: started,
                longest_silence: 0,
                closing: false,
            };
            let work = socket.run(&session, request);
            let ending = deadline.run_until(&session.clock, until, work).await;
            let ending = ending.unwrap_or_else(|| Err(socket.timeout()));
            if socket.is_open {
                socket.times.ended(&ending, socket.silent_since());
            }
            let pause = self.closed && ending.as_ref().is_err_and(|failure| failure.fault.wants_pause());
            session.end(&arrival, started, ending);
            if pause {
                tokio::time::sleep(CONNECT_FAILURE_PAUSE).await;
            }
        }
    }
}

/// One WebSocket.
struct Socket<'a> {
    settings: &'a WebSocketSettings,
    times: EventTimes<'a>,
    frames: FrameReader,
    random: &'a mut Random,
    is_open: bool,
    /// Messages sent.
    sent: u32,
    /// Messages that have not come back: their numbers, and from when their round trips count.
    away: VecDeque<(u32, u64)>,
    /// When the last message was written.
    written: u64,
    /// When a message was last sent or received.
    last_message: u64,
    /// When a message was last received.
    last_received: u64,
    /// Longest time between two messages so far.
    longest_silence: u64,
    /// Whether the client has closed.
    closing: bool,
}

impl Socket<'_> {
    async fn run(&mut self, session: &TargetSession, request: &[u8]) -> Result<u16, Failure> {
        let io = session.open().await?;
        let (mut from, mut to) = tokio::io::split(io);
        to.write_all(request).await.map_err(|error| Failure::io(&error))?;
        to.flush().await.map_err(|error| Failure::io(&error))?;
        let status = self.open(&mut from, session).await?;
        if status != 101 {
            return if status < 400 {
                let text = format!("the handshake was answered {status} instead of 101");
                Err(Failure::new(RequestFault::Protocol, text))
            } else {
                Ok(status)
            };
        }
        self.is_open = true;
        self.times.opened();
        self.talk(&mut from, &mut to, session).await?;
        Ok(status)
    }

    /// Reads the response to the handshake. Returns its status.
    async fn open(&mut self, from: &mut ReadHalf<Io>, session: &TargetSession) -> Result<u16, Failure> {
        let mut reader = ResponseReader::with_events();
        loop {
            let read = from.read(reader.space()).await.map_err(|error| Failure::io(&error))?;
            if read == 0 {
                let text = "connection closed before the response to the handshake";
                return Err(Failure::new(RequestFault::Closed, text));
            }
            session.count_received(read);
            let done = reader.filled(read);
            let done = done.map_err(|ProtocolViolation(why)| Failure::new(RequestFault::Protocol, why))?;
            let Some(answer) = done else { continue };
            let captured = reader.take_captured();
            if answer.status == 101 {
                if !accepts(&captured.head, session.websocket_accept.as_bytes()) {
                    let text = "the 101 does not accept the key of the handshake";
                    return Err(Failure::new(RequestFault::Protocol, text));
                }
                self.frames.push(&captured.content);
            }
            return Ok(answer.status);
        }
    }

    /// Sends messages when they are due, and reads until the WebSocket is closed.
    async fn talk(
        &mut self,
        from: &mut ReadHalf<Io>,
        to: &mut WriteHalf<Io>,
        session: &TargetSession,
    ) -> Result<(), Failure> {
        let begun = self.times.now();
        (self.last_message, self.last_received) = (begun, begun);
        let every = nanos(self.settings.every);
        let mut buffer = vec![0; READ_SIZE];
        let mut out = Vec::new();
        loop {
            if self.receive(&mut out)? {
                return Ok(());
            }
            if self.sent == self.settings.messages && self.away.is_empty() && !self.closing {
                self.closing = true;
                frame::write_close(&mut out, self.random);
            }
            let due = begun.saturating_add(every.saturating_mul(u64::from(self.sent)));
            if self.sent < self.settings.messages && self.times.now() >= due {
                self.message(&mut out, due);
            }
            if !out.is_empty() {
                to.write_all(&out).await.map_err(|error| Failure::io(&error))?;
                to.flush().await.map_err(|error| Failure::io(&error))?;
                out.clear();
                self.written = self.times.now();
                continue;
            }
            let idle = self.sent == self.settings.messages;
            tokio::select! {
                biased;
                read = from.read(&mut buffer) => match read {
                    Ok(0) | Err(_) if self.closing => return Ok(()),
                    Ok(0) => return Err(self.closed_by_peer(None)),
                    Ok(read) => {
                        session.count_received(read);
                        self.frames.push(&buffer[..read]);
                    }
                    Err(error) => {
                        self.note_idle();
                        return Err(Failure::io(&error));
                    }
                },
                () = tokio::time::sleep_until(session.clock.instant(due)), if !idle => {}
            }
        }
    }

    /// Appends the next message.
    fn message(&mut self, out: &mut Vec<u8>, due: u64) {
        let mut content = [OWN, self.sent.to_string().as_bytes(), b" "].concat();
        content.resize(content.len().max(self.settings.size), b'x');
        frame::write_text(out, &content, self.random);
        self.note_message();
        // A message that is late because the peer did not read counts from when it was due. One
        // that is late because of the client's own timer does not: it waited for nothing.
        let from = if self.written > due { due } else { self.last_message };
        self.away.push_back((self.sent, from));
        self.sent += 1;
    }

    /// Handles what has arrived. Returns `true` if the WebSocket is closed.
    fn receive(&mut self, out: &mut Vec<u8>) -> Result<bool, Failure> {
        loop {
            let next = self.frames.next().map_err(|why| Failure::new(RequestFault::Protocol, why))?;
            match next {
                None => return Ok(false),
                Some(Received::Ping(content)) => frame::write_pong(out, &content, self.random),
                Some(Received::Close(_)) if self.closing => return Ok(true),
                Some(Received::Close(code)) => return Err(self.closed_by_peer(code)),
                Some(Received::Message(content)) => self.arrived(&content),
            }
        }
    }

    /// Since when the peer has been silent although something is expected: a message that is to come
    /// back, or another event. However many messages are away, it is one silence.
    fn silent_since(&self) -> Option<u64> {
        let expected = self.away.front().map(|(_, due)| *due).or_else(|| self.times.last_event());
        expected.map(|since| since.max(self.last_received))
    }

    fn arrived(&mut self, content: &[u8]) {
        self.note_message();
        let (since, now) = (self.silent_since(), self.last_message);
        if let Some(since) = since {
            self.times.record(|streams| streams.record_silence(since, now));
        }
        self.last_received = now;
        let number = content.strip_prefix(OWN).and_then(|rest| {
            let digits = rest.split(|byte| *byte == b' ').next()?;
            std::str::from_utf8(digits).ok()?.parse::<u32>().ok()
        });
        let Some(number) = number else {
            self.times.arrived(1, content.len());
            return;
        };
        let Some(place) = self.away.iter().position(|(sent, _)| *sent == number) else { return };
        if let Some((_, due)) = self.away.remove(place) {
            self.times.record(|streams| streams.record_round_trip(due, now));
        }
    }

    /// Notes that a message is sent or received now.
    fn note_message(&mut self) {
        let now = self.times.now();
        self.longest_silence = self.longest_silence.max(now.saturating_sub(self.last_message));
        self.last_message = now;
    }

    /// Notes for how long there was no message when the peer closed, unless an earlier silence was
    /// longer: that one would have been the time to close for it.
    fn note_idle(&self) -> u64 {
        let idle = self.times.now().saturating_sub(self.last_message);
        if idle >= self.longest_silence {
            self.times.record(|streams| streams.idle_at_close.record(idle));
        }
        idle
    }

    fn closed_by_peer(&self, code: Option<u16>) -> Failure {
        let idle = seconds(self.note_idle());
        let with =
            code.map_or_else(|| "without a close frame".to_owned(), |code| format!("with code {code}"));
        let text = format!(
            "the peer closed the WebSocket {with} after {idle:.3} s without a message, {} of {} sent",
            self.sent, self.settings.messages
        );
        Failure::new(RequestFault::Closed, text)
    }

    fn timeout(&self) -> Failure {
        let text = match (self.is_open, self.away.len()) {
            (false, _) => "the WebSocket was not open within the timeout".to_owned(),
            (true, 0) => "the peer did not close within the timeout".to_owned(),
            (true, away) => format!("{away} messages had not come back within the timeout"),
        };
        Failure::new(RequestFault::Timeout, text)
    }
}

/// Whether a head of a 101 has this `Sec-WebSocket-Accept`.
fn accepts(head: &[u8], wanted: &[u8]) -> bool {
    let name = b"sec-websocket-accept:";
    head.split(|byte| *byte == b'\n').any(|line| {
        line.split_at_checked(name.len())
            .is_some_and(|(field, value)| field.eq_ignore_ascii_case(name) && value.trim_ascii() == wanted)
    })
}

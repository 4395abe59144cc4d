//! Exchange tables: the TOML form of streams and WebSockets of a load.
//!
//! Owns: keys, their defaults and permitted values. Does not own: the checked form
//! ([`lab_load::load::Exchange`]).

use std::time::Duration;

use lab_analysis::amount;
use lab_load::load::{Exchange, StreamForm, StreamSettings, WebSocketSettings};
use serde::Deserialize;

/// Default time between two events from which it counts as a stall.
const STALL: Duration = Duration::from_millis(200);
/// Default content of a WebSocket message in bytes.
const MESSAGE_SIZE: usize = 64;
/// Largest content of a WebSocket message in bytes.
const MAX_MESSAGE_SIZE: usize = 65_536;

/// A stream as it is in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamTable {
    form: FormName,
    events: Option<u64>,
    stall: Option<String>,
}

/// A WebSocket as it is in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WebSocketTable {
    messages: u32,
    every: String,
    size: Option<usize>,
    stall: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FormName {
    Sse,
    Lines,
    Grpc,
}

/// What follows the head of each request of a load with this timeout.
///
/// # Errors
/// The wrong key, and the reason.
pub(super) fn exchange(
    stream: Option<&StreamTable>,
    websocket: Option<&WebSocketTable>,
    timeout: Duration,
) -> Result<Exchange, (&'static str, String)> {
    match (stream, websocket) {
        (None, None) => Ok(Exchange::Request),
        (Some(stream), None) => {
            stream.settings().map(Exchange::Stream).map_err(|message| ("stream", message))
        }
        (None, Some(socket)) => {
            let settings = socket.settings(timeout).map_err(|message| ("websocket", message))?;
            Ok(Exchange::WebSocket(settings))
        }
        (Some(_), Some(_)) => Err(("stream", "cannot be combined with `websocket`".to_owned())),
    }
}

impl StreamTable {
    fn settings(&self) -> Result<StreamSettings, String> {
        if self.events == Some(0) {
            return Err("`events` must be above 0".to_owned());
        }
        let form = match self.form {
            FormName::Sse => StreamForm::ServerSentEvents,
            FormName::Lines => StreamForm::Lines,
            FormName::Grpc => StreamForm::Grpc,
        };
        Ok(StreamSettings { form, stall: stall(self.stall.as_deref())?, events: self.events })
    }
}

impl WebSocketTable {
    fn settings(&self, timeout: Duration) -> Result<WebSocketSettings, String> {
        if self.messages == 0 {
            return Err("`messages` must be above 0".to_owned());
        }
        let every = amount::duration(&self.every).map_err(|message| format!("`every`: {message}"))?;
        if every.is_zero() {
            return Err("`every` must be above 0".to_owned());
        }
        let size = self.size.unwrap_or(MESSAGE_SIZE);
        if !(1..=MAX_MESSAGE_SIZE).contains(&size) {
            return Err(format!("`size` must be from 1 to {MAX_MESSAGE_SIZE} bytes"));
        }
        let stall = stall(self.stall.as_deref())?;
        let settings = WebSocketSettings { messages: self.messages, every, size, stall };
        if settings.length() >= timeout {
            return Err(format!(
                "`messages` times `every` are {} s, but `timeout` is {} s: set a longer `timeout`",
                settings.length().as_secs_f64(),
                timeout.as_secs_f64()
            ));
        }
        Ok(settings)
    }
}

fn stall(text: Option<&str>) -> Result<Duration, String> {
    let stall = text.map(amount::duration).transpose().map_err(|message| format!("`stall`: {message}"))?;
    match stall {
        Some(Duration::ZERO) => Err("`stall` must be above 0".to_owned()),
        stall => Ok(stall.unwrap_or(STALL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Exchange, (&'static str, String)> {
        #[derive(Deserialize)]
        struct Both {
            stream: Option<StreamTable>,
            websocket: Option<WebSocketTable>,
        }
        let both: Both = toml::from_str(text).unwrap();
        exchange(both.stream.as_ref(), both.websocket.as_ref(), Duration::from_secs(10))
    }

    #[test]
    fn exchanges_have_defaults() {
        assert_eq!(read(""), Ok(Exchange::Request));
        let stream = StreamSettings { form: StreamForm::Grpc, stall: STALL, events: Some(5) };
        assert_eq!(read("stream = { form = 'grpc', events = 5 }"), Ok(Exchange::Stream(stream)));
        let socket = WebSocketSettings {
            messages: 3,
            every: Duration::from_millis(20),
            size: 64,
            stall: Duration::from_secs(1),
        };
        assert_eq!(
            read("websocket = { messages = 3, every = '20ms', stall = '1s' }"),
            Ok(Exchange::WebSocket(socket))
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, key, words) in [
            ("stream = { form = 'sse', events = 0 }", "stream", "`events`"),
            ("stream = { form = 'sse', stall = '0s' }", "stream", "`stall`"),
            ("stream = { form = 'sse', stall = '5' }", "stream", "`stall`"),
            ("websocket = { messages = 0, every = '1s' }", "websocket", "`messages`"),
            ("websocket = { messages = 2, every = '0s' }", "websocket", "`every`"),
            ("websocket = { messages = 2, every = '1s', size = 0 }", "websocket", "`size`"),
            ("websocket = { messages = 11, every = '1s' }", "websocket", "longer `timeout`"),
            (
                "stream = { form = 'sse' }\nwebsocket = { messages = 1, every = '1s' }",
                "stream",
                "cannot be combined",
            ),
        ] {
            let (place, message) = read(text).unwrap_err();
            assert_eq!(place, key, "{text}");
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}

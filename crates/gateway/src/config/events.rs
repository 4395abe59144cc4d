//! What somebody elsewhere tells of what happened there.

use std::time::Duration;

use zeroize::Zeroizing;

use super::{Issuer, Server};
use crate::url::Url;

/// A transmitter of security events.
#[derive(Clone)]
pub struct Transmitter {
    /// Whose tokens they come in, with its keys and the audiences that we are to it.
    pub issuer: Issuer,
    /// Whose tokens and sessions it speaks of, by `iss`.
    pub tokens_of: Vec<Box<str>>,
    /// For how long these tokens are believed at most.
    pub longest: Duration,
    /// How long what it told is remembered.
    pub kept: Duration,
    /// How its tokens come.
    pub way: EventsWay,
}

impl Transmitter {
    /// Whether its tokens are pushed there.
    pub fn is_pushed_to(&self, authority: &str, path: &str) -> bool {
        matches!(&self.way, EventsWay::Pushed { authority: at, path: below, .. }
            if **at == *authority && **below == *path)
    }
}

/// How tokens of a transmitter come.
#[derive(Clone)]
pub enum EventsWay {
    /// It sends them (RFC 8935).
    Pushed {
        /// Where: host and port as requests are known by.
        authority: Box<str>,
        /// And the path.
        path: Box<str>,
        /// What it shows: one of these.
        tokens: Vec<Zeroizing<String>>,
    },
    /// They are fetched (RFC 8936).
    Fetched {
        /// Where.
        url: Url,
        /// How that is reached, and as whom.
        server: Server,
        /// The pause after an answer that came at once and had nothing.
        interval: Duration,
        /// Tokens of one answer, at most.
        max_events: u32,
    },
}

//! The whole gateway, from its configuration file to its sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod dataplane;
mod rooms;

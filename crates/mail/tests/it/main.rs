//! Conversations with a played server.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod conversations;
mod played;

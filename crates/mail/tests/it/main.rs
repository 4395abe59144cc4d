//! Conversations with a played server.

mod conversations;
mod played;

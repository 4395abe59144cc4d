//! The data plane driven over real sockets: raw bytes in, judged by what the upstream received.

mod canonical;
mod framing;
mod harness;
mod identity;

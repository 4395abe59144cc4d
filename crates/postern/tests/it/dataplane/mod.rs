//! The data plane driven over real sockets: raw bytes in, judged by what the upstream received.

mod canonical;
mod exchange;
mod framing;
mod harness;
mod identity;
mod limits;
mod upgrade;

//! The data plane: accepts requests, finds out who is calling, asks `auth` whether they may, forwards.
//!
//! Owns: sockets and protocols ([`listen`], [`server`], `http1`, `http2`, [`tls`], [`proxy_protocol`]); credentials
//! verified and remembered ([`authenticate`], [`cache`], [`outbound`]), and taken back ([`followed`]), by what
//! issuers elsewhere tell of their own accord too ([`events`]); browsers logged in ([`login`]); what
//! Kubernetes says ([`review`]) and what it takes back ([`watch`]); the way up and back (`pipeline`, `forward`, `relay`,
//! `stay`, `upstream`); what other proxies are told that ask before they forward (`ext_authz`, `forward_auth`, `vouch`); and what is
//! told of it all ([`metrics`], [`access_log`], [`trace`], [`admin`]).
//!
//! Does not own: what a request means and who may what (`auth`), the configuration's text (the binary).
//!
//! Flow of a request: `server → http1 | http2 → pipeline::admit → Permit → forward → relay ⇄ upstream`. One
//! thread per core; what a request needs is on its thread, and a cached decision waits for nothing.

pub mod access_log;
pub mod admin;
mod answer;
pub mod asked;
pub mod assertion;
pub mod authenticate;
pub mod authorizer;
mod buffer;
pub mod cache;
pub mod cgroup;
pub mod clock;
mod collect;
pub mod config;
mod deadline;
mod dial;
pub mod events;
mod ext_authz;
mod fault;
pub mod followed;
mod forward;
mod forward_auth;
pub mod http1;
mod http2;
mod inbound;
mod io;
mod labels;
mod leg;
pub mod listen;
pub mod login;
pub mod metrics;
pub mod outbound;
pub mod passage;
mod peer;
pub mod phases;
mod pipeline;
pub mod process;
pub mod proxy_protocol;
mod record;
mod relay;
pub mod review;
pub mod server;
mod stay;
pub mod tls;
pub mod trace;
mod under_way;
mod upstream;
pub mod url;
pub mod vouch;
pub mod watch;
mod worker;

//! The data plane: takes a request, has its caller found out, asks `auth` whether they may, forwards.
//!
//! Owns: the loops that serve a connection (`serve`, [`server`]); what becomes of a request (`pipeline`), the answers that refuse it
//! (`refusal`); rights asked of Kubernetes ([`review`]) and of authorizers ([`authorizer`], `authorizer_query`); the way up and back
//! ([`passage`], `forward`, `relay`, `stay`); what other proxies are told that ask before they forward (`ext_authz`, `forward_auth`,
//! [`vouch`]); a worker's state (`worker`, `record`, `under_way`), the administration ([`admin`]).
//!
//! Does not own: connections and HTTP (`http_engine`), credentials (`credentials`), logging in (`login`), metrics, traces and the
//! access log (`telemetry`), what a request means and who may what (`auth`), the configuration's text (`config`).
//!
//! Flow of a request: `server → serve → pipeline::admit → Permit → forward → relay ⇄ upstream`. One thread per core; what a request
//! needs is on its thread, and a cached decision waits for nothing.

pub mod admin;
pub mod auth_response;
pub mod authorizer;
mod authorizer_query;
pub mod authz_question_parse;
pub mod config;
mod exchange_error;
mod ext_authz;
mod forward;
mod forward_auth;
pub mod forward_filter;
mod in_flight;
mod peer;
mod pipeline;
mod record;
mod refusal;
mod relay;
pub mod review;
mod serve;
pub mod server;
mod stream_guard;
mod worker;

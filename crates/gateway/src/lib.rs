//! The data plane: receives a request, authenticates its caller, has `auth` authorize it, forwards
//! it.
//!
//! Owns:
//!
//! - the connection loops (`serve`, [`server`]);
//! - the processing of a request (`pipeline`) and the responses that refuse it (`refusal`);
//! - access reviews of Kubernetes ([`review`]) and external authorizers ([`authorizer`],
//!   `authorizer_query`);
//! - requests that pages of other sites cause ([`foreign_page`]);
//! - responses of the gateway itself ([`local_action`], [`cors`]) and edits of others
//!   (`response_edits`, `external_path`);
//! - forwarding and the response ([`forward_filter`], `forward`, `relay`, `stream_guard`);
//! - authorization checks of other proxies (`ext_authz`, `forward_auth`, [`auth_response`]);
//! - what proxies in front report about a request (`trusted_proxy`);
//! - a worker's state (`worker`, `record`, `in_flight`) and the admin listener ([`admin`]).
//!
//! Does not own: connections and HTTP (`http_engine`), credentials (`credentials`), login
//! (`login`), metrics, traces and the access log (`telemetry`), the canonical request and the
//! decision (`auth`), the configuration's text (`config`).
//!
//! Flow of a request: `server → serve → pipeline::admit → Permit → forward → relay ⇄ upstream`.
//! There is one thread per core. All state that a request needs is on its thread, and a cached
//! decision never waits.

pub mod admin;
mod affinity;
pub mod auth_response;
pub mod authorizer;
mod authorizer_query;
pub mod authz_question_parse;
mod block_results;
pub mod config;
pub mod cors;
mod envoy_authz;
pub mod error_page;
mod exchange_error;
mod ext_authz;
mod external_path;
pub mod foreign_page;
mod forward;
mod forward_auth;
pub mod forward_filter;
mod forwarded_fields;
mod grpc_reply;
mod in_flight;
pub mod local_action;
mod mirror;
mod mirror_body;
mod peer;
mod per_worker;
mod pipeline;
mod record;
mod refusal;
mod refusal_reply;
mod relay;
mod response_edits;
mod retry;
pub mod review;
mod serve;
pub mod server;
mod stream_guard;
mod trusted_proxy;
pub mod upstream_status;
mod worker;

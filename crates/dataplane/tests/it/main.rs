//! The data plane over real sockets: raw bytes in, checked by what the upstream receives.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(
    clippy::assigning_clones,
    clippy::float_cmp,
    clippy::format_collect,
    clippy::large_stack_arrays,
    clippy::needless_pass_by_value,
    clippy::similar_names,
    reason = "a test is read more often than it is run: plain beats thrifty"
)]

mod ambiguous;
mod authorizer;
mod basic;
mod canonical;
mod destinations;
mod endpoints;
mod error_pages;
mod exchange;
mod ext_authz;
mod forward_auth;
mod framing;
mod grpc_refusals;
mod http2;
mod http2_frames;
mod identity;
mod lifecycle;
mod limits;
mod listener_tls;
mod mirrors;
mod opaque;
mod predecessors;
mod repeated_blocks;
mod repeated_fields;
mod response_headers;
mod review;
mod rewrites;
mod routes_by_step;
mod rules;
mod telemetry;
mod tls;
mod tokens;
mod trusted_proxies;
mod unix;
mod upgrade;
mod upstream_http2;
mod watch;

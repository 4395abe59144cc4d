//! The data plane over real sockets: raw bytes in, checked by what the upstream receives.

mod ambiguous;
mod authorizer;
mod canonical;
mod exchange;
mod expiry;
mod ext_authz;
mod forward_auth;
mod framing;
mod harness;
mod http2;
mod http2_frames;
mod identity;
mod lifecycle;
mod limits;
mod login;
mod opaque;
mod predecessors;
mod review;
mod security_events;
mod telemetry;
mod tls;
mod tokens;
mod unix;
mod upgrade;
mod upstream_http2;
mod watch;

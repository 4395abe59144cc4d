//! The data plane driven over real sockets: raw bytes in, judged by what the upstream received.

mod canonical;
mod exchange;
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
mod login_fronts;
mod login_openshift;
mod login_provider;
mod login_revoked;
mod opaque;
mod predecessors;
mod review;
mod telemetry;
mod tls;
mod tokens;
mod unix;
mod upgrade;
mod upstream_http2;
mod watch;

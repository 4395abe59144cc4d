//! Connection loops: serve downstream connections over HTTP/1 and HTTP/2, and gRPC calls.
//!
//! Owns: reading a request from a connection, running the pipeline, writing the response. Does not
//! own: the codecs (`http_engine`), decisions ([`crate::pipeline`]), forwarding
//! ([`crate::forward`]).

pub(crate) mod grpc;
pub(crate) mod http1;
pub(crate) mod http2;

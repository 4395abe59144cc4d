//! The loops that serve a downstream connection: HTTP/1, HTTP/2, and calls over gRPC.
//!
//! Owns: reading a request off a connection, taking it through the pipeline, writing the answer. Does not own: the codecs
//! (`http_engine`), decisions ([`crate::pipeline`]), the way up ([`crate::forward`]).

pub(crate) mod grpc;
pub(crate) mod http1;
pub(crate) mod http2;

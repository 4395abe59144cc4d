//! Envoy's external authorization over gRPC (`envoy.service.auth.v3.Authorization`): what both sides
//! of it send.
//!
//! Owns: the path of the method, the messages, the framing of gRPC. Does not own: answering a check
//! ([`crate::ext_authz`]), asking another service ([`crate::authorizer`]).

pub(crate) mod grpc;
pub(crate) mod message;

/// Path of the method.
pub(crate) const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

//! Behaviour of the controller, by area. Cases follow the conformance suite of the Gateway API
//! 1.6.3, whose names are in the comments.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod access_policies;
mod attachment;
mod backends;
mod cluster;
mod data_plane;
mod gateways;
mod host_table;
mod ingress_hosts;
mod ingresses;
mod listener_sets;
mod objects;
mod openshift_routes;
mod properties;
mod rules;
mod scale;

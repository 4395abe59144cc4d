//! The modules of the OpenID Foundation's conformance plans, each as a test of the same name: what the module does and demands,
//! over real HTTP, with a browser's cookies and forms.

mod back_channel;
mod basic;
mod config;
mod rp_initiated_logout;

//! Modules of the OpenID Foundation's conformance plans. Each test has the name of its module and
//! does what that requires, over HTTP, with a browser's cookies and forms.

mod back_channel;
mod basic;
mod config;
mod rp_initiated_logout;

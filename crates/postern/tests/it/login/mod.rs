//! Login with a browser: with a simulated provider, and with sessions in cookies and in a database.

mod answers;
mod beginning;
mod broken;
mod client_proof;
mod discovery;
mod fixture;
mod framed;
mod front_proxies;
mod hosts;
mod logout;
mod open_session;
mod openshift;
mod pages;
pub(super) mod provider;
mod renewal;
mod revoked;
mod session;
mod sharing;
mod websocket;

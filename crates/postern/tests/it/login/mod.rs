//! Login with a browser: with a simulated provider, and with sessions in cookies and in a database.

mod answers;
mod beginning;
mod broken;
mod ending;
mod fronts;
mod lasting;
mod openshift;
pub(super) mod provider;
mod renewal;
mod revoked;
mod session;
mod stage;
mod websocket;

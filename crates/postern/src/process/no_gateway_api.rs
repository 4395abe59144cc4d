//! A build without the Gateway API: the table `[gateway_api]` is an error at the start.

use std::sync::Arc;

use cluster::FileBase;
use config::{GatewayApiSettings, RouteChecker};
use gateway::config::Config;
use gateway::server::Gateway;

use super::Process;
use crate::exit::Failure;

/// No cluster: there is no value of this type.
pub(super) enum GatewayApi {}

impl GatewayApi {
    pub(super) fn start(_: GatewayApiSettings, _: (FileBase, u64), _: &Process) -> Result<(), Failure> {
        Err(Failure::new(
            "`[gateway_api]`: this postern was built without it; images and packages have it, or build with \
             `--features kubernetes`",
        ))
    }

    pub(super) fn hold(
        &self,
        _: RouteChecker,
        _: &mut Config,
        _: impl FnOnce() -> Result<Arc<Config>, Failure>,
    ) -> Result<HeldCluster<'_>, Failure> {
        match *self {}
    }

    pub(super) fn unready(&self) -> Option<String> {
        match *self {}
    }

    pub(super) fn notes(&self) -> Vec<String> {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "as in a build with the Gateway API")]
    pub(super) async fn close(&self) {
        match *self {}
    }
}

pub(super) enum HeldCluster<'c> {
    #[expect(dead_code, reason = "there is no cluster")]
    None(std::convert::Infallible, std::marker::PhantomData<&'c ()>),
}

impl HeldCluster<'_> {
    pub(super) fn commit(self, _: &Gateway) {
        let Self::None(never, _) = self;
        match never {}
    }
}

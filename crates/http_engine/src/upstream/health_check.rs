//! Health check: asks an endpoint at intervals whether it can serve.
//!
//! Owns: the request of a check, what its outcome means for the health of the endpoint, and the log
//! line for each change. Does not own: which endpoints are checked ([`super::discovery`]), what
//! their health means for requests ([`super::balance`]).

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{HeaderValue, Request, Uri, Version};
use http_body_util::Empty;
use hyper::client::conn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use outage::Outage;

use super::connect::{ConnectError, open_stream};
use super::endpoints::{ActiveEndpoint, Health};
use crate::config::{HealthCheck, Upstream, UpstreamProtocol};
use crate::endpoint_stats::HealthStats;

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the check got no answer: {0}")]
    Exchange(#[from] hyper::Error),
    #[error("the check got status {0}")]
    Status(u16),
    #[error("the check got no answer within {0:?}")]
    Timeout(Duration),
    #[error("the check cannot be written: {0}")]
    Request(#[from] http::Error),
}

/// Health of an endpoint, and the consecutive outcomes that speak against it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Streak {
    health: Health,
    against: u32,
}

impl Streak {
    /// Notes the outcome of a check. The first one decides alone.
    fn note(&mut self, passed: bool, check: &HealthCheck) {
        let (health, needed) = match (self.health, passed) {
            (Health::Unchecked, true) => (Health::Healthy, 1),
            (Health::Unchecked, false) => (Health::Unhealthy, 1),
            (Health::Healthy, false) => (Health::Unhealthy, check.unhealthy_after),
            (Health::Unhealthy, true) => (Health::Healthy, check.healthy_after),
            (Health::Healthy, true) | (Health::Unhealthy, false) => {
                self.against = 0;
                return;
            }
        };
        self.against += 1;
        if self.against >= needed {
            *self = Self { health, against: 0 };
        }
    }
}

/// Checks an endpoint until the task is aborted, and passes each change of its health to `report`.
pub(super) async fn run(
    upstream: Arc<Upstream>,
    check: HealthCheck,
    endpoint: ActiveEndpoint,
    stats: Arc<dyn HealthStats>,
    report: impl Fn(Health),
) {
    let label = endpoint.label(&upstream);
    let outage = Outage::new(format!("health of endpoint {label} of upstream {}", upstream.name))
        .with_effect("it receives no requests");
    let random = SystemRandom::new();
    let mut streak = Streak::default();
    loop {
        let outcome = match tokio::time::timeout(check.timeout, probe(&upstream, &check, &endpoint)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CheckError::Timeout(check.timeout)),
        };
        stats.checked(outcome.is_ok());
        let before = streak.health;
        streak.note(outcome.is_ok(), &check);
        match (&outcome, streak.health) {
            (Err(why), Health::Unhealthy) => outage.failed(why),
            (Err(why), _) => tracing::debug!(endpoint = label, %why, "health check failed"),
            (Ok(()), Health::Healthy) => outage.succeeded(),
            (Ok(()), _) => {}
        }
        if streak.health != before {
            stats.set_down(streak.health == Health::Unhealthy);
            report(streak.health);
        }
        let mut byte = [0];
        // Without randomness the checks keep their rhythm.
        let _ = random.fill(&mut byte);
        tokio::time::sleep(jittered(check.interval, byte[0])).await;
    }
}

/// The interval, changed by up to a tenth, so that the checks of many gateways spread.
fn jittered(interval: Duration, random: u8) -> Duration {
    interval.mul_f64(0.9 + 0.2 * f64::from(random) / f64::from(u8::MAX))
}

/// Sends one check and reads the status of its response.
async fn probe(
    upstream: &Upstream,
    check: &HealthCheck,
    endpoint: &ActiveEndpoint,
) -> Result<(), CheckError> {
    let configured = &upstream.endpoints[endpoint.configured].address;
    let authority = check.host.as_deref().map_or_else(|| configured.authority(), str::to_owned);
    let stream = TokioIo::new(open_stream(upstream, configured, &endpoint.addresses).await?);
    let agent = HeaderValue::from_static("postern");
    let status = match upstream.protocol {
        UpstreamProtocol::Http1 => {
            let request = Request::get(&*check.path)
                .header(HOST, authority)
                .header(USER_AGENT, agent)
                .header(CONNECTION, "close")
                .body(Empty::<Bytes>::new())?;
            let (mut send, connection) = conn::http1::handshake(stream).await?;
            let response = send.send_request(request);
            drive(connection, response).await?
        }
        UpstreamProtocol::Http2 => {
            let scheme = if upstream.tls.is_some() { "https" } else { "http" };
            let uri =
                Uri::builder().scheme(scheme).authority(authority).path_and_query(&*check.path).build()?;
            let request = Request::get(uri)
                .version(Version::HTTP_2)
                .header(USER_AGENT, agent)
                .body(Empty::<Bytes>::new())?;
            let (mut send, connection) = conn::http2::handshake(TokioExecutor::new(), stream).await?;
            let response = send.send_request(request);
            drive(connection, response).await?
        }
    };
    if check.statuses.is_empty() && (200..300).contains(&status) || check.statuses.contains(&status) {
        Ok(())
    } else {
        Err(CheckError::Status(status))
    }
}

/// Runs a connection until the head of the response has arrived.
async fn drive<B>(
    connection: impl Future<Output = hyper::Result<()>>,
    response: impl Future<Output = hyper::Result<http::Response<B>>>,
) -> hyper::Result<u16> {
    let (mut connection, mut response) = (std::pin::pin!(connection), std::pin::pin!(response));
    tokio::select! {
        biased;
        response = &mut response => response.map(|response| response.status().as_u16()),
        // A connection that ends passes its reason to the request.
        ended = &mut connection => {
            ended?;
            response.await.map(|response| response.status().as_u16())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(healthy_after: u32, unhealthy_after: u32) -> HealthCheck {
        HealthCheck {
            path: "/".into(),
            host: None,
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            healthy_after,
            unhealthy_after,
            statuses: Vec::new(),
        }
    }

    #[test]
    fn health_changes_after_consecutive_outcomes() {
        use Health::{Healthy, Unhealthy};
        let check = check(2, 3);
        let mut streak = Streak::default();
        for (passed, health) in [
            (true, Healthy), // the first decides alone
            (false, Healthy),
            (false, Healthy),
            (true, Healthy),
            (false, Healthy), // counted anew
            (false, Healthy),
            (false, Unhealthy),
            (true, Unhealthy),
            (false, Unhealthy),
            (true, Unhealthy), // counted anew
            (true, Healthy),
        ] {
            streak.note(passed, &check);
            assert_eq!(streak.health, health, "{passed}");
        }
        let mut streak = Streak::default();
        streak.note(false, &check);
        assert_eq!(streak.health, Unhealthy, "the first decides alone");
    }

    #[test]
    fn the_interval_varies_by_a_tenth() {
        let interval = Duration::from_secs(10);
        assert_eq!(jittered(interval, 0), Duration::from_secs(9));
        assert_eq!(jittered(interval, u8::MAX), Duration::from_secs(11));
    }
}

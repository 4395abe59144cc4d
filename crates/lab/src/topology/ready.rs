//! Readiness: probes a component until it is ready.
//!
//! Owns: the probes and the wait. Does not own: the component.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use lab_load::Interrupt;
use lab_load::fetch::BlockingClient;
use lab_load::load::{Protocol, Target, Trust};

use super::description::Ready;

/// Default pause between two probes.
pub(super) const DEFAULT_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest wait for the response to one probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest response to a probe, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// How the wait for readiness ended.
pub(super) enum ReadinessResult {
    Ready,
    /// Timeout; holds the result of the last probe.
    TimedOut(String),
    /// The component ended; holds how.
    Ended(String),
    Interrupted,
}

/// Probes with pauses until the component is ready or has `ended`, the timeout passes, or the run
/// is interrupted. All names in `how` must already be replaced.
pub(super) fn wait(
    how: &Ready,
    timeout: Duration,
    pause: Duration,
    interrupt: &Interrupt,
    mut ended: impl FnMut() -> Option<String>,
) -> ReadinessResult {
    let until = Instant::now() + timeout;
    loop {
        let why = match probe(how) {
            Ok(()) => return ReadinessResult::Ready,
            Err(why) => why,
        };
        if let Some(status) = ended() {
            return ReadinessResult::Ended(status);
        }
        if Instant::now() >= until {
            return ReadinessResult::TimedOut(why);
        }
        if interrupt.sleep(pause) {
            return ReadinessResult::Interrupted;
        }
    }
}

fn probe(how: &Ready) -> Result<(), String> {
    match how {
        Ready::Tcp(port) => {
            let number: u16 = port.parse().map_err(|_| format!("`{port}` is not a port"))?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, number));
            TcpStream::connect_timeout(&address, PROBE_TIMEOUT)
                .map(drop)
                .map_err(|error| format!("port {port}: {error}"))
        }
        Ready::Http(url, says) => {
            let target = Target::new(url, Protocol::Http1, Some(&Trust::AnyCertificate), None, None);
            let mut client =
                BlockingClient::new(target.map_err(|error| error.to_string())?, MAX_RESPONSE_BYTES)
                    .map_err(|e| e.to_string())?;
            let answer = client.get(None, PROBE_TIMEOUT).map_err(|why| format!("{url}: {why}"))?;
            let matches = |line: &str| String::from_utf8_lossy(&answer.content).trim() == line;
            if answer.status < 400 && says.as_deref().is_none_or(matches) {
                return Ok(());
            }
            Err(format!("{url} answers {}: {}", answer.status, answer.excerpt()))
        }
    }
}

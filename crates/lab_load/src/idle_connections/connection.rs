//! Held connection: one connection, from opening it until it is closed.

use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{HeldState, HoldBehavior};
use crate::load::response::ResponseReader;
use crate::load::{Failure, Io, RequestFault, RequestTemplate};

/// Pause before a connection is replaced that could not be opened or was closed.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Holds one connection as the plan requires, until the task is dropped.
pub(super) async fn hold_connection(shared: Rc<HeldState>) {
    let mut first_try = true;
    loop {
        // The permit bounds concurrent connection attempts, so that the listen backlog does not
        // affect the result.
        let Ok(permit) = shared.opening.acquire().await else { return };
        let began = shared.clock.now();
        let opened = open(&shared).await;
        drop(permit);
        let opened = match opened {
            Ok(io) => Some((io, shared.opened(began))),
            Err(failure) => {
                shared.failed(began, &failure);
                None
            }
        };
        if std::mem::take(&mut first_try) {
            shared.record_first_attempt();
        }
        if let Some((mut io, since)) = opened {
            match &shared.plan.behavior {
                HoldBehavior::Idle { .. } => wait_for_close(&mut io).await,
                HoldBehavior::SlowLoris { interval } => send_slowly(&shared, &mut io, *interval).await,
            }
            shared.closed(since);
        }
        if matches!(shared.plan.behavior, HoldBehavior::Idle { .. }) {
            return;
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

async fn open(shared: &HeldState) -> Result<Io, Failure> {
    let work = async {
        let mut io = shared.plan.target.open().await?;
        if let HoldBehavior::Idle { first: Some(flow) } = &shared.plan.behavior {
            request_once(shared, &mut io, flow).await?;
        }
        Ok(io)
    };
    tokio::time::timeout(shared.plan.timeout, work).await.unwrap_or_else(|_| Err(Failure::timeout()))
}

async fn request_once(shared: &HeldState, io: &mut Io, flow: &RequestTemplate) -> Result<(), Failure> {
    let mut request = flow.head(&shared.plan.target, flow.tokens.first().map(String::as_str));
    request.extend_from_slice(&flow.body);
    let failed = |error| Failure::io(&error);
    io.write_all(&request).await.map_err(failed)?;
    io.flush().await.map_err(failed)?;
    let mut reader = ResponseReader::new(flow.is_head());
    loop {
        let read = io.read(reader.space()).await.map_err(failed)?;
        if read == 0 {
            return Err(Failure::new(
                RequestFault::Closed,
                "connection closed before the response to the first request",
            ));
        }
        match reader.filled(read) {
            Ok(None) => {}
            Ok(Some(answer)) => {
                shared.answered(answer.status);
                return if answer.reusable {
                    Ok(())
                } else {
                    Err(Failure::new(
                        RequestFault::Closed,
                        "the server closes the connection after the first response",
                    ))
                };
            }
            Err(broken) => return Err(Failure::new(RequestFault::Protocol, broken.0)),
        }
    }
}

/// Reads until the peer closes the connection. Received bytes are ignored.
async fn wait_for_close(io: &mut Io) {
    let mut scrap = [0; 64];
    while matches!(io.read(&mut scrap).await, Ok(1..)) {}
}

/// Sends a header line every `interval` until the peer closes the connection. Records the status of
/// its response.
async fn send_slowly(shared: &HeldState, io: &mut Io, interval: Duration) {
    let whole = RequestTemplate::get().head(&shared.plan.target, None);
    // Everything except the empty line that would end the head.
    let opening = &whole[..whole.len() - 2];
    if io.write_all(opening).await.is_err() || io.flush().await.is_err() {
        return;
    }
    // Small, because there are many of these connections; the status line of a response fits.
    let mut answer = [0; 64];
    let mut answered = false;
    loop {
        tokio::select! {
            read = io.read(&mut answer) => match read {
                Ok(0) | Err(_) => return,
                Ok(read) => {
                    if !std::mem::replace(&mut answered, true)
                        && let Some(status) = status_of(&answer[..read])
                    {
                        shared.answered(status);
                    }
                }
            },
            () = tokio::time::sleep(interval) => {
                if io.write_all(b"x-slow: 1\r\n").await.is_err() || io.flush().await.is_err() {
                    // The peer may have sent a response before it closed the connection.
                    if !answered && let Ok(read @ 1..) = io.read(&mut answer).await
                        && let Some(status) = status_of(&answer[..read])
                    {
                        shared.answered(status);
                    }
                    return;
                }
            }
        }
    }
}

fn status_of(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_status_in_the_first_bytes() {
        assert_eq!(status_of(b"HTTP/1.1 408 Request Timeout\r\n"), Some(408));
        assert_eq!(status_of(b"HTTP/1.1 4"), None);
        assert_eq!(status_of(b"garbage that is long"), None);
    }
}

//! Rate limits: of requests per second, and of log lines that clients can cause.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::CallError;

/// Time between two log lines that pass a [`Throttle`].
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Rate limit: a token bucket whose capacity is one second of requests.
#[derive(Debug)]
pub(super) struct RateLimit {
    limit: u32,
    /// Tokens left, and the time of that count.
    tokens: Mutex<(f64, Instant)>,
}

impl RateLimit {
    pub(super) fn new(limit: u32) -> Self {
        Self { limit, tokens: Mutex::new((f64::from(limit), Instant::now())) }
    }

    /// Takes a token from the bucket.
    pub(super) fn take(&self) -> Result<(), CallError> {
        let (limit, now) = (f64::from(self.limit), Instant::now());
        let mut held = self.tokens.lock();
        let left = (held.0 + limit * now.duration_since(held.1).as_secs_f64()).min(limit);
        let enough = left >= 1.0;
        *held = (if enough { left - 1.0 } else { left }, now);
        if enough { Ok(()) } else { Err(CallError::Throttled(self.limit)) }
    }
}

/// Rate limit for log lines that clients can cause: one line per ten seconds. For unavailable
/// dependencies use an [`outage::Outage`].
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    /// Whether a line may be logged now.
    pub fn is_due(&self) -> bool {
        let (mut last, now) = (self.0.lock(), Instant::now());
        let due = last.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL);
        if due {
            *last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_has_room_for_so_many() {
        let pace = RateLimit::new(10);
        let taken = |pace: &RateLimit| (0..25).filter(|_| pace.take().is_ok()).count();
        assert_eq!(taken(&pace), 10);
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(taken(&pace), 3);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(taken(&pace), 10, "what was not used is not saved up");
        assert!(matches!(pace.take(), Err(CallError::Throttled(10))));
    }
}

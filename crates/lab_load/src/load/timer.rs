//! Timers: wake tasks at the right time.
//!
//! Owns: the clock of a run, a timer finer than the millisecond of the runtime, and a deadline that
//! costs nothing while requests are answered in time. Does not own: what happens at those times.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use lab_analysis::units::nanos;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::Sleep;

/// Clock of a run: nanoseconds since its start.
pub(crate) struct Clock {
    origin: Cell<Instant>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: Cell::new(Instant::now()) }
    }

    /// Makes `origin` the start of the run.
    pub(crate) fn restart_at(&self, origin: Instant) {
        self.origin.set(origin);
    }

    pub(crate) fn now(&self) -> u64 {
        nanos(self.origin.get().elapsed())
    }

    pub(crate) fn instant(&self, at: u64) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.origin.get() + Duration::from_nanos(at))
    }
}

/// Timer with the resolution of the kernel. The timer wheel of the runtime turns once a
/// millisecond. At 20 000 requests a second that would send bursts of twenty and count their
/// queueing as latency.
pub(crate) struct FineTimer {
    descriptor: AsyncFd<OwnedFd>,
}

impl FineTimer {
    #[expect(unsafe_code, reason = "the runtime offers no safe registration of a foreign descriptor")]
    pub(crate) fn new() -> io::Result<Self> {
        let descriptor =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // SAFETY: `OwnedFd` holds a valid descriptor and always returns the same one. Only shared
        // references to it are ever given out, so it is neither replaced nor closed before the
        // registration is dropped.
        let descriptor = unsafe { AsyncFd::register(descriptor)? };
        Ok(Self { descriptor })
    }

    /// Sleeps for about `wait`. It may return early, but never much too late.
    pub(crate) async fn sleep(&self, wait: Duration) -> io::Result<()> {
        let value = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            // Zero would disarm the timer.
            tv_nsec: i64::from(wait.subsec_nanos().max(1)),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        // Arming the timer again clears earlier expirations, so nothing has to be read.
        self.descriptor.readable().await?.clear_ready();
        Ok(())
    }
}

/// Deadline of the current request of a slot. All requests have the same timeout, so each deadline
/// is later than the one before. The timer is moved only when it fires, once per timeout.
pub(crate) struct Deadline {
    sleep: RefCell<Option<Pin<Box<Sleep>>>>,
    at: Cell<u64>,
}

impl Deadline {
    pub(crate) fn new() -> Self {
        Self { sleep: RefCell::new(None), at: Cell::new(u64::MAX) }
    }

    /// Runs `work` until it completes or until `at`; returns `None` in the second case.
    pub(crate) async fn run_until<T>(
        &self,
        clock: &Clock,
        at: u64,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        self.at.set(at);
        let mut work = std::pin::pin!(work);
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if self.passed(clock, cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    fn passed(&self, clock: &Clock, cx: &mut Context<'_>) -> bool {
        let mut sleep = self.sleep.borrow_mut();
        let sleep =
            sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(clock.instant(self.at.get()))));
        while sleep.as_mut().poll(cx).is_ready() {
            if clock.now() >= self.at.get() {
                return true;
            }
            sleep.as_mut().reset(clock.instant(self.at.get()));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn the_fine_timer_waits_less_than_the_runtime_could() {
        run(async {
            let timer = FineTimer::new().unwrap();
            // The shortest of many sleeps: on a busy machine single ones are late.
            let mut quickest = Duration::MAX;
            for _ in 0..50 {
                let start = Instant::now();
                timer.sleep(Duration::from_micros(100)).await.unwrap();
                quickest = quickest.min(start.elapsed());
            }
            assert!(
                quickest >= Duration::from_micros(90) && quickest < Duration::from_micros(900),
                "{quickest:?}"
            );
        });
    }

    #[test]
    fn a_deadline_moves_with_each_request_and_still_fires() {
        run(async {
            let clock = Clock::start();
            let deadline = Deadline::new();
            let never = || std::future::pending::<()>();
            let ms = 1_000_000;
            for _ in 0..3 {
                let brief = tokio::time::sleep(Duration::from_millis(5));
                assert!(deadline.run_until(&clock, clock.now() + 20 * ms, brief).await.is_some());
            }
            let until = clock.now() + 20 * ms;
            assert!(deadline.run_until(&clock, until, never()).await.is_none());
            assert!(clock.now() >= until);
            let until = clock.now() + 20 * ms;
            assert!(deadline.run_until(&clock, until, never()).await.is_none());
            assert!(clock.now() >= until, "a deadline that fired serves the next request too");
        });
    }
}

//! Interrupt: a request to end the run, which every waiting task and thread receives.
//!
//! Owns: the signals of the process, if requested. Does not own: the reaction to an interrupt.

use std::io;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Time between two checks by a thread that waits without a runtime.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Handle that shows whether the run is to end.
#[derive(Debug, Clone)]
pub struct Interrupt {
    receiver: watch::Receiver<bool>,
}

/// Handle that requests the end.
#[derive(Debug, Clone)]
pub struct Interrupter {
    sender: watch::Sender<bool>,
}

impl Interrupter {
    /// Requests the end of the run.
    pub fn interrupt(&self) {
        self.sender.send_replace(true);
    }
}

impl Interrupt {
    /// Creates an interrupt that is triggered by the returned [`Interrupter`].
    pub fn manual() -> (Interrupter, Self) {
        let (sender, receiver) = watch::channel(false);
        (Interrupter { sender }, Self { receiver })
    }

    /// Creates an interrupt that is triggered by SIGINT, SIGTERM, SIGHUP (a closed terminal) and
    /// SIGQUIT. From then on these signals do not end the process.
    ///
    /// # Errors
    /// The runtime, a signal handler or the thread cannot be created.
    pub fn from_signals() -> io::Result<Self> {
        let (interrupter, interrupt) = Self::manual();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // Handlers are installed before the thread starts, because a signal may arrive as soon as
        // the run begins.
        let guard = runtime.enter();
        let mut signals = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::quit())?,
        ];
        drop(guard);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                std::future::poll_fn(|cx| {
                    let any = signals.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
                    if any { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                interrupter.interrupt();
                // The handlers stay installed, so that a second signal does not end the process.
                std::future::pending::<()>().await;
            });
        })?;
        Ok(interrupt)
    }

    /// Whether the end was requested.
    pub fn is_set(&self) -> bool {
        *self.receiver.borrow()
    }

    /// Waits until the end is requested; forever if the [`Interrupter`] is dropped.
    pub async fn wait(&self) {
        let mut receiver = self.receiver.clone();
        if receiver.wait_for(|set| *set).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Sleeps until `time` has passed or the end is requested. Returns whether it was requested.
    pub fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.is_set() || left.is_zero() {
                return self.is_set();
            }
            std::thread::sleep(left.min(POLL_INTERVAL));
        }
    }
}

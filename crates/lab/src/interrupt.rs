//! A request to end, which everything that waits hears of.
//!
//! Owns: the signals of the process, while somebody asks for them. Does not own: how things end.

use std::io;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// How often a thread that waits without a runtime looks.
const LOOK: Duration = Duration::from_millis(10);

/// Whether to end.
#[derive(Debug, Clone)]
pub struct Interrupt {
    told: watch::Receiver<bool>,
}

/// Who asks to end.
#[derive(Debug, Clone)]
pub struct Interrupter {
    tell: watch::Sender<bool>,
}

impl Interrupter {
    /// Asks to end.
    pub fn interrupt(&self) {
        self.tell.send_replace(true);
    }
}

impl Interrupt {
    /// One that is asked by hand.
    pub fn by_hand() -> (Interrupter, Self) {
        let (tell, told) = watch::channel(false);
        (Interrupter { tell }, Self { told })
    }

    /// One that SIGINT, SIGTERM, SIGHUP (a terminal that is closed) and SIGQUIT ask. From here on these signals do not end the process any more.
    pub fn by_signals() -> io::Result<Self> {
        let (interrupter, interrupt) = Self::by_hand();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // Taken before the thread runs: whoever is told that the run has begun may send one at once.
        let guard = runtime.enter();
        let mut asked = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::quit())?,
        ];
        drop(guard);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                std::future::poll_fn(|cx| {
                    let any = asked.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
                    if any { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                interrupter.interrupt();
                // Held, so that a second signal finds somebody who takes it.
                std::future::pending::<()>().await;
            });
        })?;
        Ok(interrupt)
    }

    /// It was asked to end.
    pub fn is_set(&self) -> bool {
        *self.told.borrow()
    }

    /// Waits until it is asked; forever when nobody can ask any more.
    pub(crate) async fn wait(&self) {
        let mut told = self.told.clone();
        if told.wait_for(|set| *set).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Sleeps, but not longer than until it is asked to end; whether it was.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.is_set() || left.is_zero() {
                return self.is_set();
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

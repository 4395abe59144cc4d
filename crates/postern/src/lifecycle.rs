//! From start to end of a process: signals.

use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Failure;

/// Blocks the thread until SIGINT or SIGTERM.
pub fn wait_for_stop() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("cannot wait for signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
    runtime.block_on(stop_asked()).map_err(failed)
}

/// Completes with SIGINT or SIGTERM.
pub async fn stop_asked() -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

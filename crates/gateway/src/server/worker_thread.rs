//! Worker thread: runs one worker from start to end.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use http_engine::clock::CoarseClock;
use http_engine::config::ListenAddress;
use http_engine::deadline::{Deadlines, TICK};
use http_engine::listen::Acceptor;
use http_engine::upstream::pool::Pool;
use telemetry::metrics::Metrics;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::{Generation, Services, Sockets, accept};
use crate::authorizer::routed::ActiveAuthorizer;
use crate::foreign_page;
use crate::per_worker::{PoolMaker, Pools, RouteCounts};
use crate::server::handoff::{Command, Handoff, TASKS_PER_TURN};
use crate::server::time_slice;
use crate::worker::{ActiveConfig, Worker, WorkerParts};

/// Ticks between two sweeps of the pools: a second.
const SWEEP_TICKS: u32 = 10;
/// Maximum idle time of a kept-alive connection while draining. A client about to use it then gets
/// a response with `Connection: close` instead of a reset.
const DRAIN_IDLE: Duration = Duration::from_secs(5);

/// Parameters for starting a worker.
pub(crate) struct Start {
    pub(crate) index: usize,
    pub(crate) generation: Generation,
    pub(crate) sockets: Sockets,
    pub(crate) services: Services,
    pub(crate) handoffs: Arc<[Handoff]>,
    pub(crate) doors: Arc<accept::Acceptors>,
    pub(crate) connection_limit: usize,
}

/// Body of the thread. True when all connections had ended before it did.
pub(crate) fn run(start: Start, inbox: UnboundedReceiver<Command>) -> bool {
    if let Err(error) = time_slice::shorten() {
        tracing::debug!(%error, "the time slice of a worker stays as it is");
    }
    let mut builder = Builder::new_current_thread();
    // Those who made the worker's events, and wait for this core, run before it sleeps. Often they have
    // made more by then. Otherwise it would be woken for each, and take the core from them each time.
    builder.on_thread_park(std::thread::yield_now);
    let runtime = match builder.enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "worker runtime cannot be started");
            return false;
        }
    };
    runtime.block_on(run_worker(start, inbox))
}

async fn run_worker(start: Start, mut inbox: UnboundedReceiver<Command>) -> bool {
    let Start { index, generation, sockets, services, handoffs: shares, doors, connection_limit } = start;
    let Some(metrics) = services.metrics.worker(index) else {
        tracing::error!(index, "no metrics shard is free for this worker");
        return false;
    };
    let metrics = Rc::new(metrics);
    let clock = CoarseClock::new(services.clock.clone());
    let deadlines = Deadlines::new(clock.now().monotonic);
    let running = build_active_config(&generation, None, &metrics, &deadlines);
    // Otherwise the first configuration would stay until the worker ends: its keys are fetched and its
    // sessions read for as long as anybody has it.
    drop(generation);
    let worker = Worker::new(WorkerParts {
        metrics,
        clock,
        log: services.access_log.as_ref().map(telemetry::access_log::AccessLog::buffer),
        tracer: services.tracer.clone(),
        running,
        deadlines,
        open: shares[index].open.clone(),
    });
    let context = Rc::new(accept::Context {
        worker: worker.clone(),
        handoffs: shares,
        acceptors: doors,
        connection_limit,
    });
    let mut acceptors = HashMap::new();
    listen(&context, &mut acceptors, sockets);
    let ticker = tokio::task::spawn_local(tick(worker.clone()));
    let (mut stop_at, mut emptying, mut closing) = (None, Vec::new(), false);
    loop {
        let command = tokio::select! {
            command = inbox.recv(), if !closing => command,
            () = drained(&worker, &mut emptying, stop_at) => {
                if std::mem::replace(&mut closing, true) {
                    break;
                }
                // From here on other workers keep what they would pass on. Connections that were
                // passed on are served.
                inbox.close();
                while let Ok(command) = inbox.try_recv() {
                    if let Command::Adopt(accepted) = command {
                        accept::adopt(&context, accepted);
                    }
                }
                continue;
            }
        };
        match command {
            Some(Command::Apply(generation, sockets, confirm)) => {
                apply(&worker, &generation);
                acceptors.retain(|address, task: &mut JoinHandle<()>| {
                    let is_configured = generation.config.listeners.at(address).is_some();
                    if !is_configured {
                        task.abort();
                    }
                    is_configured
                });
                listen(&context, &mut acceptors, sockets);
                // Nobody waits for it any more after the time for it.
                let _ = confirm.send(index);
            }
            Some(Command::Ping(answer)) => {
                // Nobody waits any more when the process ends.
                let _ = answer.send(index);
            }
            Some(Command::Adopt(accepted)) => accept::adopt(&context, accepted),
            Some(Command::Drain { timeout }) => {
                // Each accept loop empties its queue and closes its socket.
                emptying.extend(acceptors.drain().map(|(_, task)| task));
                worker.drain(DRAIN_IDLE.min(timeout / 2));
                stop_at = Some(tokio::time::Instant::now() + timeout);
            }
            Some(Command::Stop) | None => break,
        }
    }
    ticker.abort();
    worker.flush_log();
    worker.open.load(Ordering::Relaxed) == 0
}

fn listen(
    context: &Rc<accept::Context>,
    acceptors: &mut HashMap<ListenAddress, JoinHandle<()>>,
    sockets: Sockets,
) {
    for (address, socket) in sockets {
        match Acceptor::try_from(socket) {
            Ok(socket) => {
                let task = tokio::task::spawn_local(accept::accept(context.clone(), address.clone(), socket));
                acceptors.insert(address, task);
            }
            Err(error) => tracing::error!(%address, %error, "listener cannot be served"),
        }
    }
}

/// Ready when draining and no connection is left, or the time limit has passed.
async fn drained(
    worker: &Worker,
    acceptors: &mut Vec<JoinHandle<()>>,
    stop_at: Option<tokio::time::Instant>,
) {
    let Some(stop_at) = stop_at else { return std::future::pending().await };
    // Queued connections count as open only once they are accepted.
    while let Some(acceptor) = acceptors.last_mut() {
        if tokio::time::timeout_at(stop_at, acceptor).await.is_err() {
            return;
        }
        acceptors.pop();
    }
    while worker.open.load(Ordering::Relaxed) > 0 && tokio::time::Instant::now() < stop_at {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Periodic work of the worker: deadlines, pools, log.
async fn tick(worker: Rc<Worker>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ticks = 0u32;
    loop {
        interval.tick().await;
        let now = worker.clock.refresh();
        for few in worker.deadlines.tick(now.monotonic).chunks(TASKS_PER_TURN) {
            few.iter().for_each(Waker::wake_by_ref);
            tokio::task::yield_now().await;
        }
        worker.flush_log();
        ticks = ticks.wrapping_add(1);
        if ticks.is_multiple_of(SWEEP_TICKS) {
            let running = worker.active_config();
            running.pools.sweep(&running.config.routing);
            running.routed_authorizers.sweep(&running.config.routing);
        }
    }
}

fn apply(worker: &Worker, generation: &Generation) {
    let old = worker.active_config();
    let new = build_active_config(generation, Some(&old), &worker.metrics, &worker.deadlines);
    if !Rc::ptr_eq(old.pools.in_file(), new.pools.in_file()) {
        let is_kept = |pool: &&Rc<Pool>| new.pools.in_file().iter().any(|kept| Rc::ptr_eq(kept, pool));
        old.pools.in_file().iter().filter(|pool| !is_kept(pool)).for_each(|pool| pool.retire());
    }
    *worker.active_config.borrow_mut() = Rc::new(new);
}

/// Builds this worker's state for a configuration. What belongs to the same file is kept, and so
/// are the pools of unchanged upstreams.
fn build_active_config(
    generation: &Generation,
    old: Option<&ActiveConfig>,
    metrics: &Rc<telemetry::metrics::WorkerMetrics>,
    deadlines: &Rc<Deadlines>,
) -> ActiveConfig {
    let config = generation.config.clone();
    let of_same_file = old.filter(|old| old.config.generation == config.generation);
    let (pools, counts, authorizers) = match of_same_file {
        Some(old) => (old.pools.clone(), old.counts.clone(), old.authorizers.clone()),
        None => (
            pools(generation, old, metrics, deadlines),
            RouteCounts::new(&config.routing, metrics.metrics()),
            authorizers(generation, metrics.metrics()),
        ),
    };
    ActiveConfig {
        authenticator: generation.authenticator.clone(),
        reviewer: generation.reviewer.clone(),
        authorizers,
        routed_authorizers: generation.routed_authorizers.clone(),
        login: generation.login.clone(),
        is_framed: foreign_page::is_framed(&config),
        events: generation.events.clone(),
        minter: generation.minter.clone(),
        pools,
        counts,
        config,
    }
}

fn pools(
    generation: &Generation,
    old: Option<&ActiveConfig>,
    metrics: &Rc<telemetry::metrics::WorkerMetrics>,
    deadlines: &Rc<Deadlines>,
) -> Pools {
    let new_maker = || PoolMaker { metrics: metrics.clone(), deadlines: deadlines.clone() };
    let before = old.map(|old| &old.pools);
    let upstreams = generation.config.routing.file_upstreams().zip(&*generation.discoveries);
    let in_file = upstreams.map(|(upstream, discovery)| {
        let mut kept = before.into_iter().flat_map(|before| before.in_file().iter());
        let same = kept.find(|pool| pool.config.is_compatible_with(upstream));
        same.cloned().unwrap_or_else(|| {
            let updates = discovery.as_ref().map(|discovery| discovery.updates());
            before.map_or_else(
                || new_maker().make(upstream, updates.clone()),
                |before| before.maker().make(upstream, updates.clone()),
            )
        })
    });
    let in_file = in_file.collect();
    before.map_or_else(
        || Pools::new(Rc::clone(&in_file), new_maker()),
        |before| before.with_file(in_file.clone()),
    )
}

fn authorizers(generation: &Generation, metrics: &Metrics) -> Rc<[ActiveAuthorizer]> {
    let authorizers = generation.authorizers.iter().map(|authorizer| ActiveAuthorizer {
        authorizer: authorizer.clone(),
        counts: metrics.authorizer(&authorizer.config().name),
    });
    authorizers.collect()
}

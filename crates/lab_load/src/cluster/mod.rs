//! Kubernetes cluster: fills an API server with objects of the Gateway API, and changes them during
//! a load.
//!
//! Owns: the calls of the API server, the objects, when one changes, how long until a request sees
//! it, and scrapes of metrics beside it. Does not own: the API server and the gateway, the load
//! ([`crate::load`]), and conclusions from the figures.
//!
//! One change ([`changes`]):
//!
//! 1. Its objects are written. The time starts with the response to the last write.
//! 2. Requests are sent until one sees the change. The time ends with the response to that request.
//!
//! Changes have a schedule of their own: one in each interval, at a random time.

mod api;
mod changes;
mod fill;
mod objects;
mod scrapes;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab_analysis::record::{Changes, Scrapes};
use tokio::sync::watch;

pub use self::fill::{FillError, Gauges, fill, settle};
use crate::interrupt::Interrupt;
use crate::load::{Moments, Target};

/// A cluster, and the gateway that serves it.
#[derive(Clone)]
pub struct ClusterSite {
    /// API server.
    pub api: Target,
    /// Bearer token of an administrator.
    pub token: String,
    /// Files and folders with definitions of kinds (`CustomResourceDefinition`).
    pub definitions: Vec<PathBuf>,
    /// Name of the controller whose class the Gateways have.
    pub controller: String,
    /// Address of the service: not a loopback address, which no `EndpointSlice` may have.
    pub address: IpAddr,
    /// Port of the service.
    pub service_port: u16,
    /// The gateway, where the load enters.
    pub entry: Target,
    /// Port of the Gateway that `ListenerSets` and notebooks are attached to.
    pub port: u16,
    /// First port of the other Gateways.
    pub first_port: u16,
    /// Metrics of the gateway.
    pub metrics: Target,
    /// Number of objects.
    pub size: ClusterSize,
}

/// Number of objects of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterSize {
    /// Gateways, each with a port of its own, beside the shared one.
    pub gateways: u32,
    /// `ListenerSets` of the shared Gateway, each with a host name of its own.
    pub listener_sets: u32,
    /// `HTTPRoutes`, spread over the Gateways and `ListenerSets`.
    pub routes: u32,
    /// Notebooks: `HTTPRoute`, `AccessPolicy`, `Service` and `EndpointSlice` each.
    pub notebooks: u32,
}

/// What changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangedObjects {
    /// Routes of `ListenerSets` get another rule.
    Routes,
    /// Notebooks are deleted, and created again.
    Notebooks,
}

impl ChangedObjects {
    /// Name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Routes => "routes",
            Self::Notebooks => "notebooks",
        }
    }
}

/// Changes during a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangeSchedule {
    /// What changes.
    pub of: ChangedObjects,
    /// Changes per second.
    pub rate: f64,
    /// How long requests look for a change.
    pub patience: Duration,
}

/// Threads that change a cluster and scrape metrics during a load.
pub struct ClusterThreads {
    changes: Option<JoinHandle<io::Result<Changes>>>,
    scrapes: Option<JoinHandle<io::Result<Scrapes>>>,
    /// When scrapes began; `None` without any.
    scraping: Option<Arc<Moments>>,
    start: Vec<mpsc::Sender<Instant>>,
    end: watch::Sender<bool>,
}

/// What a thread waits for.
struct Course {
    start: mpsc::Receiver<Instant>,
    ended: watch::Receiver<bool>,
    interrupt: Interrupt,
}

impl ClusterThreads {
    /// Starts the threads. Each waits for the start time from [`ClusterThreads::start_senders`].
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn prepare(
        site: &ClusterSite,
        changes: Option<ChangeSchedule>,
        scrape_every: Option<Duration>,
        seed: u64,
        interrupt: &Interrupt,
    ) -> io::Result<Self> {
        let (end, ended) = watch::channel(false);
        let mut start = Vec::new();
        let mut course = || {
            let (sender, receiver) = mpsc::channel();
            start.push(sender);
            Course { start: receiver, ended: ended.clone(), interrupt: interrupt.clone() }
        };
        let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let changes = changes
            .map(|schedule| {
                let (site, course) = (site.clone(), course());
                spawn("changes").spawn(move || changes::run(&site, schedule, seed, course))
            })
            .transpose()?;
        let scraping = scrape_every.map(|every| Arc::new(Moments::new(every)));
        let scrapes = scrape_every
            .zip(scraping.clone())
            .map(|(every, scraping)| {
                let (target, course) = (site.metrics.clone(), course());
                spawn("scrapes").spawn(move || scrapes::run(target, every, course, &scraping))
            })
            .transpose()?;
        Ok(Self { changes, scrapes, scraping, start, end })
    }

    /// Senders for the time at which changes and scrapes start.
    pub fn start_senders(&self) -> Vec<mpsc::Sender<Instant>> {
        self.start.clone()
    }

    /// The scrapes, for a load that records the requests beside them.
    pub fn scraping(&self) -> Option<Arc<Moments>> {
        self.scraping.clone()
    }

    /// Stops, and waits until the last change is in force or its patience has passed.
    ///
    /// # Errors
    /// A thread has no event loop.
    pub fn finish(self) -> io::Result<(Option<Changes>, Option<Scrapes>)> {
        drop(self.start);
        self.end.send_replace(true);
        let scrapes = join(self.scrapes)?;
        let scrapes = scrapes
            .map(|scrapes| Scrapes { windows: self.scraping.map(|scraping| scraping.windows()), ..scrapes });
        Ok((join(self.changes)?, scrapes))
    }
}

fn join<T>(thread: Option<JoinHandle<io::Result<T>>>) -> io::Result<Option<T>> {
    let Some(thread) = thread else { return Ok(None) };
    let ended = thread.join();
    ended.unwrap_or_else(|_| Err(io::Error::other("a thread that watches a cluster panicked"))).map(Some)
}

//! Fill: writes all objects of a cluster before the gateway starts, and waits until their status is
//! written.
//!
//! Owns: order, concurrency and progress. Does not own: the objects.

use std::cell::{Cell, RefCell};
use std::fs;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, LocalOptions};

use super::api::ApiClient;
use super::objects::{self, Write};
use super::{ClusterSite, ClusterSize};
use crate::fetch::BlockingClient;
use crate::interrupt::Interrupt;

/// Connections that write at the same time.
const CONNECTIONS: u32 = 32;
/// Longest wait until the API server is ready, or uses a definition.
const READY_TIMEOUT: Duration = Duration::from_mins(2);
/// Pause between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// Longest wait until the status of all objects is written.
const SETTLE_TIMEOUT: Duration = Duration::from_hours(1);
/// Time for which no status must be waiting.
const SETTLED_FOR: Duration = Duration::from_secs(2);
/// Largest response of metrics in bytes.
const MAX_METRICS_BYTES: usize = 64 << 20;

/// Why a cluster could not be filled.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// A definition cannot be read.
    #[error("cannot read `{}`: {error}; for definitions of the Gateway API run `dev/setup gateway-api`", path.display())]
    Definition {
        /// File or folder.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// There is no event loop.
    #[error("cannot write objects: {0}")]
    Runtime(io::Error),
    /// The API server refused, or did not respond.
    #[error("the API server {0}")]
    ApiServer(String),
    /// The gateway does not write status.
    #[error("the gateway {0}")]
    Gateway(String),
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Writes all objects. `progress` receives a line now and then.
///
/// # Errors
/// A definition cannot be read, a write was refused, or the run was interrupted.
pub fn fill(site: &ClusterSite, interrupt: &Interrupt, progress: &dyn Fn(&str)) -> Result<(), FillError> {
    let definitions = definitions(&site.definitions)?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = runtime.map_err(FillError::Runtime)?;
    runtime.block_on(async {
        tokio::select! {
            () = interrupt.wait() => Err(FillError::Interrupted),
            filled = fill_all(site, definitions, progress) => filled,
        }
    })
}

async fn fill_all(
    site: &ClusterSite,
    definitions: Vec<Write>,
    progress: &dyn Fn(&str),
) -> Result<(), FillError> {
    let refused = |why: String| FillError::ApiServer(format!("refused an object: {why}"));
    let mut client = ApiClient::new(site);
    wait_for(&mut client, "/readyz").await?;
    for write in definitions {
        client.write(&write).await.map_err(refused)?;
    }
    for path in objects::kind_paths() {
        // A path of a namespace exists with its kind, whether or not the namespace does.
        wait_for(&mut client, &format!("{path}?limit=1")).await?;
    }
    for write in objects::base(site) {
        client.write(&write).await.map_err(refused)?;
    }
    let ClusterSize { gateways, listener_sets, routes, notebooks } = site.size;
    let one = |write: Write| vec![write];
    spread(site, "Gateways", gateways, progress, &|site, index| one(objects::gateway(site, index))).await?;
    spread(site, "ListenerSets", listener_sets, progress, &|site, index| {
        one(objects::listener_set(site, index))
    })
    .await?;
    spread(site, "HTTPRoutes", routes, progress, &|site, index| one(objects::numbered_route(site, index)))
        .await?;
    spread(site, "notebooks", notebooks, progress, &objects::notebook).await
}

/// Writes `count` objects over several connections.
async fn spread(
    site: &ClusterSite,
    what: &str,
    count: u32,
    progress: &dyn Fn(&str),
    objects: &dyn Fn(&ClusterSite, u32) -> Vec<Write>,
) -> Result<(), FillError> {
    let (next, written) = (Cell::new(0), Cell::new(0_u32));
    let (begun, said) = (Instant::now(), Cell::new(Instant::now()));
    let first_fault: RefCell<Option<String>> = RefCell::default();
    let worker = || async {
        let mut client = ApiClient::new(site);
        while next.get() < count && first_fault.borrow().is_none() {
            let index = next.replace(next.get() + 1);
            for write in objects(site, index) {
                if let Err(why) = client.write(&write).await {
                    first_fault.borrow_mut().get_or_insert(why);
                    return;
                }
            }
            written.set(written.get() + 1);
            if said.get().elapsed() >= PROGRESS_INTERVAL {
                said.set(Instant::now());
                progress(&format!("  {} of {count} {what} written", written.get()));
            }
        }
    };
    join_all((0..count.min(CONNECTIONS)).map(|_| worker())).await;
    if let Some(why) = first_fault.into_inner() {
        return Err(FillError::ApiServer(format!("refused an object: {why}")));
    }
    if count > 0 {
        let seconds = begun.elapsed().as_secs_f64();
        progress(&format!("  {count} {what} written in {seconds:.1} s, {:.0}/s", f64::from(count) / seconds));
    }
    Ok(())
}

/// Runs all of these until each has ended.
async fn join_all(all: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut all: Vec<Pin<Box<_>>> = all.map(Box::pin).collect();
    poll_fn(|cx| {
        all.retain_mut(|one| one.as_mut().poll(cx).is_pending());
        if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Waits until a path of the API server answers 200.
async fn wait_for(client: &mut ApiClient, path: &str) -> Result<(), FillError> {
    let until = Instant::now() + READY_TIMEOUT;
    loop {
        let why = match client.get(path).await {
            Ok(answer) if answer.status == 200 => return Ok(()),
            Ok(answer) => format!("{}: {}", answer.status, answer.excerpt()),
            Err(why) => why,
        };
        if Instant::now() >= until {
            let seconds = READY_TIMEOUT.as_secs();
            return Err(FillError::ApiServer(format!("does not serve {path} after {seconds} s: {why}")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The definitions of kinds in these files, and in the YAML files of these folders.
fn definitions(places: &[PathBuf]) -> Result<Vec<Write>, FillError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| FillError::Definition { path, error }
    };
    let mut all = Vec::new();
    for place in places {
        let mut files = vec![place.clone()];
        if place.is_dir() {
            let entries = fs::read_dir(place).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            files = entries.map_err(failed(place))?.into_iter().map(|entry| entry.path()).collect();
            files.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
            files.sort();
        }
        for path in files {
            let text = fs::read_to_string(&path).map_err(failed(&path))?;
            // A folder of the standard also contains admission policies.
            if text.lines().any(|line| line == "kind: CustomResourceDefinition") {
                all.push(objects::definition(path.display().to_string(), text));
            }
        }
    }
    Ok(all)
}

/// Gauges of the gateway that say how far it is.
#[derive(Debug, Clone)]
pub struct Gauges {
    /// 1 when all objects of the cluster were read.
    pub synced: String,
    /// Number of status documents that are still to be written.
    pub waiting: String,
}

/// Waits until the gateway has read all objects and has had no status to write for a while.
///
/// # Errors
/// The metrics lack a gauge or are not served, the wait is too long, or the run was interrupted.
pub fn settle(
    site: &ClusterSite,
    gauges: &Gauges,
    interrupt: &Interrupt,
    progress: &dyn Fn(&str),
) -> Result<(), FillError> {
    let mut client =
        BlockingClient::new(site.metrics.clone(), MAX_METRICS_BYTES).map_err(FillError::Runtime)?;
    let (begun, mut said) = (Instant::now(), Instant::now());
    let (mut synced_after, mut idle_since) = (None::<Duration>, None::<Instant>);
    loop {
        let answer = client.get(None, READY_TIMEOUT);
        let answer = answer.map_err(|why| FillError::Gateway(format!("has no metrics: {why}")))?;
        let text = String::from_utf8_lossy(&answer.content);
        let state = value(&text, &gauges.synced).zip(value(&text, &gauges.waiting));
        // The metrics of the cluster appear a moment after the others.
        if state.is_none() && begun.elapsed() >= READY_TIMEOUT {
            return Err(FillError::Gateway(format!(
                "has no metrics `{}` and `{}` at {} (status {}): is it built with the feature `kubernetes`?",
                gauges.synced, gauges.waiting, site.metrics.url, answer.status,
            )));
        }
        let (synced, waiting) = state.unwrap_or_default();
        if synced > 0.0 && synced_after.is_none() {
            synced_after = Some(begun.elapsed());
            progress(&format!("  all objects read after {:.1} s", begun.elapsed().as_secs_f64()));
        }
        let is_idle = synced_after.is_some() && waiting <= 0.0;
        idle_since = is_idle.then(|| idle_since.unwrap_or_else(Instant::now));
        if idle_since.is_some_and(|since| since.elapsed() >= SETTLED_FOR) {
            let seconds = begun.elapsed().saturating_sub(SETTLED_FOR).as_secs_f64();
            progress(&format!("  status of all objects written after {seconds:.1} s"));
            return Ok(());
        }
        if said.elapsed() >= PROGRESS_INTERVAL {
            said = Instant::now();
            progress(&match synced_after {
                Some(_) => format!("  {waiting} status documents are still to be written"),
                None => "  the gateway has not read all objects yet".to_owned(),
            });
        }
        if begun.elapsed() >= SETTLE_TIMEOUT {
            let seconds = SETTLE_TIMEOUT.as_secs();
            let message = format!("is not done after {seconds} s: {waiting} status documents to write");
            return Err(FillError::Gateway(message));
        }
        if interrupt.sleep(POLL_INTERVAL) {
            return Err(FillError::Interrupted);
        }
    }
}

/// Value of a metric without labels.
fn value(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_is_read_by_its_whole_name() {
        let text = "# TYPE waiting gauge\nwaiting_more 7\nwaiting 3\n";
        assert_eq!(value(text, "waiting"), Some(3.0));
        assert_eq!(value(text, "wait"), None);
    }

    #[test]
    fn only_definitions_of_kinds_are_read_and_a_missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("b.yaml", "kind: ValidatingAdmissionPolicy\n");
        write("a.yaml", "apiVersion: x\nkind: CustomResourceDefinition\n");
        write("a.txt", "kind: CustomResourceDefinition\n");
        let read = definitions(&[folder.path().to_owned()]).unwrap();
        assert_eq!(read.len(), 1);
        assert!(read[0].to_string().ends_with("a.yaml"), "{}", read[0]);
        let error = definitions(&[folder.path().join("none")]).unwrap_err().to_string();
        assert!(error.contains("none") && error.contains("dev/setup gateway-api"), "{error}");
    }
}

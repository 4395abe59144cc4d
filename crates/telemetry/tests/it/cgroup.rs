//! A real CPU quota applied to a real process.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use telemetry::cgroup::{Cgroup, suggested_workers};
use telemetry::metrics::{Format, Metrics};
use telemetry::test_support::exposition::read;

const V1: &str = "/sys/fs/cgroup/cpu";

/// Two nested cgroups, with a busy process in the inner one. All are removed at the end.
struct Throttled {
    outer: PathBuf,
    inner: PathBuf,
    busy: Child,
}

impl Throttled {
    /// `Err`: why this machine does not support the test.
    fn new() -> Result<Self, String> {
        let outer = Path::new(V1).join(format!("postern-test-{}", std::process::id()));
        let inner = outer.join("inner");
        fs::create_dir_all(&inner).map_err(|error| format!("{V1} cannot be written: {error}"))?;
        // 5 ms of every 100 ms for both together; the inner cgroup's own limit is higher
        write(&outer.join("cpu.cfs_period_us"), "100000")?;
        write(&outer.join("cpu.cfs_quota_us"), "5000")?;
        // starts when told, after it was moved into the cgroup
        let mut busy = Command::new("sh")
            .args(["-c", "read go; while :; do :; done"])
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| format!("no shell: {error}"))?;
        let placed = write(&inner.join("cgroup.procs"), &busy.id().to_string());
        let told = busy.stdin.take().map(|mut stdin| stdin.write_all(b"go\n"));
        let throttled = Self { outer, inner, busy };
        placed?;
        told.transpose().map_err(|error| error.to_string())?;
        Ok(throttled)
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

impl Drop for Throttled {
    fn drop(&mut self) {
        let _ = self.busy.kill();
        let _ = self.busy.wait();
        // a cgroup can be removed once its last process is gone, which wait() has ensured
        for group in [&self.inner, &self.outer] {
            let _ = fs::remove_dir(group);
        }
    }
}

#[test]
fn throttling_is_seen_at_the_group_that_has_the_quota() {
    let throttled = match Throttled::new() {
        Ok(throttled) => throttled,
        Err(reason) => {
            println!("skipped: {reason}");
            return;
        }
    };
    let process = PathBuf::from(format!("/proc/{}", throttled.busy.id()));
    let cgroup = Cgroup::of_process(&process).unwrap().unwrap();
    assert_eq!(cgroup.quota_cores(), Some(0.05), "the parent's quota binds the child");
    assert_eq!(suggested_workers(cgroup.quota_cores(), 64), 1);
    let began = Instant::now();
    let sample = loop {
        let sample = cgroup.sample().unwrap();
        if sample.throttled_periods >= 2 && sample.throttled > Duration::from_millis(20) {
            break sample;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "never throttled: {sample:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(sample.periods >= sample.throttled_periods, "{sample:?}");
    implied_requests(&cgroup);

    write(&throttled.inner.join("cpu.cfs_quota_us"), "2000").unwrap();
    assert_eq!(cgroup.quota_cores(), Some(0.02), "read anew each time; now the child's own is tighter");
    write(&throttled.inner.join("cpu.cfs_quota_us"), "-1").unwrap();
    write(&throttled.outer.join("cpu.cfs_quota_us"), "-1").unwrap();
    assert_eq!(cgroup.quota_cores(), None);
    assert_eq!(cgroup.sample(), None);
}

/// Checks the metrics of a limit: its throttling counters, and the implied requests per second.
fn implied_requests(cgroup: &Cgroup) {
    const IMPLIED: &str = "postern_cpu_limit_implied_requests_per_second";
    let metrics = Metrics::new(1);
    metrics.set_cgroup(cgroup.clone());
    let before = read(&metrics.render(Format::Text), false);
    assert!(before["postern_cgroup_cpu_throttled_periods_total"] >= 2.0);
    assert!(before["postern_cgroup_cpu_throttled_seconds_total"] > 0.02);
    assert!((before["postern_cgroup_cpu_quota_cores"] - 0.05).abs() < 1e-12);
    assert!(!before.contains_key(IMPLIED), "nothing is known of requests yet");
    let worker = metrics.worker(0).unwrap();
    for _ in 0..2000 {
        worker.request_begun();
        worker.request_ended();
    }
    // requests that cost this process half a second of CPU
    let until = telemetry::process::sample().unwrap().cpu + Duration::from_millis(500);
    while telemetry::process::sample().unwrap().cpu < until {}
    let after = read(&metrics.render(Format::Text), false);
    let per_request = after["postern_cpu_seconds_per_request"];
    assert!((250e-6..10e-3).contains(&per_request), "{per_request}");
    assert!((after[IMPLIED] * per_request - 0.05).abs() < 1e-9, "{} x {per_request}", after[IMPLIED]);
}

#[test]
fn the_own_cgroup_can_be_read() {
    // on a machine without cgroups this is None; it must not be an error
    let own = Cgroup::own().unwrap();
    assert!(own.and_then(|own| own.quota_cores()).is_none_or(|cores| cores > 0.0));
}

//! Control groups (version 1): limits of a server's CPU and of its disk.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::faulty::FaultyServer;

/// A control group of one controller; removed when dropped.
struct ControlGroup(PathBuf);

impl ControlGroup {
    /// Creates the group with these settings. The error is the reason why this machine does not
    /// permit it.
    fn new(controller: &str, settings: &[(&str, &str)]) -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("postern-lab-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::SeqCst));
        let folder = Path::new("/sys/fs/cgroup").join(controller).join(name);
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let group = Self(folder);
        settings.iter().try_for_each(|(file, content)| group.write(file, content))?;
        Ok(group)
    }

    fn take(&self, server: &FaultyServer) -> Result<(), String> {
        self.write("cgroup.procs", &server.pid().to_string())
    }

    fn write(&self, file: &str, content: &str) -> Result<(), String> {
        std::fs::write(self.0.join(file), content).map_err(|error| format!("{file}: {error}"))
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A process that has just been ended leaves the group a moment later.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A limit of a server's CPU.
pub(crate) struct CpuLimit {
    group: ControlGroup,
    pub(crate) cores: f64,
}

impl CpuLimit {
    /// Creates the group. The error is the reason why this machine does not permit it.
    pub(crate) fn new(cores: f64) -> Result<Self, String> {
        let quota = format!("{:.0}", cores * 1e5);
        let settings = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", &quota)];
        Ok(Self { group: ControlGroup::new("cpu", &settings)?, cores })
    }

    /// Moves a process into the group.
    pub(crate) fn take(&self, server: &FaultyServer) -> Result<(), String> {
        self.group.take(server)
    }

    /// Number of periods, number of throttled periods, and throttled time in ms.
    pub(super) fn read(&self) -> [u64; 3] {
        let text = std::fs::read_to_string(self.group.0.join("cpu.stat")).unwrap();
        let of = |name: &str| -> u64 {
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
        };
        [of("nr_periods "), of("nr_throttled "), of("throttled_time ") / 1_000_000]
    }
}

/// A limit of how often a server may write to a disk.
pub(crate) struct DiskLimit(ControlGroup);

impl DiskLimit {
    /// Creates the group for the disk with this folder. The error is the reason why this machine
    /// does not permit it.
    pub(crate) fn new(folder: &str, writes_per_s: u32) -> Result<Self, String> {
        let device = rustix::fs::stat(folder).map_err(|error| format!("{folder}: {error}"))?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let limit = format!("{major}:{minor} {writes_per_s}");
        ControlGroup::new("blkio", &[("blkio.throttle.write_iops_device", &limit)]).map(Self)
    }

    /// Moves a process into the group.
    pub(crate) fn take(&self, server: &FaultyServer) -> Result<(), String> {
        self.0.take(server)
    }
}

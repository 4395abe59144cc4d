//! Control groups: resource limits of a component, and the kernel's counters for them.
//!
//! A limit that cannot be set is an error and never ignored. Otherwise a measurement would be
//! reported with a limit that was not in effect.
//!
//! Owns: finding the hierarchy (v1 and v2), creating a group below the lab's own, its limits and
//! counters, and its removal. Does not own: the processes in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Scheduling period in µs: the one that Kubernetes uses.
const PERIOD_US: u64 = 100_000;
/// Shortest quota that the kernel accepts, in µs.
const MIN_QUOTA_US: u64 = 1000;
/// What to do if limits cannot be set.
const REMEDY: &str = "run as root, or with systemd: systemd-run --user --scope -p Delegate=yes -- postern lab run …; \
    or use a scenario without limits";

static NEXT_GROUP_NUMBER: AtomicU32 = AtomicU32::new(0);

/// Resource limits of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// CPU limit in thousandths of a core, on average over a scheduling period of 100 ms.
    pub cpu_millicores: Option<u64>,
    /// Memory limit in bytes.
    pub memory_bytes: Option<u64>,
}

impl Limits {
    /// Whether no limit is set.
    pub fn is_empty(&self) -> bool {
        self.cpu_millicores.is_none() && self.memory_bytes.is_none()
    }
}

/// Why a limit cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The process is in no control group with this controller.
    #[error("this process is in no control group with the controller `{controller}`; {REMEDY}")]
    Missing {
        /// Name of the controller: `cpu` or `memory`.
        controller: &'static str,
    },
    /// Version 2: the controller is not enabled for child groups.
    #[error("`{controller}` is not delegated to groups below {}: {error}; {REMEDY}", folder.display())]
    NotDelegated {
        /// Name of the controller: `cpu` or `memory`.
        controller: &'static str,
        /// Control group of the lab.
        folder: PathBuf,
        /// Error of the kernel.
        error: io::Error,
    },
    /// A file or folder of the group cannot be created or written.
    #[error("cannot {action} {}: {error}; {REMEDY}", path.display())]
    Refused {
        /// Failed action: `make` or `write`.
        action: &'static str,
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the kernel.
        error: io::Error,
    },
}

/// Throttling counters of a group with a CPU limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Throttle {
    /// Scheduling periods in which the group was runnable.
    pub periods: u64,
    /// Periods in which the group used up its quota.
    pub throttled_periods: u64,
    /// Total throttled time in milliseconds, summed over cores.
    pub throttled_ms: u64,
}

/// A control group hierarchy of one version, and the lab's own group in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ControllerMount {
    version: u8,
    folder: PathBuf,
    /// Mount point of the hierarchy.
    mount_point: PathBuf,
}

/// Hierarchies in which groups can be created, by controller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hierarchy {
    cpu: Option<ControllerMount>,
    memory: Option<ControllerMount>,
}

impl Hierarchy {
    /// Detects the hierarchies of this process.
    pub fn detect() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
    }

    /// Parses the texts of `/proc/self/mountinfo` and `/proc/self/cgroup` (proc(5), cgroups(7)).
    fn parse(mounts: &str, groups: &str) -> Self {
        let place = |controller: &str| {
            let own = |wanted: &str| {
                groups.lines().find_map(|line| {
                    let mut parts = line.splitn(3, ':');
                    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
                    let here = if wanted.is_empty() {
                        number == "0"
                    } else {
                        controllers.split(',').any(|c| c == wanted)
                    };
                    here.then(|| path.to_owned())
                })
            };
            let found = |version: u8| {
                mounts.lines().find_map(|line| {
                    let (mount, file_system) = line.split_once(" - ")?;
                    let mut kind = file_system.split(' ');
                    let named = match kind.next()? {
                        "cgroup" if version == 1 => {
                            kind.nth(1)?.split(',').any(|option| option == controller)
                        }
                        "cgroup2" => version == 2,
                        _ => false,
                    };
                    let fields: Vec<&str> = mount.split(' ').collect();
                    let (root, point) = (fields.get(3)?, fields.get(4)?);
                    let path = own(if version == 1 { controller } else { "" })?;
                    let below =
                        if *root == "/" { path.as_str() } else { path.strip_prefix(root).unwrap_or("") };
                    let folder = PathBuf::from(point).join(below.trim_start_matches('/'));
                    named.then_some(ControllerMount { version, folder, mount_point: PathBuf::from(point) })
                })
            };
            found(1).or_else(|| found(2))
        };
        Self { cpu: place("cpu"), memory: place("memory") }
    }

    /// Creates a group with these limits for a component.
    ///
    /// # Errors
    /// A controller is missing or not delegated, or a file cannot be written.
    pub fn group(&self, name: &str, limits: Limits) -> Result<ComponentGroup, CgroupError> {
        let mut group = ComponentGroup { cpu: None, memory: None, folders: Vec::new(), limits };
        let label = format!(
            "postern-lab-{}-{}-{name}",
            std::process::id(),
            NEXT_GROUP_NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        if let Some(millicores) = limits.cpu_millicores {
            let place = self.cpu.as_ref().ok_or(CgroupError::Missing { controller: "cpu" })?;
            let folder = group.make(place, "cpu", &label)?;
            let quota = (millicores * PERIOD_US / 1000).max(MIN_QUOTA_US);
            if place.version == 1 {
                write(&folder.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                write(&folder.join("cpu.cfs_quota_us"), &quota.to_string())?;
            } else {
                write(&folder.join("cpu.max"), &format!("{quota} {PERIOD_US}"))?;
            }
            group.cpu = Some(folder);
        }
        if let Some(bytes) = limits.memory_bytes {
            let place = self.memory.as_ref().ok_or(CgroupError::Missing { controller: "memory" })?;
            let folder = group.make(place, "memory", &label)?;
            let file = if place.version == 1 { "memory.limit_in_bytes" } else { "memory.max" };
            write(&folder.join(file), &bytes.to_string())?;
            let events = if place.version == 1 { "memory.oom_control" } else { "memory.events" };
            group.memory = Some(folder.join(events));
        }
        Ok(group)
    }

    /// Version and limits of the group that contains this process; `None` outside a group.
    pub fn own_limits(&self) -> Option<(u8, Option<f64>, Option<u64>)> {
        let version = self.cpu.as_ref().or(self.memory.as_ref())?.version;
        let cpu = self.cpu.as_ref().and_then(|place| cpu_limit(&place.folder));
        Some((version, cpu, self.memory.as_ref().and_then(|place| memory_limit(&place.folder))))
    }
}

impl ControllerMount {
    /// The group below which groups with this controller can be created.
    fn parent(&self, controller: &'static str) -> Result<&Path, CgroupError> {
        if self.version == 1 {
            return Ok(&self.folder);
        }
        if !listed(&self.folder.join("cgroup.controllers"), controller) {
            return Err(CgroupError::Missing { controller });
        }
        match self.delegate(controller) {
            Ok(()) => Ok(&self.folder),
            // The root group can contain processes and still enable controllers. Whether this
            // process may create a group there is checked at creation.
            Err(_) if listed(&self.mount_point.join("cgroup.subtree_control"), controller) => {
                Ok(&self.mount_point)
            }
            Err(error) => Err(error),
        }
    }

    /// Enables a controller of version 2 for child groups of the lab's own group.
    fn delegate(&self, controller: &'static str) -> Result<(), CgroupError> {
        let control = self.folder.join("cgroup.subtree_control");
        if listed(&control, controller) {
            return Ok(());
        }
        let give = || fs::write(&control, format!("+{controller}"));
        let Err(error) = give() else { return Ok(()) };
        let refused = |error| CgroupError::NotDelegated { controller, folder: self.folder.clone(), error };
        // A group that enables controllers must not contain processes (cgroups(7), "no internal
        // processes"). If the lab is the only process of its group, it moves itself to a child
        // group.
        let own = std::process::id().to_string();
        let held = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        if held.split_whitespace().ne([own.as_str()]) {
            return Err(refused(error));
        }
        let aside = self.folder.join("postern-lab");
        fs::create_dir_all(&aside).map_err(refused)?;
        fs::write(aside.join("cgroup.procs"), &own).map_err(refused)?;
        give().map_err(refused)
    }
}

/// Control group of a component; removed when dropped.
#[derive(Debug)]
pub struct ComponentGroup {
    cpu: Option<PathBuf>,
    /// File with the counter of processes that the kernel killed for lack of memory.
    memory: Option<PathBuf>,
    folders: Vec<PathBuf>,
    limits: Limits,
}

impl ComponentGroup {
    fn make(
        &mut self,
        place: &ControllerMount,
        controller: &'static str,
        label: &str,
    ) -> Result<PathBuf, CgroupError> {
        let folder = place.parent(controller)?.join(label);
        if !self.folders.contains(&folder) {
            let refused = |error| CgroupError::Refused { action: "make", path: folder.clone(), error };
            fs::create_dir(&folder).map_err(refused)?;
            self.folders.push(folder.clone());
        }
        Ok(folder)
    }

    /// Files to which a process writes its process ID to enter the group.
    pub fn procs_files(&self) -> impl Iterator<Item = PathBuf> {
        self.folders.iter().map(|folder| folder.join("cgroup.procs"))
    }

    /// Limits of the group.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// File with the throttling counters; `None` without a CPU limit.
    pub fn cpu_stat_file(&self) -> Option<PathBuf> {
        self.cpu.as_ref().map(|folder| folder.join("cpu.stat"))
    }

    /// File with the counter of killed processes; `None` without a memory limit.
    pub fn memory_events_file(&self) -> Option<PathBuf> {
        self.memory.clone()
    }

    /// Process IDs of the processes in the group.
    pub fn processes(&self) -> Vec<u32> {
        let texts = self.procs_files().filter_map(|door| fs::read_to_string(door).ok());
        texts.flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>()).collect()
    }
}

impl Drop for ComponentGroup {
    fn drop(&mut self) {
        for folder in self.folders.iter().rev() {
            // The last process of the group may not have ended completely.
            for _ in 0..100 {
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Number of processes of a group that the kernel killed for lack of memory: the line `oom_kill` of
/// `memory.events` (version 2) or `memory.oom_control` (version 1, since Linux 4.13).
pub fn oom_kills(events: &Path) -> Option<u64> {
    field(&fs::read_to_string(events).ok()?, "oom_kill")
}

/// Number after a name, in a text with one pair per line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Reads the throttling counters of a group from its `cpu.stat`, of either version.
pub fn throttle(counters: &Path) -> Option<Throttle> {
    let text = fs::read_to_string(counters).ok()?;
    let field = |name: &str| field(&text, name);
    let millis = field("throttled_time").map(|nanos| nanos / 1_000_000);
    Some(Throttle {
        periods: field("nr_periods")?,
        throttled_periods: field("nr_throttled")?,
        throttled_ms: millis.or_else(|| field("throttled_usec").map(|micros| micros / 1000))?,
    })
}

/// CPU limit of a group in cores; `None` without a limit.
fn cpu_limit(folder: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let cores = |quota: &str, period: &str| -> Option<f64> {
        let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    };
    if let Some(text) = read("cpu.max") {
        let (quota, period) = text.split_once(' ')?;
        return cores(quota, period);
    }
    cores(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
}

/// Memory limit of a group in bytes; `None` without a limit.
fn memory_limit(folder: &Path) -> Option<u64> {
    let text = ["memory.max", "memory.limit_in_bytes"]
        .iter()
        .find_map(|name| fs::read_to_string(folder.join(name)).ok())?;
    // Version 1 reports a number near the maximum if there is no limit.
    text.trim().parse().ok().filter(|bytes| *bytes < 1 << 50)
}

fn listed(file: &Path, word: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|listed| listed == word))
}

fn write(path: &Path, text: &str) -> Result<(), CgroupError> {
    fs::write(path, text).map_err(|error| CgroupError::Refused {
        action: "write",
        path: path.to_path_buf(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        36 31 0:33 /job /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    fn mount(version: u8, folder: &str, top: &str) -> ControllerMount {
        ControllerMount { version, folder: folder.into(), mount_point: top.into() }
    }

    #[test]
    fn the_own_group_is_found_in_either_version() {
        let found = Hierarchy::parse(V1, "4:memory:/job/42\n1:cpu,cpuacct:/a/b\n0::/c");
        assert_eq!(found.cpu.unwrap(), mount(1, "/sys/fs/cgroup/cpu/a/b", "/sys/fs/cgroup/cpu"));
        // The mount begins at the job's group.
        assert_eq!(found.memory.unwrap(), mount(1, "/sys/fs/cgroup/memory/42", "/sys/fs/cgroup/memory"));
        let found =
            Hierarchy::parse("41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "0::/user.slice/x.scope");
        let own = mount(2, "/sys/fs/cgroup/user.slice/x.scope", "/sys/fs/cgroup");
        assert_eq!((found.cpu.unwrap(), found.memory.unwrap()), (own.clone(), own));
        assert_eq!(Hierarchy::parse("", ""), Hierarchy::default());
    }

    #[test]
    fn without_a_hierarchy_the_error_says_what_is_missing_and_what_to_do() {
        let limits = Limits { cpu_millicores: Some(50), memory_bytes: None };
        let error = Hierarchy::default().group("a", limits).unwrap_err().to_string();
        assert!(
            error.contains("`cpu`") && error.contains("root") && error.contains("systemd-run"),
            "{error}"
        );
    }

    /// A folder with the files of a version 2 group, without the behavior of a kernel.
    fn version_2(delegated: &str) -> (tempfile::TempDir, Hierarchy) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "cpuset cpu memory").unwrap();
        fs::write(folder.path().join("cgroup.subtree_control"), delegated).unwrap();
        let top = folder.path().join("top");
        let place = ControllerMount { version: 2, folder: folder.path().to_path_buf(), mount_point: top };
        let hierarchy = Hierarchy { cpu: Some(place.clone()), memory: Some(place) };
        (folder, hierarchy)
    }

    #[test]
    fn limits_of_version_2_stand_in_one_group() {
        let (folder, hierarchy) = version_2("cpu memory pids");
        let limits = Limits { cpu_millicores: Some(50), memory_bytes: Some(64 << 20) };
        let group = hierarchy.group("proxy", limits).unwrap();
        let made = &group.folders[0];
        assert_eq!(group.procs_files().collect::<Vec<_>>(), [made.join("cgroup.procs")]);
        assert_eq!(fs::read_to_string(made.join("cpu.max")).unwrap(), "5000 100000");
        assert_eq!((cpu_limit(made), memory_limit(made)), (Some(0.05), Some(64 << 20)));
        fs::write(
            made.join("cpu.stat"),
            "usage_usec 9\nnr_periods 100\nnr_throttled 40\nthrottled_usec 2500000\n",
        )
        .unwrap();
        let seen = throttle(&group.cpu_stat_file().unwrap()).unwrap();
        assert_eq!(seen, Throttle { periods: 100, throttled_periods: 40, throttled_ms: 2500 });
        let events = group.memory_events_file().unwrap();
        assert_eq!(oom_kills(&events), None, "nobody has counted yet");
        fs::write(&events, "low 0\nhigh 0\nmax 31\noom 4\noom_kill 2\noom_group_kill 0\n").unwrap();
        assert_eq!(oom_kills(&events), Some(2));
        for file in ["cpu.max", "memory.max", "cpu.stat", "memory.events"] {
            fs::remove_file(made.join(file)).unwrap();
        }
        drop(group);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the group is removed");
    }

    #[test]
    fn what_is_not_delegated_is_an_error() {
        let (folder, hierarchy) = version_2("");
        // A file that cannot be written, like the kernel's refusal if other processes are in the
        // group.
        fs::remove_file(folder.path().join("cgroup.subtree_control")).unwrap();
        fs::create_dir(folder.path().join("cgroup.subtree_control")).unwrap();
        fs::write(folder.path().join("cgroup.procs"), "1\n2\n").unwrap();
        let limits = Limits { cpu_millicores: Some(50), memory_bytes: None };
        let error = hierarchy.group("a", limits).unwrap_err().to_string();
        assert!(error.contains("not delegated") && error.contains("systemd-run"), "{error}");
        // Root can create groups at the mount point, where controllers are enabled.
        let top = folder.path().join("top");
        fs::create_dir(&top).unwrap();
        fs::write(top.join("cgroup.subtree_control"), "cpu memory").unwrap();
        let group = hierarchy.group("a", limits).unwrap();
        assert!(group.folders[0].starts_with(&top), "{group:?}");
    }

    #[test]
    fn counters_of_version_1_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "nr_periods 7\nnr_throttled 3\nthrottled_time 2000000000\n").unwrap();
        let seen = throttle(file.path()).unwrap();
        assert_eq!(seen, Throttle { periods: 7, throttled_periods: 3, throttled_ms: 2000 });
        assert_eq!(throttle(Path::new("/nowhere")), None);
    }
}

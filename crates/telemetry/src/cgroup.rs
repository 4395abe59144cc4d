//! Cgroup: the CPU quota of this process, and how often it was throttled.
//!
//! Owns: finding the process's cgroup (v1 and v2, in containers or not), and the smallest CPU quota
//! among it and its parents. Also the throttling counters of the cgroup with that quota. Does not
//! own: how they are used ([`suggested_workers`] is a suggestion that the binary follows).
//!
//! Flow: `/proc/PID/cgroup + /proc/PID/mountinfo → directory → quota of it and its parents →
//! Cgroup::sample`.
//!
//! A process that exceeds its quota is stopped until the next period, usually 100 ms. Latency grows
//! by tenths of a second although the CPU looks idle. More threads than the quota has cores only
//! cause this earlier, which is why the number of workers depends on it.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The cgroup directories that can limit the CPU time of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    version: Version,
    /// Directories from the process's own cgroup up to the mount point.
    directories: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A CPU quota, and its throttling counters since the cgroup was created.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuLimit {
    /// CPU time per period divided by the length of the period; 0.05 is `50m` in Kubernetes.
    pub quota_cores: f64,
    /// Enforcement periods in which any process of the cgroup ran.
    pub periods: u64,
    /// Periods in which the quota was used up.
    pub throttled_periods: u64,
    /// Time that threads of the cgroup were throttled, summed over cores.
    pub throttled: Duration,
}

impl Cgroup {
    /// The cgroup of this process; `None`: no mounted hierarchy controls the CPU.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn own() -> io::Result<Option<Self>> {
        Self::of_process(Path::new("/proc/self"))
    }

    /// The cgroup of the process with this directory under `/proc`.
    ///
    /// # Errors
    /// As [`Cgroup::own`].
    pub fn of_process(process: &Path) -> io::Result<Option<Self>> {
        let membership = fs::read_to_string(process.join("cgroup"))?;
        let mounts = fs::read_to_string(process.join("mountinfo"))?;
        Ok(Self::find(&membership, &mounts))
    }

    /// Like [`Cgroup::of_process`], from the texts. A v1 hierarchy with the `cpu` controller takes
    /// precedence: where one is mounted, alone or beside an empty v2 hierarchy, v2 cannot have the
    /// controller.
    fn find(membership: &str, mounts: &str) -> Option<Self> {
        let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
        let (version, mount) = mounts
            .iter()
            .find(|mount| mount.kind == "cgroup" && mount.options.split(',').any(|option| option == "cpu"))
            .map(|mount| (Version::V1, mount))
            .or_else(|| Some((Version::V2, mounts.iter().find(|mount| mount.kind == "cgroup2")?)))?;
        let path = cgroup_path(membership, version)?;
        Some(Self { version, directories: cgroup_directories(mount, path) })
    }

    /// The smallest CPU quota of the process's cgroup and its parents, in cores; `None`: unlimited.
    pub fn quota_cores(&self) -> Option<f64> {
        Some(self.smallest_quota()?.1)
    }

    /// The smallest quota and its throttling counters, read now; `None`: unlimited. Counters that
    /// cannot be read are zero.
    pub fn sample(&self) -> Option<CpuLimit> {
        let (group, quota_cores) = self.smallest_quota()?;
        let stat = fs::read_to_string(group.join("cpu.stat")).unwrap_or_default();
        Some(parse_stat(&stat, quota_cores))
    }

    /// A quota applies to all cgroups below, so the smallest one is effective, and only the cgroup
    /// that has it counts the throttling.
    fn smallest_quota(&self) -> Option<(&Path, f64)> {
        self.directories
            .iter()
            .filter_map(|group| Some((group.as_path(), self.quota_of(group)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn quota_of(&self, group: &Path) -> Option<f64> {
        let read = |file: &str| fs::read_to_string(group.join(file)).ok();
        match self.version {
            Version::V1 => quota(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?),
            Version::V2 => {
                let text = read("cpu.max")?;
                let (quota_us, period_us) = text.trim().split_once(' ')?;
                quota(quota_us, period_us)
            }
        }
    }
}

/// Number of cores this process may use by its affinity mask, cpusets included, without the CPU
/// quota; at least 1. The standard library's value includes the quota, rounded down: a quota of 1.9
/// cores would give one worker.
pub fn available_cores() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    allowed_cores(&status).or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1)
}

/// Counts the cores in `Cpus_allowed_list` of `/proc/PID/status`, such as `0-3,8,10-11`.
fn allowed_cores(status: &str) -> Option<usize> {
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut cores = 0;
    for range in allowed.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        cores += last.checked_sub(first)? + 1;
    }
    Some(cores)
}

/// Suggested number of workers: the quota in cores, rounded up, at most `available`
/// ([`available_cores`]), at least one.
pub fn suggested_workers(quota_cores: Option<f64>, available: usize) -> usize {
    let available = available.max(1);
    match quota_cores {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to 1..=available"
        )]
        Some(cores) if cores.is_finite() => cores.ceil().clamp(1.0, available as f64) as usize,
        _ => available,
    }
}

/// Quota in cores from microseconds of CPU time per microseconds of period. `-1` (v1) and `max`
/// (v2) mean unlimited.
fn quota(quota_us: &str, period_us: &str) -> Option<f64> {
    let quota_us: u64 = quota_us.trim().parse().ok()?;
    let period_us: u64 = period_us.trim().parse().ok()?;
    (period_us > 0).then(|| quota_us as f64 / period_us as f64)
}

/// Parses `cpu.stat` of both versions: v1 counts nanoseconds (`throttled_time`), v2 microseconds
/// (`throttled_usec`).
fn parse_stat(text: &str, quota_cores: f64) -> CpuLimit {
    let mut limit = CpuLimit { quota_cores, periods: 0, throttled_periods: 0, throttled: Duration::ZERO };
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let Ok(value) = value.trim().parse::<u64>() else { continue };
        match name {
            "nr_periods" => limit.periods = value,
            "nr_throttled" => limit.throttled_periods = value,
            "throttled_time" => limit.throttled = Duration::from_nanos(value),
            "throttled_usec" => limit.throttled = Duration::from_micros(value),
            _ => {}
        }
    }
    limit
}

/// The process's path in the hierarchy, from the `id:controllers:path` lines of `/proc/PID/cgroup`
/// (cgroups(7)).
fn cgroup_path(membership: &str, version: Version) -> Option<&str> {
    membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let found = match version {
            Version::V1 => controllers.split(',').any(|controller| controller == "cpu"),
            Version::V2 => id == "0" && controllers.is_empty(),
        };
        found.then_some(path)
    })
}

/// A line of `/proc/PID/mountinfo` (proc(5)).
#[derive(Debug)]
struct Mount {
    /// The directory of the hierarchy that is mounted at `point`.
    root: PathBuf,
    point: PathBuf,
    kind: String,
    options: String,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        // a variable number of optional fields ends with a single hyphen
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, _source, options) = (after.next()?, after.next()?, after.next()?);
        Some(Self {
            root: unescape(root).into(),
            point: unescape(point).into(),
            kind: kind.to_owned(),
            options: options.to_owned(),
        })
    }
}

/// Decodes the kernel's octal escapes (`\040`) for space, tab, newline and backslash.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        match after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if byte.is_ascii() => {
                out.push(byte.into());
                rest = &after[3..];
            }
            _ => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// The directories from the process's cgroup up to the mount point.
///
/// `path` is relative to the root of the hierarchy, the mount to its own `root`. In a container
/// without a cgroup namespace both are the full path of the cgroup, and the mount shows it as its
/// top. If `path` is not below the mount's root, only the mount point is visible; seen from within
/// a namespace it may even start with `/..`.
fn cgroup_directories(mount: &Mount, path: &str) -> Vec<PathBuf> {
    let relative = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let relative = if relative.components().all(|part| matches!(part, Component::Normal(_))) {
        relative
    } else {
        Path::new("")
    };
    relative.ancestors().map(|part| mount.point.join(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2_HOST: &str = "25 30 0:24 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
    const V1_CONTAINER: &str = "\
690 689 0:61 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755
691 690 0:31 /docker/4f2a /sys/fs/cgroup/systemd ro,nosuid master:11 - cgroup cgroup rw,xattr,name=systemd
692 690 0:36 /docker/4f2a /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:16 - cgroup cgroup rw,cpu,cpuacct
693 690 0:40 /docker/4f2a /sys/fs/cgroup/cpuset ro,nosuid master:20 - cgroup cgroup rw,cpuset
";

    fn found(membership: &str, mounts: &str) -> (Version, Vec<String>) {
        let cgroup = Cgroup::find(membership, mounts).unwrap();
        (cgroup.version, cgroup.directories.iter().map(|group| group.to_str().unwrap().to_owned()).collect())
    }

    #[test]
    fn v2_on_a_host() {
        assert_eq!(
            found("0::/system.slice/postern.service\n", V2_HOST),
            (
                Version::V2,
                vec![
                    "/sys/fs/cgroup/system.slice/postern.service".into(),
                    "/sys/fs/cgroup/system.slice".into(),
                    "/sys/fs/cgroup/".into()
                ]
            )
        );
    }

    #[test]
    fn v2_in_a_namespace_sees_itself_as_root() {
        assert_eq!(found("0::/\n", V2_HOST), (Version::V2, vec!["/sys/fs/cgroup/".into()]));
        assert_eq!(found("0::/../sibling\n", V2_HOST), (Version::V2, vec!["/sys/fs/cgroup/".into()]));
    }

    #[test]
    fn v1_in_a_container_without_a_namespace() {
        let membership =
            "12:cpuset:/docker/4f2a\n7:cpu,cpuacct:/docker/4f2a/inner\n1:name=systemd:/docker/4f2a\n0::/\n";
        assert_eq!(
            found(membership, V1_CONTAINER),
            (
                Version::V1,
                vec!["/sys/fs/cgroup/cpu,cpuacct/inner".into(), "/sys/fs/cgroup/cpu,cpuacct/".into()]
            )
        );
        let elsewhere = "7:cpuacct,cpu:/kubepods/pod1\n";
        assert_eq!(found(elsewhere, V1_CONTAINER).1, ["/sys/fs/cgroup/cpu,cpuacct/"]);
    }

    #[test]
    fn v1_wins_beside_an_empty_v2() {
        let mounts = format!("{V1_CONTAINER}{V2_HOST}");
        assert_eq!(found("7:cpu,cpuacct:/docker/4f2a\n0::/x\n", &mounts).0, Version::V1);
    }

    #[test]
    fn no_cpu_controller_no_cgroup() {
        assert_eq!(Cgroup::find("", ""), None);
        assert_eq!(
            Cgroup::find(
                "4:memory:/x\n",
                "691 690 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            ),
            None
        );
        assert_eq!(Cgroup::find("1:name=cpu:/x\n", V1_CONTAINER), None);
        assert_eq!(Cgroup::find("nonsense", "nonsense - too"), None);
    }

    #[test]
    fn mount_points_with_blanks() {
        assert_eq!(unescape(r"/a\040b\134c\011"), "/a b\\c\t");
        assert_eq!(unescape(r"/a\9"), r"/a\9");
        assert_eq!(unescape("/ä\\"), "/ä\\");
    }

    #[test]
    fn quotas_of_both_versions() {
        assert_eq!(quota("-1\n", "100000\n"), None);
        assert_eq!(quota("max", "100000"), None);
        assert_eq!(quota("5000\n", "100000\n"), Some(0.05));
        assert_eq!(quota("250000", "100000"), Some(2.5));
        assert_eq!(quota("1", "0"), None);
    }

    #[test]
    fn throttling_of_both_versions() {
        let v1 = parse_stat("nr_periods 120\nnr_throttled 30\nthrottled_time 1500000000\nnr_bursts 0\n", 0.5);
        let v2 = parse_stat(
            "usage_usec 9\nuser_usec 5\nnr_periods 120\nnr_throttled 30\nthrottled_usec 1500000\n",
            0.5,
        );
        assert_eq!(v1, v2);
        assert_eq!((v1.periods, v1.throttled_periods, v1.throttled), (120, 30, Duration::from_millis(1500)));
        assert_eq!(parse_stat("nr_periods x\n\n", 1.0).periods, 0);
    }

    #[test]
    fn cores_by_affinity() {
        let cores = |list: &str| allowed_cores(&format!("Name:\tx\nCpus_allowed_list:\t{list}\nMems:\t0\n"));
        assert_eq!(cores("0-3,8,10-11"), Some(7));
        assert_eq!(cores("5"), Some(1));
        for broken in ["", "3-1", "a-b", "1,"] {
            assert_eq!(cores(broken), None, "{broken}");
        }
        assert_eq!(allowed_cores("Name:\tx\n"), None);
        assert!(available_cores() >= 1);
    }

    #[test]
    fn workers_follow_the_quota() {
        for (quota, available, expected) in [
            (None, 8, 8),
            (None, 0, 1),
            (Some(0.05), 8, 1),
            (Some(1.0), 8, 1),
            (Some(1.5), 8, 2),
            (Some(64.0), 8, 8),
            (Some(0.0), 8, 1),
            (Some(f64::NAN), 8, 8),
        ] {
            assert_eq!(suggested_workers(quota, available), expected, "{quota:?} of {available}");
        }
    }
}

//! Self usage: CPU time of the generator's own thread, and CPU steal of its machine. Check both
//! before trusting the generator's figures.

use std::fs;
use std::time::{Duration, Instant};

use lab_analysis::units::nanos;

/// Usage of the calling thread since it started, or between two moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelfUsage {
    at: Instant,
    /// Nanoseconds between the two moments.
    pub(crate) wall: u64,
    /// Nanoseconds on a core; `None` if the kernel does not report it.
    pub(crate) running: Option<u64>,
    /// Nanoseconds ready to run but waiting for a core; `None` if the kernel does not report it.
    pub(crate) waiting: Option<u64>,
    /// CPU time of the machine; `None` if the kernel does not report it.
    machine: Option<Ticks>,
}

/// Fewest ticks from which a share is computed: one tick more or less is then 1 % of them.
const MIN_TICKS: u64 = 100;

/// CPU time of all cores of a machine, in kernel clock ticks.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    /// Time that the hypervisor gave to other guests while this machine had work to do (steal).
    stolen: u64,
    /// Time of all kinds, idle time included.
    total: u64,
}

impl Ticks {
    /// Reads the kernel's CPU times, summed over all cores.
    fn read() -> Option<Self> {
        Self::from_stat(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line of `/proc/stat` (proc(5)): user, nice, system, idle, iowait, irq,
    /// softirq, steal. Guest time is part of the first two.
    fn from_stat(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let kinds: Vec<u64> =
            line.split_ascii_whitespace().take(8).map_while(|kind| kind.parse().ok()).collect();
        Some(Self { stolen: *kinds.get(7)?, total: kinds.iter().sum() })
    }
}

impl SelfUsage {
    /// Reads the kernel's scheduling data of this thread.
    pub(crate) fn read() -> Self {
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().ok());
        // The first number, the time on a core, lags by up to one tick. The thread CPU clock does
        // not.
        let _ = numbers.next();
        let waiting = numbers.next().flatten();
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let running = Duration::try_from(clock).ok().map(nanos);
        Self { at: Instant::now(), wall: 0, running, waiting, machine: Ticks::read() }
    }

    /// Usage between this reading and `later`.
    pub(crate) fn delta(self, later: Self) -> Self {
        let between = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?));
        Self {
            at: later.at,
            wall: nanos(later.at.saturating_duration_since(self.at)),
            running: between(self.running, later.running),
            waiting: between(self.waiting, later.waiting),
            machine: self.machine.zip(later.machine).map(|(from, to)| Ticks {
                stolen: to.stolen.saturating_sub(from.stolen),
                total: to.total.saturating_sub(from.total),
            }),
        }
    }

    /// Share of the machine's CPU time that was stolen. `None` if the kernel does not report it, or
    /// if too few ticks have passed.
    pub(crate) fn stolen_share(&self) -> Option<f64> {
        self.machine
            .filter(|ticks| ticks.total >= MIN_TICKS)
            .map(|ticks| ticks.stolen as f64 / ticks.total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_gave_to_others_is_a_share_of_all_time() {
        let ticks = |text| Ticks::from_stat(text).map(|ticks| (ticks.stolen, ticks.total));
        assert_eq!(ticks("cpu  10 1 20 100 5 2 2 60 9 9\ncpu0 1 1 1 1 1 1 1 1\n"), Some((60, 200)));
        assert_eq!(ticks("cpu  10 1 20 100\n"), None, "a kernel before 2.6.11");
        assert_eq!(ticks(""), None);
        let at = |stolen, all| SelfUsage { machine: Some(Ticks { stolen, total: all }), ..SelfUsage::read() };
        assert_eq!(at(100, 1000).delta(at(150, 1200)).stolen_share(), Some(0.25));
        assert_eq!(at(100, 1000).delta(at(100, 1000)).stolen_share(), None);
        assert_eq!(at(100, 1000).delta(at(101, 1008)).stolen_share(), None, "one tick of eight is no eighth");
    }

    #[test]
    fn time_on_a_core_is_counted() {
        let before = SelfUsage::read();
        let mut sum = 0_u64;
        while before.at.elapsed().as_millis() < 60 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        let used = before.delta(SelfUsage::read());
        assert!(used.wall >= 60_000_000);
        let running = used.running.expect("this kernel tells");
        let waiting = used.waiting.expect("this kernel tells");
        // On a busy machine the thread waits for a core part of the time. The sum of both is the
        // wall time.
        assert!(running + waiting > 50_000_000, "{used:?}");
        assert!(running <= used.wall + 10_000_000, "{used:?}");
    }
}

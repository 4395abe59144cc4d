//! Script: folds the text of `perf script` into stacks (perf-script(1)).
//!
//! Owns: the parser, names of functions and threads, and how long a thread was off its core. Does
//! not own: running `perf`.
//!
//! A sample is a head, then one line per frame from the innermost on, then an empty line:
//!
//! ```text
//! echo-0 27206/27208  1632.058605123:    5025125 cpu-clock:
//!             7df6d81 mio::event::event::Event::token (/opt/postern)
//!             7dc52a6 tokio::runtime::io::driver::Driver::turn (/opt/postern)
//! ```
//!
//! A switch is a line of its own: `echo-0 27206/27208  1632.058605123: PERF_RECORD_SWITCH IN`. A thread
//! is off its core from the sample of the switch to the next `IN`. That includes the wait for a core
//! after it was woken. A thread that lost its core although it could run (`OUT preempt`) waits only for
//! a core.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::ComponentStacks;

/// Frames that belong to the switch itself.
const SWITCH_FRAMES: [&str; 4] = ["__schedule", "schedule", "preempt_schedule_common", "__cond_resched"];
/// Frame of a thread that could run.
const PREEMPTED: &str = "[preempted: waits for a core]";
/// Frame in place of the outer frames that were not in the copied part of the stack.
const CUT: &str = "[outer frames not recorded]";
/// First address of the kernel, on both architectures with 64 bits.
const KERNEL: u64 = 0xffff_0000_0000_0000;

/// Head of a sample or of a switch.
#[derive(Debug, PartialEq)]
struct Head<'a> {
    thread: &'a str,
    pid: u32,
    tid: u32,
    ns: u64,
    /// What follows the time.
    rest: &'a str,
}

impl<'a> Head<'a> {
    /// Parses `comm pid/tid seconds: rest`; `None` for any other line. The name of a thread may
    /// contain spaces and colons.
    fn parse(line: &'a str) -> Option<Self> {
        line.match_indices(": ").find_map(|(at, _)| Self::of_parts(&line[..at], &line[at + 2..]))
    }

    fn of_parts(before: &'a str, rest: &'a str) -> Option<Self> {
        let (before, time) = before.trim().rsplit_once(char::is_whitespace)?;
        let (thread, ids) = before.trim().rsplit_once(char::is_whitespace).unwrap_or(("", before.trim()));
        let (pid, tid) = ids.split_once('/')?;
        let (seconds, fraction) = time.split_once('.')?;
        let fraction = format!("{fraction:0<9}");
        let ns = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
        Some(Self {
            thread: thread.trim(),
            pid: pid.parse().ok()?,
            tid: tid.parse().ok()?,
            ns: ns.checked_add(fraction.get(..9)?.parse().ok()?)?,
            rest: rest.trim(),
        })
    }
}

/// A frame of a sample.
fn frame(line: &str) -> Option<String> {
    let (address, rest) = line.trim().split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let (symbol, object) = rest
        .rsplit_once(" (")
        .map_or((rest, ""), |(symbol, object)| (symbol, object.strip_suffix(')').unwrap_or(object)));
    if symbol == "[unknown]" {
        let object = object.rsplit('/').next().filter(|object| !matches!(*object, "" | "[unknown]"));
        // An address without symbol and file is not a return address.
        return Some(
            object.map_or_else(|| CUT.to_owned(), |object| format!("[{}]", object.trim_matches(['[', ']']))),
        );
    }
    let name = function_name(symbol);
    Some(if address >= KERNEL { format!("{name}_[k]") } else { name })
}

/// Name of a function for people: demangled, without the hash of a Rust symbol.
fn function_name(symbol: &str) -> String {
    let mut name = String::new();
    // A symbol that is not one of Rust stays as it is.
    let _ = write!(name, "{:#}", rustc_demangle::demangle(symbol));
    // `perf` itself demangles former symbols, with their hash.
    let without = name
        .rsplit_once("::h")
        .filter(|(_, hash)| hash.len() == 16 && hash.chars().all(|digit| digit.is_ascii_hexdigit()));
    without.map_or(name.clone(), |(name, _)| name.to_owned())
}

/// Name of a thread without its number, so that workers of one kind are one.
pub(super) fn thread_name(name: &str) -> String {
    let kind = name.trim_end_matches(|last: char| last.is_ascii_digit());
    if kind.is_empty() || kind.len() == name.len() { name.to_owned() } else { format!("{kind}*") }
}

/// Frames of a sample, the outermost first, below the name of its thread. Equal neighbours that stand
/// for unknown frames are one.
fn stack(thread: &str, inner_first: Vec<String>) -> Vec<String> {
    let mut frames = vec![thread_name(thread)];
    frames.extend(inner_first.into_iter().rev());
    frames.dedup_by(|a, b| a == b && a.starts_with('['));
    frames
}

/// Reads ticks of the CPU clock.
pub(super) struct TickReader<'a> {
    owner: &'a dyn Fn(u32) -> Option<String>,
    owners: BTreeMap<u32, Option<String>>,
    stacks: ComponentStacks,
}

impl<'a> TickReader<'a> {
    pub(super) fn new(owner: &'a dyn Fn(u32) -> Option<String>) -> Self {
        Self { owner, owners: BTreeMap::new(), stacks: ComponentStacks::default() }
    }

    pub(super) fn read(mut self, next: &mut dyn FnMut() -> Option<String>) -> ComponentStacks {
        while let Some(line) = next() {
            let Some(head) = Head::parse(&line) else { continue };
            // The period of the clock, in nanoseconds, is before the name of the event.
            let period =
                head.rest.split_ascii_whitespace().next().and_then(|period| period.parse::<u64>().ok());
            let (Some(period), frames) = (period, frames(next)) else { continue };
            let owner = self.owners.entry(head.pid).or_insert_with(|| (self.owner)(head.pid));
            if let Some(owner) = owner {
                self.stacks.add(owner, stack(head.thread, frames), period as f64 / 1e3);
            }
        }
        self.stacks
    }
}

/// Frames until the next empty line.
fn frames(next: &mut dyn FnMut() -> Option<String>) -> Vec<String> {
    let mut frames = Vec::new();
    while let Some(line) = next().filter(|line| !line.trim().is_empty()) {
        frames.extend(frame(&line));
    }
    frames
}

/// A thread off its core.
struct OffCore {
    pid: u32,
    since_ns: u64,
    frames: Vec<String>,
}

/// Reads switches to other threads.
pub(super) struct SwitchReader<'a> {
    owner: &'a dyn Fn(u32) -> Option<String>,
    owners: BTreeMap<u32, Option<String>>,
    off_core: BTreeMap<u32, OffCore>,
    stacks: ComponentStacks,
}

impl<'a> SwitchReader<'a> {
    pub(super) fn new(owner: &'a dyn Fn(u32) -> Option<String>) -> Self {
        Self { owner, owners: BTreeMap::new(), off_core: BTreeMap::new(), stacks: ComponentStacks::default() }
    }

    pub(super) fn read(mut self, next: &mut dyn FnMut() -> Option<String>) -> ComponentStacks {
        let mut last = 0;
        while let Some(line) = next() {
            let Some(head) = Head::parse(&line) else { continue };
            last = last.max(head.ns);
            if head.rest.starts_with("PERF_RECORD_SWITCH IN") {
                self.back_on_core(head.tid, head.ns);
            } else if head.rest.starts_with("PERF_RECORD_SWITCH OUT") {
                let preempted = head.rest.contains("preempt");
                if let Some(off) = self.off_core.get_mut(&head.tid).filter(|_| preempted) {
                    off.frames.truncate(1);
                    off.frames.push(PREEMPTED.to_owned());
                }
            } else if head.rest.contains("sched_switch") {
                let mut inner = frames(next);
                inner.retain(|frame| {
                    let function = frame.strip_suffix("_[k]").unwrap_or(frame);
                    !SWITCH_FRAMES.contains(&function) && frame != CUT
                });
                let off = OffCore { pid: head.pid, since_ns: head.ns, frames: stack(head.thread, inner) };
                self.off_core.insert(head.tid, off);
            }
        }
        // Threads that still wait have waited until now.
        for tid in self.off_core.keys().copied().collect::<Vec<_>>() {
            self.back_on_core(tid, last);
        }
        self.stacks
    }

    fn back_on_core(&mut self, tid: u32, ns: u64) {
        let Some(off) = self.off_core.remove(&tid) else { return };
        let owner = self.owners.entry(off.pid).or_insert_with(|| (self.owner)(off.pid));
        if let Some(owner) = owner {
            self.stacks.add(owner, off.frames, ns.saturating_sub(off.since_ns) as f64 / 1e3);
        }
    }
}

#[cfg(test)]
mod tests {
    use lab_analysis::record::{StackProfile, StackSource};

    use super::*;

    fn owner(pid: u32) -> Option<String> {
        (pid == 7).then(|| "gateway".to_owned())
    }

    fn lines(text: &str) -> impl FnMut() -> Option<String> {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.reverse();
        move || lines.pop()
    }

    /// Stacks in the folded form, with their time.
    fn folded(mut stacks: ComponentStacks) -> Vec<String> {
        let of = |profile: &StackProfile| {
            let text = profile
                .stacks
                .iter()
                .map(|stack| format!("{} {}", profile.frames(stack).collect::<Vec<_>>().join(";"), stack.us));
            text.collect::<Vec<_>>()
        };
        stacks.take("gateway", StackSource::PerfCpuClock).as_ref().map(of).unwrap_or_default()
    }

    #[test]
    fn ticks_are_folded_by_stack() {
        let text = "\
my worker-3 7/9  1632.5:    5000000 cpu-clock: 
\tffffffff8143a405 futex_wait ([kernel.kallsyms])
\t    7df6d81 mio::poll::h0123456789abcdef (/opt/postern)
\t    7df6d82 _RNvNtCs1234_7mycrate3foo3bar (/opt/postern)
\tffffffffffffffff [unknown] ([unknown])

my worker-4 7/10  1632.6:    5000000 cpu-clock: 
\tffffffff8143a405 futex_wait ([kernel.kallsyms])
\t    7df6d81 mio::poll::h0123456789abcdef (/opt/postern)
\t    7df6d82 _RNvNtCs1234_7mycrate3foo3bar (/opt/postern)
\tffffffffffffffff [unknown] ([unknown])

other 8/8  1632.7:    5000000 cpu-clock: 
\t    7df6d81 main (/bin/other)

my worker-3 7/9  1632.8:    5000000 cpu-clock: 
\t    1234 [unknown] (/usr/lib/libfoo.so)
\t    1235 [unknown] (/usr/lib/libfoo.so)
";
        let stacks = TickReader::new(&owner).read(&mut lines(text));
        assert_eq!(
            folded(stacks),
            [
                "my worker-*;[outer frames not recorded];mycrate::foo::bar;mio::poll;futex_wait_[k] 10000",
                "my worker-*;[libfoo.so] 5000"
            ]
        );
    }

    #[test]
    fn a_thread_is_off_its_core_until_it_is_back() {
        let text = "\
w 7/9  10.000100: PERF_RECORD_SWITCH IN
w 7/9  10.000200:          1 sched:sched_switch: 
\tffffffff821f8b58 __schedule ([kernel.kallsyms])
\tffffffff821f94c3 schedule ([kernel.kallsyms])
\tffffffff8143f416 futex_do_wait ([kernel.kallsyms])
\t    8612b lll_lock_wait (/usr/lib/libc.so.6)
\t    55866 [unknown] ([unknown])

w 7/9  10.000210: PERF_RECORD_SWITCH OUT
w 7/9  10.000700: PERF_RECORD_SWITCH IN
w 7/9  10.000800:          1 sched:sched_switch: 
\tffffffff821f8b58 __schedule ([kernel.kallsyms])
\t    999 busy (/opt/x)

w 7/9  10.000801: PERF_RECORD_SWITCH OUT preempt
w 7/9  10.001000: PERF_RECORD_SWITCH IN
v 7/8  10.001000:          1 sched:sched_switch: 
\tffffffff8143f416 ep_poll ([kernel.kallsyms])

v 7/8  10.001001: PERF_RECORD_SWITCH OUT
w 7/9  10.001300: PERF_RECORD_SWITCH OUT
";
        let stacks = SwitchReader::new(&owner).read(&mut lines(text));
        assert_eq!(
            folded(stacks),
            [
                "w;lll_lock_wait;futex_do_wait_[k] 500",
                "v;ep_poll_[k] 300",
                "w;[preempted: waits for a core] 200"
            ]
        );
    }

    #[test]
    fn a_line_that_is_no_head_is_left_out() {
        for line in
            ["", "w 7/9", "w 7/9 x: y", "w 7 1.5: y", "w 7/9 1.5 y", "w 7/9 99999999999999999999.5: y"]
        {
            assert_eq!(Head::parse(line), None, "{line}");
        }
        let head = Head::parse("  7/9  1.5: PERF_RECORD_SWITCH IN   ").unwrap();
        assert_eq!((head.thread, head.pid, head.tid, head.ns), ("", 7, 9, 1_500_000_000));
        assert_eq!(Head::parse("a: b 7/9  1.5: x").unwrap().thread, "a: b");
        assert!(folded(TickReader::new(&owner).read(&mut lines("nothing\n\n"))).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_to_its_end(text in "(?s)[a-z0-9/.:() \n\t]{0,300}") {
            let _ = TickReader::new(&owner).read(&mut lines(&text));
            let _ = SwitchReader::new(&owner).read(&mut lines(&text));
        }
    }
}

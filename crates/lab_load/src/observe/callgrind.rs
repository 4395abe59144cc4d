//! Callgrind: reads instruction counts and allocations from a profile of valgrind's tool callgrind.
//!
//! Callgrind executes a program on a simulated processor, one thread at a time. Therefore its
//! counts do not depend on how busy the machine is.
//!
//! Owns: the arguments to run a program under callgrind, and the parser of two figures in a profile
//! (format version 1). Does not own: which program runs, and under what load.

use std::collections::BTreeMap;
use std::path::Path;

/// Name of the valgrind program.
pub const VALGRIND: &str = "valgrind";

/// Functions that allocate memory: those of the C library, and their mimalloc names. The allocators
/// of Rust programs call one of these.
const ALLOCATORS: [&str; 16] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "mi_malloc",
    "mi_zalloc",
    "mi_calloc",
    "mi_realloc",
    "mi_malloc_aligned",
    "mi_zalloc_aligned",
    "mi_calloc_aligned",
    "mi_realloc_aligned",
];

/// Part of the names of functions that gather entropy from timer jitter (the jitterentropy library,
/// which some cryptographic libraries contain). Their instruction count is random by design.
const JITTER_NAME_PART: &str = "jent_";

/// Counts of a complete run of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Instructions executed in user mode, except those that gather entropy from jitter.
    pub instructions: u64,
    /// Calls of allocation functions. Calls from one allocation function to another are not counted
    /// separately.
    pub allocations: u64,
}

/// Arguments between `valgrind` and the program, for a profile in this file.
pub fn arguments(profile: &Path) -> Vec<String> {
    vec!["--tool=callgrind".to_owned(), format!("--callgrind-out-file={}", profile.display())]
}

/// Parses a profile; `None` if it is incomplete or is not a profile.
pub fn read(text: &str) -> Option<Counts> {
    let mut functions = Functions::default();
    let (mut caller, mut target) = (FunctionKind::Other, FunctionKind::Other);
    let (mut instructions, mut allocations, mut jitter) = (None, 0, 0);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("fn=") {
            caller = functions.kind(name);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            target = functions.kind(name);
        } else if let Some(call) = line.strip_prefix("calls=") {
            // The next line has a position and the inclusive cost of the calls.
            let cost = lines.next()?.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?;
            let number = call.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
            match target {
                _ if target == caller => {}
                FunctionKind::Allocator => allocations += number,
                FunctionKind::Jitter => jitter += cost,
                FunctionKind::Other => {}
            }
        } else if let Some(events) = line.strip_prefix("events:") {
            // Only the first column is read; by default callgrind records no other event.
            (events.split_ascii_whitespace().next()? == "Ir").then_some(())?;
        } else if let Some(total) = line.strip_prefix("totals:") {
            instructions = Some(total.split_ascii_whitespace().next()?.parse::<u64>().ok()?);
        }
    }
    Some(Counts { instructions: instructions?.checked_sub(jitter)?, allocations })
}

/// Category of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FunctionKind {
    Allocator,
    Jitter,
    Other,
}

/// Function kinds by the numbers that abbreviate their names.
#[derive(Default)]
struct Functions<'a>(BTreeMap<&'a str, FunctionKind>);

impl<'a> Functions<'a> {
    /// Parses a function name: `(7) malloc` at its first use, `(7)` later, or a bare name.
    fn kind(&mut self, text: &'a str) -> FunctionKind {
        let numbered = text.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let Some((number, name)) = numbered.filter(|(number, _)| number.bytes().all(|b| b.is_ascii_digit()))
        else {
            return FunctionKind::of_function(text);
        };
        match name.trim() {
            "" => self.0.get(number).copied().unwrap_or(FunctionKind::Other),
            name => *self.0.entry(number).or_insert_with(|| FunctionKind::of_function(name)),
        }
    }
}

impl FunctionKind {
    /// Kind of the function with this name. A recursive function has its depth after the name, such
    /// as `realloc'2`.
    fn of_function(name: &str) -> Self {
        let plain = name.split_once('\'').map_or(name, |(plain, _)| plain);
        if ALLOCATORS.contains(&plain) {
            Self::Allocator
        } else if plain.contains(JITTER_NAME_PART) {
            Self::Jitter
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\npid: 7\npositions: line\nevents: Ir\nsummary: 900\n\n\
        ob=(1) /usr/lib/libc.so.6\nfl=(1) ???\nfn=(1) main\n10 5\ncob=(1)\ncfn=(2) malloc\ncalls=3 40\n11 300\ncfn=(3) work\ncalls=9 50\n12 90\n\n\
        fn=(3)\n20 4\ncfi=(2) x.c\ncfn=(4) mi_malloc_aligned\ncalls=2 +3 \n21 30\ncfn=(2)\ncalls=1 40\n22 9\ncfn=(5) malloc_trim\ncalls=70 1\n23 9\n\n\
        fn=(8) seed\n23 9\ncfn=(9) lib_7_jent_read\ncalls=2 40\n24 250\n\nfn=(9)\n25 50\ncfn=(10) jent_stir\ncalls=9 1\n26 200\n\n\
        fn=(6) realloc\n30 4\ncfn=(2)\ncalls=8 40\n31 9\ncfn=(7) realloc'2\ncalls=5 40\n32 9\n\n\
        totals: 900\n";

    #[test]
    fn calls_count_once_however_deep_they_go() {
        assert_eq!(read(PROFILE), Some(Counts { instructions: 650, allocations: 6 }));
    }

    #[test]
    fn a_profile_that_is_cut_off_or_counts_something_else_is_none() {
        assert_eq!(read(&PROFILE.replace("totals: 900\n", "")), None);
        assert_eq!(read(&PROFILE.replace("events: Ir", "events: Cy Ir")), None);
        assert_eq!(read("total: 1\n"), None);
    }

    proptest::proptest! {
        #[test]
        fn whatever_stands_in_a_profile_is_read_or_refused(text in r"((fn|cfn|calls|totals|events)[=:]\(?[0-9]{0,3}\)? ?[a-z' ]{0,6}\n){0,9}") {
            let _ = read(&text);
        }
    }
}

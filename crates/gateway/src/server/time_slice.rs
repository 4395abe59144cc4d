//! Time slice: how long a worker keeps its core while other threads wait for it.
//!
//! With every core busy, the latency of the slowest requests is the time for which a worker waits for
//! a core. The scheduler of Linux (EEVDF, since 6.6) runs the thread whose slice would end first. A
//! worker that becomes ready, or that gave up its core, waits as long as its own slice tells: some
//! milliseconds by default. With a short slice it waits for a fraction of one.
//!
//! Owns: the length of the slice, and the system call that sets it. Does not own: when a worker gives
//! up its core ([`super::worker_thread`]).

use std::io;
use std::time::Duration;

/// Length of the slice of a worker. Shorter ones gain nothing more.
const SLICE: Duration = Duration::from_micros(200);

/// `SCHED_NORMAL` and `SCHED_BATCH`: the policies that have slices (sched(7)).
const FAIR_POLICIES: [u32; 2] = [0, 3];

/// The attributes of a thread (`sched_setattr(2)`), as far as Linux 3.14 had them.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Length of the slice, ns; 0: the system's default. Kernels before 6.12 ignore it.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Size of [`Attributes`] in bytes.
const SIZE: u32 = 48;
const _: () = assert!(size_of::<Attributes>() == SIZE as usize);

/// Shortens the slice of the calling thread, and changes nothing else. A thread with a real-time
/// policy has none.
///
/// # Errors
/// The system does not allow it, for example a filter of system calls.
pub(super) fn shorten() -> io::Result<()> {
    let mut attributes = get()?;
    if FAIR_POLICIES.contains(&attributes.policy) {
        attributes.size = SIZE;
        attributes.runtime = u64::try_from(SLICE.as_nanos()).unwrap_or(0);
        set(&attributes)?;
    }
    Ok(())
}

/// The attributes of the calling thread.
fn get() -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    #[expect(unsafe_code, reason = "no crate has a safe function for this system call")]
    // SAFETY: the kernel writes at most `SIZE` bytes, which is the size of the structure, and every
    // value of its fields is valid. 0 is the calling thread, and there are no flags.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    if result == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// Sets the attributes of the calling thread.
fn set(attributes: &Attributes) -> io::Result<()> {
    #[expect(unsafe_code, reason = "no crate has a safe function for this system call")]
    // SAFETY: the kernel reads `size` bytes of the structure, which is its size, and does not keep the
    // pointer. 0 is the calling thread, and there are no flags.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(attributes), 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_slice_changes_and_only_of_this_thread() {
        let before = get().unwrap();
        let after = std::thread::spawn(|| shorten().and_then(|()| get())).join().unwrap().unwrap();
        assert_eq!((after.policy, after.nice, after.flags), (before.policy, before.nice, before.flags));
        // Kernels before 6.12 have no slice of a thread.
        assert!(after.runtime == before.runtime || after.runtime == 200_000, "{after:?}");
        assert_eq!(get().unwrap().runtime, before.runtime);
    }
}

//! System calls: the names of those in which threads wait, by their number.
//!
//! Owns: the numbers of two processor architectures (the kernel's `unistd` tables).

/// Name of a system call in which threads wait; `None` for any other one.
pub(super) fn name(number: i64) -> Option<&'static str> {
    let table: &[(i64, &str)] = match std::env::consts::ARCH {
        "x86_64" => &X86_64,
        "aarch64" => &AARCH64,
        _ => return None,
    };
    table.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

const X86_64: [(i64, &str); 31] = [
    (0, "read"),
    (1, "write"),
    (7, "poll"),
    (17, "pread64"),
    (18, "pwrite64"),
    (19, "readv"),
    (20, "writev"),
    (23, "select"),
    (26, "msync"),
    (35, "nanosleep"),
    (42, "connect"),
    (43, "accept"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (61, "wait4"),
    (74, "fsync"),
    (75, "fdatasync"),
    (202, "futex"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (270, "pselect6"),
    (271, "ppoll"),
    (277, "sync_file_range"),
    (281, "epoll_pwait"),
    (288, "accept4"),
    (426, "io_uring_enter"),
    (441, "epoll_pwait2"),
    (449, "futex_waitv"),
    (455, "futex_wait"),
];

const AARCH64: [(i64, &str); 28] = [
    (22, "epoll_pwait"),
    (63, "read"),
    (64, "write"),
    (65, "readv"),
    (66, "writev"),
    (67, "pread64"),
    (68, "pwrite64"),
    (72, "pselect6"),
    (73, "ppoll"),
    (82, "fsync"),
    (83, "fdatasync"),
    (84, "sync_file_range"),
    (98, "futex"),
    (101, "nanosleep"),
    (115, "clock_nanosleep"),
    (202, "accept"),
    (203, "connect"),
    (206, "sendto"),
    (207, "recvfrom"),
    (211, "sendmsg"),
    (212, "recvmsg"),
    (227, "msync"),
    (242, "accept4"),
    (260, "wait4"),
    (426, "io_uring_enter"),
    (441, "epoll_pwait2"),
    (449, "futex_waitv"),
    (455, "futex_wait"),
];

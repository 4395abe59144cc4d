//! Addresses for programs that are told where to listen.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A free address that was not returned before. Its port is below the ephemeral range (Linux: 32768
/// and above), so no connection takes it before its listener does.
pub fn free() -> String {
    const PORTS: std::ops::Range<u32> = 10_000..18_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Concurrent test runs start at different ports.
    let begin = std::process::id().wrapping_mul(0x9E37_79B1) >> 16;
    loop {
        let at = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let address = format!("127.0.0.1:{}", PORTS.start + at % (PORTS.end - PORTS.start));
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

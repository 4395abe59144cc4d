//! The access log from request to file, and its behaviour when the destination is too slow.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use auth::time::Timestamp;
use parking_lot::Mutex;
use telemetry::access_log::{
    AccessLog, AccessLogError, AccessLogOptions, AccessRecord, Destination, RequestProtocol, RequestTarget,
    Style,
};
use telemetry::metrics::Outcome;

const LONG: Duration = Duration::from_secs(30);

fn start(destination: Destination) -> AccessLog {
    AccessLog::start(AccessLogOptions { style: Style::Json, destination }).unwrap()
}

fn record(path: &str) -> AccessRecord<'_> {
    AccessRecord {
        time: Timestamp::from_millis(1_700_000_000_000),
        listener: "public",
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 4711)),
        client: None,
        protocol: RequestProtocol::Http11,
        target: Some(RequestTarget { method: "GET", host: "a.example", path, other_path: None }),
        status: 200,
        outcome: Outcome::Allowed,
        reason: None,
        request_id: None,
        upstream_fault: None,
        route: Some("all"),
        identity: None,
        forwarded: None,
        bytes_in: 0,
        bytes_out: 2,
        total_nanos: 1_000,
        cache_result: None,
        trace: None,
    }
}

/// A directory for one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("postern-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn paths(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let line = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["path"].as_str().unwrap().to_owned()
    };
    text.lines().map(line).collect()
}

#[test]
fn lines_of_all_workers_reach_the_file() {
    let scratch = Scratch::new("workers");
    let file = scratch.0.join("access.log");
    let log = start(Destination::File(file.clone()));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let mut buffer = log.buffer();
            scope.spawn(move || {
                for n in 0..500 {
                    buffer.append(&record(&format!("/{worker}/{n}")));
                }
            });
        }
    });
    assert!(log.close(LONG));
    let mut found = paths(&file);
    found.sort();
    let mut expected: Vec<_> = (0..4).flat_map(|w| (0..500).map(move |n| format!("/{w}/{n}"))).collect();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!((log.stats().written(), log.stats().dropped()), (2000, 0));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o007, 0, "not for everybody: {mode:o}");
}

#[test]
fn a_rotated_file_is_reopened_and_appended_to() {
    let scratch = Scratch::new("rotate");
    let (file, old) = (scratch.0.join("access.log"), scratch.0.join("access.log.1"));
    let log = start(Destination::File(file.clone()));
    let mut buffer = log.buffer();
    buffer.append(&record("/before"));
    buffer.flush();
    // log rotation renames the file; the writer continues in the old one until it is told to reopen
    wait_for(|| log.stats().written() == 1);
    std::fs::rename(&file, &old).unwrap();
    log.reopen();
    buffer.append(&record("/after"));
    drop(buffer);
    assert!(log.close(LONG));
    assert_eq!(paths(&old), ["/before"]);
    assert_eq!(paths(&file), ["/after"]);

    let again = start(Destination::File(file.clone()));
    again.buffer().append(&record("/second-process"));
    assert!(again.close(LONG));
    assert_eq!(paths(&file), ["/after", "/second-process"], "appended, not truncated");
}

#[test]
fn a_reopen_that_fails_keeps_the_old_file() {
    let scratch = Scratch::new("reopen");
    let directory = scratch.0.join("logs");
    let file = directory.join("access.log");
    std::fs::create_dir(&directory).unwrap();
    let log = start(Destination::File(file.clone()));
    let moved = scratch.0.join("moved");
    std::fs::rename(&directory, &moved).unwrap();
    log.reopen();
    log.buffer().append(&record("/still-written"));
    assert!(log.close(LONG));
    assert_eq!(paths(&moved.join("access.log")), ["/still-written"]);
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let options = AccessLogOptions {
        style: Style::Json,
        destination: Destination::File("/nonexistent/dir/access.log".into()),
    };
    let error = AccessLog::start(options).err().unwrap();
    assert!(matches!(error, AccessLogError::Open { .. }));
    assert!(error.to_string().contains("/nonexistent/dir/access.log"), "{error}");
}

/// A destination that blocks until it is opened, and then accepts everything.
struct Gate {
    reached: Sender<()>,
    open: Receiver<()>,
    taken: Arc<Mutex<Vec<u8>>>,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.reached.send(());
        // an error means that the gate stays open
        let _ = self.open.recv();
        self.taken.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_blocked_destination_costs_lines_and_no_time() {
    let (reached, writing) = channel();
    let (opener, open) = channel();
    let taken = Arc::default();
    let log = start(Destination::Writer(Box::new(Gate { reached, open, taken: Arc::clone(&taken) })));
    let mut buffer = log.buffer();
    buffer.append(&record("/first"));
    buffer.flush();
    writing.recv_timeout(LONG).unwrap();
    // the writer is blocked in its write now; only a limited number of buffers can wait, the rest
    // must be dropped
    let line_bytes = 240;
    let lines = 200 * 32 * 1024 / line_bytes;
    for n in 0..lines {
        buffer.append(&record(&format!("/{n}")));
    }
    let dropped = log.stats().dropped();
    assert!(dropped > lines / 2, "{dropped} of {lines}");
    assert_eq!(log.stats().written(), 0);
    assert!(!log.close(Duration::from_millis(20)), "still blocked");
    buffer.flush();

    drop(opener);
    assert!(log.close(LONG));
    let text = String::from_utf8(std::mem::take(&mut *taken.lock())).unwrap();
    assert!(text.starts_with('{') && text.ends_with("}\n"), "buffers are lost whole, lines never cut");
    assert_eq!(log.stats().written() + log.stats().dropped(), lines + 1, "each line is written or counted");
    assert_eq!(text.lines().count() as u64, log.stats().written());
}

#[test]
fn a_failing_destination_is_counted() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = start(Destination::Writer(Box::new(Full)));
    let mut buffer = log.buffer();
    buffer.append(&record("/a"));
    buffer.append(&record("/b"));
    drop(buffer);
    assert!(log.close(LONG));
    assert_eq!((log.stats().written(), log.stats().dropped()), (0, 2));
    log.buffer().append(&record("/too-late"));
    assert_eq!(log.stats().dropped(), 3, "the log is closed");
}

/// Waits for another thread, with a time limit.
fn wait_for(done: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !done() {
        assert!(began.elapsed() < LONG, "waited in vain");
        std::thread::yield_now();
    }
}

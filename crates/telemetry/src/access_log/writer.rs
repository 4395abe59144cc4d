//! Access log writer: moves lines from the workers' buffers to the destination.
//!
//! Owns: the buffers, the bounded channel, the one thread that may block on writing, reopening
//! files, the counts of written and dropped lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use outage::Outage;
use parking_lot::Mutex;

use super::AccessRecord;
use super::line::{Formatter, Style};

/// Size in bytes at which a worker passes on its buffer.
const FLUSH_BYTES: usize = 32 * 1024;
/// Initial capacity of a buffer: the flush size plus the line that exceeds it.
const BUFFER_BYTES: usize = FLUSH_BYTES + 4 * 1024;
/// Buffers that have grown larger than this (through long paths) are not reused.
const MAX_REUSED_CAPACITY: usize = 2 * BUFFER_BYTES;
/// Maximum number of buffers that wait for the writer: about 2 MiB, or 5000 lines.
const MAX_WAITING_BUFFERS: usize = 64;

/// Destination of the lines.
pub enum Destination {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, in append mode. Created with mode 0640 if it does not exist, and opened anew by
    /// [`AccessLog::reopen`].
    File(PathBuf),
    /// Any other writer.
    Writer(Box<dyn Write + Send>),
}

/// Settings of the access log.
pub struct AccessLogOptions {
    /// Format of the lines.
    pub style: Style,
    /// Destination of the lines.
    pub destination: Destination,
}

/// Why the access log could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AccessLogError {
    /// The file cannot be opened for appending.
    #[error(
        "cannot open access log {path}: {source} (does the directory exist, and may this user write there?)"
    )]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The writer thread could not be started.
    #[error("cannot start the access log thread: {0}")]
    Thread(io::Error),
}

/// Numbers of written and dropped lines since the process started.
#[derive(Debug, Default)]
pub struct AccessLogStats {
    written: AtomicU64,
    dropped: AtomicU64,
}

impl AccessLogStats {
    /// Lines written to the destination.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Lines dropped because the destination was too slow or a write failed.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

/// State shared by workers and writer.
#[derive(Default)]
struct WriterState {
    stats: Arc<AccessLogStats>,
    reopen: AtomicBool,
    close: AtomicBool,
    spare: Mutex<Vec<Vec<u8>>>,
}

enum WriterMessage {
    Lines(Batch),
    /// Check [`WriterState::reopen`] and [`WriterState::close`].
    Wake,
}

/// Lines on the way to the writer. Each line is counted exactly once: as written by the writer,
/// otherwise as dropped. This includes batches that are still in the channel at the end.
struct Batch {
    text: Vec<u8>,
    lines: u64,
    shared: Arc<WriterState>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.shared.stats.dropped.fetch_add(self.lines, Relaxed);
    }
}

/// The access log of a process. Clones share the log.
#[derive(Clone)]
pub struct AccessLog {
    sender: SyncSender<WriterMessage>,
    shared: Arc<WriterState>,
    style: Style,
    ended: Arc<Mutex<Receiver<()>>>,
}

impl AccessLog {
    /// Opens the destination and starts the writer thread.
    ///
    /// # Errors
    /// [`AccessLogError`] when the file cannot be opened or the thread cannot be started.
    pub fn start(options: AccessLogOptions) -> Result<Self, AccessLogError> {
        let sink = Sink::open(options.destination)?;
        let shared = Arc::new(WriterState::default());
        let (sender, messages) = sync_channel(MAX_WAITING_BUFFERS);
        let (ending, ended) = sync_channel(1);
        let outage = Outage::new("access log").with_effect("access log lines are lost");
        let writer = Writer { sink, shared: Arc::clone(&shared), outage };
        std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || {
                writer.run(&messages);
                // counts what is still in the channel as dropped, before the end is signalled
                drop(messages);
                drop(ending);
            })
            .map_err(AccessLogError::Thread)?;
        Ok(Self { sender, shared, style: options.style, ended: Arc::new(Mutex::new(ended)) })
    }

    /// A buffer for one worker.
    pub fn buffer(&self) -> Buffer {
        Buffer {
            formatter: Formatter::new(self.style),
            text: Vec::new(),
            lines: 0,
            sender: self.sender.clone(),
            shared: Arc::clone(&self.shared),
        }
    }

    /// Numbers of written and dropped lines.
    pub fn stats(&self) -> Arc<AccessLogStats> {
        Arc::clone(&self.shared.stats)
    }

    /// Reopens a file destination, for example after log rotation. Never blocks. If the file cannot
    /// be opened, the old one stays in use and the error is logged.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Relaxed);
        // if the channel is full the writer is running, and checks the flag before each write
        let _ = self.sender.try_send(WriterMessage::Wake);
    }

    /// Ends the log. Waits at most `wait` until all passed lines are written. Workers must drop or
    /// flush their [`Buffer`] first; lines passed on later count as dropped. `false`: the
    /// destination was too slow.
    #[must_use]
    pub fn close(&self, wait: Duration) -> bool {
        self.shared.close.store(true, Relaxed);
        // if the channel is full the writer is running, and checks the flag after each write
        let _ = self.sender.try_send(WriterMessage::Wake);
        matches!(self.ended.lock().recv_timeout(wait), Err(RecvTimeoutError::Disconnected))
    }
}

/// The access log buffer of one worker. Dropping it passes on its content.
pub struct Buffer {
    formatter: Formatter,
    text: Vec<u8>,
    lines: u64,
    sender: SyncSender<WriterMessage>,
    shared: Arc<WriterState>,
}

impl Buffer {
    /// Appends a line; passes on the buffer at 32 KiB. Never blocks.
    pub fn append(&mut self, record: &AccessRecord<'_>) {
        if self.text.capacity() == 0 {
            let spare = self.shared.spare.lock().pop();
            self.text = spare.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES));
        }
        self.formatter.append(record, &mut self.text);
        self.lines += 1;
        if self.text.len() >= FLUSH_BYTES {
            self.flush();
        }
    }

    /// Passes on the buffered lines. Called by the worker's ticker. Never blocks: if the channel is
    /// full the lines are dropped and counted.
    pub fn flush(&mut self) {
        if self.lines == 0 {
            return;
        }
        let lines = std::mem::take(&mut self.lines);
        let text = std::mem::take(&mut self.text);
        let batch = Batch { text, lines, shared: Arc::clone(&self.shared) };
        if let Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) =
            self.sender.try_send(WriterMessage::Lines(batch))
            && let WriterMessage::Lines(mut lost) = message
        {
            self.text = std::mem::take(&mut lost.text);
            self.text.clear();
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.flush();
    }
}

/// An open destination.
enum Sink {
    Stdout,
    Stderr,
    File { path: PathBuf, file: File },
    Writer(Box<dyn Write + Send>),
}

impl Sink {
    fn open(destination: Destination) -> Result<Self, AccessLogError> {
        Ok(match destination {
            Destination::Stdout => Self::Stdout,
            Destination::Stderr => Self::Stderr,
            Destination::File(path) => match append_to(&path) {
                Ok(file) => Self::File { path, file },
                Err(source) => return Err(AccessLogError::Open { path, source }),
            },
            Destination::Writer(writer) => Self::Writer(writer),
        })
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(text)?;
                stdout.flush()
            }
            Self::Stderr => io::stderr().lock().write_all(text),
            Self::File { file, .. } => file.write_all(text),
            Self::Writer(writer) => {
                writer.write_all(text)?;
                writer.flush()
            }
        }
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// State of the writer thread.
struct Writer {
    sink: Sink,
    shared: Arc<WriterState>,
    outage: Outage,
}

impl Writer {
    /// Runs until the log is closed and all waiting lines are written, or all senders are dropped.
    fn run(mut self, messages: &Receiver<WriterMessage>) {
        while let Ok(message) = messages.recv() {
            self.handle(message);
            if self.shared.close.load(Relaxed) {
                while let Ok(message) = messages.try_recv() {
                    self.handle(message);
                }
                return;
            }
        }
    }

    fn handle(&mut self, message: WriterMessage) {
        if self.shared.reopen.swap(false, Relaxed) {
            self.reopen();
        }
        if let WriterMessage::Lines(batch) = message {
            self.write(batch);
        }
    }

    fn write(&mut self, mut batch: Batch) {
        match self.sink.write(&batch.text) {
            Ok(()) => {
                let lines = std::mem::take(&mut batch.lines);
                self.shared.stats.written.fetch_add(lines, Relaxed);
                self.outage.succeeded();
            }
            Err(error) => self.outage.failed(error),
        }
        let mut text = std::mem::take(&mut batch.text);
        text.clear();
        if text.capacity() <= MAX_REUSED_CAPACITY {
            let mut spare = self.shared.spare.lock();
            if spare.len() < MAX_WAITING_BUFFERS {
                spare.push(text);
            }
        }
    }

    fn reopen(&mut self) {
        let Sink::File { path, file } = &mut self.sink else { return };
        match append_to(path) {
            Ok(new) => *file = new,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "access log not reopened, old file stays in use");
            }
        }
    }
}

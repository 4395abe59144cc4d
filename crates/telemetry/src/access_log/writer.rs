//! From the workers' buffers to the destination.
//!
//! Owns: the buffers, the bounded channel, the one thread that may block on writing, reopening, and the
//! count of lines written and lost.

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

/// A worker hands its buffer over when it holds this much.
const FLUSH_BYTES: usize = 32 * 1024;
/// Room a buffer begins with: a flush's worth and the line that goes beyond.
const BUFFER_BYTES: usize = FLUSH_BYTES + 4 * 1024;
/// A buffer that grew beyond this (by long paths) is not used again.
const LARGEST_SPARE: usize = 2 * BUFFER_BYTES;
/// Buffers that may wait for the writer: about 2 MiB, some 5000 lines.
const WAITING: usize = 64;

/// Where lines go.
pub enum Destination {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Appended to a file, which is made (mode 0640) if need be and opened anew by [`AccessLog::reopen`].
    File(PathBuf),
    /// Whatever else can be written to.
    Writer(Box<dyn Write + Send>),
}

/// What lines look like and where they go.
pub struct AccessLogOptions {
    /// Spelling.
    pub style: Style,
    /// Where lines go.
    pub destination: Destination,
}

/// Why there is no access log.
#[derive(Debug, thiserror::Error)]
pub enum AccessLogError {
    /// The file cannot be opened for appending.
    #[error(
        "cannot open access log {path}: {source} (does the directory exist, and may this user write there?)"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No thread could be started.
    #[error("cannot start the access log's thread: {0}")]
    Thread(io::Error),
}

/// Lines written and lost since the process began.
#[derive(Debug, Default)]
pub struct AccessLogStats {
    written: AtomicU64,
    dropped: AtomicU64,
}

impl AccessLogStats {
    /// Lines given to the destination.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Lines lost: the destination was slower than the requests, or writing failed.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

/// What workers and writer share.
#[derive(Default)]
struct WriterState {
    stats: Arc<AccessLogStats>,
    reopen: AtomicBool,
    close: AtomicBool,
    spare: Mutex<Vec<Vec<u8>>>,
}

enum WriterMessage {
    Lines(Batch),
    /// Look at [`WriterState::reopen`] and [`WriterState::close`].
    Wake,
}

/// Lines on their way. Whatever way it ends, each line is counted once: as written by the writer, or else as
/// dropped, also when the batch is still in the channel at the end.
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

/// The access log of a process. Clones are the same log.
#[derive(Clone)]
pub struct AccessLog {
    sender: SyncSender<WriterMessage>,
    shared: Arc<WriterState>,
    style: Style,
    ended: Arc<Mutex<Receiver<()>>>,
}

impl AccessLog {
    /// Opens the destination and starts the writing thread.
    pub fn start(options: AccessLogOptions) -> Result<Self, AccessLogError> {
        let sink = Sink::open(options.destination)?;
        let shared = Arc::new(WriterState::default());
        let (sender, messages) = sync_channel(WAITING);
        let (ending, ended) = sync_channel(1);
        let outage = Outage::of("access log").with_effect("its lines are lost");
        let writer = Writer { sink, shared: Arc::clone(&shared), outage };
        std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || {
                writer.run(&messages);
                // what is still in the channel is counted here, before anybody is told of the end
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

    /// Lines written and lost.
    pub fn stats(&self) -> Arc<AccessLogStats> {
        Arc::clone(&self.shared.stats)
    }

    /// Opens a file destination anew, as after a rotation. Never blocks; when the file cannot be opened the
    /// old one stays in use and the fault is logged.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Relaxed);
        // with the channel full the writer is awake, and looks before each write
        let _ = self.sender.try_send(WriterMessage::Wake);
    }

    /// Ends the log: waits, for at most `wait`, until everything handed over so far is written. Workers drop (or
    /// flush) their [`Buffer`]s first; what is handed over afterwards counts as dropped. `false`: the
    /// destination did not take it all in time.
    #[must_use]
    pub fn close(&self, wait: Duration) -> bool {
        self.shared.close.store(true, Relaxed);
        // with the channel full the writer is awake, and looks after each write
        let _ = self.sender.try_send(WriterMessage::Wake);
        matches!(self.ended.lock().recv_timeout(wait), Err(RecvTimeoutError::Disconnected))
    }
}

/// One worker's end of the access log. Dropping it hands over what it holds.
pub struct Buffer {
    formatter: Formatter,
    text: Vec<u8>,
    lines: u64,
    sender: SyncSender<WriterMessage>,
    shared: Arc<WriterState>,
}

impl Buffer {
    /// Appends a line; hands the buffer over at 32 KiB. Never blocks.
    pub fn log(&mut self, record: &AccessRecord<'_>) {
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

    /// Hands over what there is. Called by the worker's ticker. Never blocks: when the writer is that far
    /// behind, the lines are dropped and counted.
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

/// The writing thread's state.
struct Writer {
    sink: Sink,
    shared: Arc<WriterState>,
    outage: Outage,
}

impl Writer {
    /// Until the log is closed and what waits is written, or nobody is left who could write.
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
        if text.capacity() <= LARGEST_SPARE {
            let mut spare = self.shared.spare.lock();
            if spare.len() < WAITING {
                spare.push(text);
            }
        }
    }

    fn reopen(&mut self) {
        let Sink::File { path, file } = &mut self.sink else { return };
        match append_to(path) {
            Ok(new) => *file = new,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "access log cannot be reopened, the old file stays in use");
            }
        }
    }
}

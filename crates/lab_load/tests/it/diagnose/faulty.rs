//! Faulty server: a server with one fault, in a process of its own, so that its CPU, memory and
//! control group are separate.
//!
//! The process is this test program, started to run only [`serve`]. It logs every response and
//! every connection with the time of the clock that all processes share, and returns the log at
//! `/log`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::streams;

const TOLD: &str = "LAB_FAULTY";

/// Nanoseconds of the clock that all processes share.
pub(crate) fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// A response: its time, its status, and its duration in ns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) at: u64,
    pub(crate) status: u16,
    pub(crate) took: u64,
}

/// Log of a server since the last request for it.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) answers: Vec<Answer>,
    /// Times at which connections were opened.
    pub(crate) opened: Vec<u64>,
}

/// A running server process; it is ended when dropped.
pub(crate) struct FaultyServer {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl FaultyServer {
    /// Starts a server with the fault that `words` describe: see [`Fault::told`].
    pub(crate) fn start(words: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["diagnose::faulty::serve", "--exact", "--ignored", "--nocapture"])
            .env(TOLD, words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| line.unwrap().split_once("listening on ")?.1.parse().ok());
        // The output is read to its end, so that a full pipe does not block the server.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address: address.expect("the server tells its address") }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Identifiers of its threads.
    pub(crate) fn threads(&self) -> Vec<i32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
    }

    /// Sends a control request to the server. Returns the response body.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Returns the log entries since the last call.
    pub(crate) fn log(&self) -> Log {
        let text = self.get("/log");
        let mut log = Log::default();
        for line in text.lines() {
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            match numbers[..] {
                [at] => log.opened.push(at),
                [at, status, took] => {
                    log.answers.push(Answer { at, status: status.try_into().unwrap(), took });
                }
                _ => panic!("{line}"),
            }
        }
        log
    }
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The fault of a server.
enum Fault {
    /// The server has no fault.
    None,
    /// Each request costs this much CPU time.
    Work(Duration),
    /// Each request waits, independent of the others.
    Wait(Duration),
    /// Requests wait one after the other.
    Serial(Duration),
    /// Like `Serial`, but every waiting thread is woken each time.
    Convoy(Duration),
    /// Each request writes to a file and syncs it this often.
    Sync { file: File, times: u64 },
    /// One thread works this long for each request, one after the other.
    OneThread(SyncSender<(Duration, SyncSender<()>)>, Duration),
    /// Each request leaks this many bytes.
    Leak(usize),
    /// At intervals no request is answered while a thread works.
    Pauses { every: Duration, length: Duration },
    /// Once, at this request, no request is answered for a time.
    Stall { at: u64, length: Duration },
    /// After `/rotate` every token is refused for this time.
    Rotation(Duration),
    /// Every n-th request gets no response for a long time.
    Silent { every: u64 },
    /// Each response is a stream of this many events, one every so often.
    Events { events: u64, every: Duration },
    /// Each response is that of another server, passed on as it comes or as a whole.
    Relay { whom: SocketAddr, whole: bool },
    /// Each connection becomes a WebSocket that sends messages back, and that is closed when none
    /// arrives for this time.
    Sockets { idle: Duration },
    /// Each request calls another server this often, and is refused if that does not respond in
    /// time. With a cache, once per token.
    CallOther { whom: SocketAddr, times: usize, cache: bool, timeout: Duration },
}

impl Fault {
    fn parse(words: &str) -> Self {
        let words: Vec<&str> = words.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let micros = |at: usize| Duration::from_micros(number(at));
        match words[0] {
            "none" => Self::None,
            "work" => Self::Work(micros(1)),
            "wait" => Self::Wait(micros(1)),
            "serial" => Self::Serial(micros(1)),
            "convoy" => Self::Convoy(micros(1)),
            "sync" => {
                let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
                let path = path.join(format!("faulty-{}", std::process::id()));
                let file = File::create(&path).unwrap();
                // The file stays open, and is gone with the server.
                std::fs::remove_file(path).unwrap();
                Self::Sync { file, times: number(1) }
            }
            "one-thread" => {
                let (jobs, queue) = sync_channel::<(Duration, SyncSender<()>)>(64);
                std::thread::spawn(move || {
                    for (length, done) in queue {
                        work(length);
                        // A connection that is closed does not wait any more.
                        let _ = done.send(());
                    }
                });
                Self::OneThread(jobs, micros(1))
            }
            "keep" => Self::Leak(usize::try_from(number(1)).unwrap()),
            "pauses" => Self::Pauses { every: micros(1), length: micros(2) },
            "stall" => Self::Stall { at: number(1), length: micros(2) },
            "rotation" => Self::Rotation(micros(1)),
            "silent" => Self::Silent { every: number(1) },
            "events" => Self::Events { events: number(1), every: micros(2) },
            "relay" => Self::Relay { whom: words[1].parse().unwrap(), whole: words[2] == "whole" },
            "sockets" => Self::Sockets { idle: micros(1) },
            "ask" => Self::CallOther {
                whom: words[1].parse().unwrap(),
                times: usize::try_from(number(2)).unwrap(),
                cache: words[3] == "cache",
                timeout: micros(4),
            },
            other => panic!("no fault is called {other}"),
        }
    }
}

struct Server {
    fault: Fault,
    log: Mutex<Log>,
    requests: AtomicU64,
    /// Time until which tokens are refused.
    refusing: AtomicU64,
    /// Additional wait of every request in µs.
    slow: AtomicU64,
    gate: RwLock<()>,
    /// Time at which the last request of the queue will be finished.
    queue: Mutex<u64>,
    taken: Mutex<bool>,
    free: Condvar,
    known: Mutex<BTreeSet<String>>,
}

#[test]
#[ignore = "the server that the other tests start as a process of its own"]
fn serve() {
    let Some(words) = std::env::var_os(TOLD) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Arc::new(Server {
        fault: Fault::parse(words.to_str().unwrap()),
        log: Mutex::default(),
        requests: AtomicU64::new(0),
        refusing: AtomicU64::new(0),
        slow: AtomicU64::new(0),
        gate: RwLock::new(()),
        queue: Mutex::new(0),
        taken: Mutex::new(false),
        free: Condvar::new(),
        known: Mutex::default(),
    });
    // The process ends with its parent, however the parent ends.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    if let Fault::Pauses { every, length } = server.fault {
        let server = Arc::clone(&server);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(every);
                let _closed = server.gate.write().unwrap_or_else(PoisonError::into_inner);
                let until = now() + ns(length);
                // A garbage collector runs on several cores if they are available.
                std::thread::scope(|scope| {
                    for _ in 0..3 {
                        scope.spawn(|| {
                            while now() < until {
                                std::hint::black_box(work(Duration::from_micros(200)));
                            }
                        });
                    }
                });
            }
        });
    }
    println!("listening on {}", listener.local_addr().unwrap());
    for stream in listener.incoming() {
        let (stream, server, at) = (stream.unwrap(), Arc::clone(&server), now());
        std::thread::spawn(move || server.connection(stream, at));
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

/// Works for this much CPU time, even if the thread loses its core meanwhile.
fn work(cpu: Duration) -> u64 {
    let until = nanos(ClockId::ThreadCPUTime) + ns(cpu);
    let mut sum = 0_u64;
    while nanos(ClockId::ThreadCPUTime) < until {
        (0..200).for_each(|step| sum = std::hint::black_box(sum.wrapping_mul(31) + step));
    }
    sum
}

impl Server {
    fn connection(&self, mut stream: TcpStream, opened: u64) {
        stream.set_nodelay(true).unwrap();
        let mut buffer = Vec::new();
        let mut behind = None;
        let mut first = true;
        while let Some(head) = read_head(&mut stream, &mut buffer) {
            let begun = now();
            let raw = head;
            let head = raw.to_ascii_lowercase();
            let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
            if path != "/" {
                let _ = write!(stream, "HTTP/1.1 200 OK\r\n\r\n{}", self.control(&path));
                return;
            }
            match self.fault {
                Fault::Events { events, every } => {
                    if streams::events(&mut stream, events, every).is_err() {
                        return;
                    }
                    continue;
                }
                Fault::Relay { whom, whole } => {
                    if streams::relay(&mut stream, whom, whole).is_err() {
                        return;
                    }
                    continue;
                }
                // The client may be gone by then.
                Fault::Sockets { idle } => return drop(streams::socket(stream, &raw, idle)),
                _ => {}
            }
            let status = self.answer(&head, &mut behind);
            let answer = format!("HTTP/1.1 {status} Reason\r\ncontent-length: 2\r\n\r\nok");
            {
                let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
                if std::mem::take(&mut first) {
                    log.opened.push(opened);
                }
                log.answers.push(Answer { at: now(), status, took: now() - begun });
            }
            if stream.write_all(answer.as_bytes()).is_err() || head.contains("connection: close") {
                return;
            }
        }
    }

    /// Handles a control request, which is not part of the load.
    fn control(&self, path: &str) -> String {
        match path.split_once('?').unwrap_or((path, "")) {
            ("/log", _) => {
                let log = std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner));
                let mut text = String::new();
                log.opened.iter().for_each(|at| writeln!(text, "{at}").unwrap());
                log.answers.iter().for_each(|a| writeln!(text, "{} {} {}", a.at, a.status, a.took).unwrap());
                text
            }
            ("/rotate", _) => {
                let Fault::Rotation(length) = self.fault else { panic!("nothing to rotate") };
                self.refusing.store(now() + ns(length), Ordering::SeqCst);
                String::new()
            }
            ("/slow", micros) => {
                self.slow.store(micros.parse().unwrap(), Ordering::SeqCst);
                String::new()
            }
            other => panic!("{other:?}"),
        }
    }

    fn answer(&self, head: &str, behind: &mut Option<TcpStream>) -> u16 {
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let slow = self.slow.load(Ordering::SeqCst);
        if slow > 0 {
            std::thread::sleep(Duration::from_micros(slow));
        }
        match &self.fault {
            Fault::Work(cpu) => {
                work(*cpu);
            }
            Fault::Wait(time) => std::thread::sleep(*time),
            Fault::Serial(time) => {
                // A queue in the order of arrival, so that a busy machine cannot make it unfair.
                let turn = {
                    let mut end = self.queue.lock().unwrap();
                    *end = (*end).max(now()) + ns(*time);
                    *end
                };
                std::thread::sleep(Duration::from_nanos(turn.saturating_sub(now())));
            }
            Fault::Convoy(time) => {
                let mut taken = self.taken.lock().unwrap();
                while *taken {
                    taken = self.free.wait(taken).unwrap();
                }
                *taken = true;
                drop(taken);
                std::thread::sleep(*time);
                *self.taken.lock().unwrap() = false;
                self.free.notify_all();
            }
            Fault::Sync { file, times } => {
                let mut writer: &File = file;
                for _ in 0..*times {
                    writer.write_all(&[1; 4096]).unwrap();
                    file.sync_data().unwrap();
                }
            }
            Fault::OneThread(jobs, length) => {
                let (done, finished) = sync_channel(1);
                jobs.send((*length, done)).unwrap();
                finished.recv().unwrap();
            }
            Fault::Leak(bytes) => std::mem::forget(vec![1_u8; *bytes]),
            Fault::Pauses { .. } => drop(self.gate.read()),
            Fault::Stall { at, length } => {
                if number == *at {
                    let _closed = self.gate.write();
                    std::thread::sleep(*length);
                } else {
                    drop(self.gate.read());
                }
            }
            Fault::Rotation(_) if now() < self.refusing.load(Ordering::SeqCst) => return 401,
            Fault::Silent { every } if number.is_multiple_of(*every) => {
                std::thread::sleep(Duration::from_secs(2));
            }
            Fault::None | Fault::Rotation(_) | Fault::Silent { .. } => {}
            Fault::Events { .. } | Fault::Relay { .. } | Fault::Sockets { .. } => {
                panic!("this is a stream")
            }
            Fault::CallOther { whom, times, cache, timeout } => {
                let token = head.lines().find_map(|line| line.strip_prefix("authorization: "));
                let token = token.unwrap_or_default().to_owned();
                if *cache && self.known.lock().unwrap().contains(&token) {
                    return 200;
                }
                for _ in 0..*times {
                    if !call(*whom, behind, *timeout) {
                        return 403;
                    }
                }
                self.known.lock().unwrap().insert(token);
            }
        }
        200
    }
}

/// Sends a request to another server over a kept-alive connection. Returns `false` if there is no
/// response in time.
fn call(whom: SocketAddr, kept: &mut Option<TcpStream>, timeout: Duration) -> bool {
    let mut exchange = || -> std::io::Result<()> {
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => TcpStream::connect(whom)?,
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            let mut part = [0; 256];
            match stream.read(&mut part)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                read => answer.extend_from_slice(&part[..read]),
            }
        }
        *kept = Some(stream);
        Ok(())
    };
    exchange().is_ok()
}

fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head: Vec<u8> = buffer.drain(..at + 4).collect();
            return Some(String::from_utf8(head).unwrap());
        }
        let mut part = [0; 2048];
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return None,
            Ok(read) => buffer.extend_from_slice(&part[..read]),
        }
    }
}

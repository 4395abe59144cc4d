//! `postern echo`: a light upstream for trials, tests and measurements.
//!
//! Owns: the listener and its threads. The responses are in `fixed` (as fast as possible) and
//! `reflect` (shows what arrived, with some special behaviours, to browsers as a `page`); long
//! streams of events are in `model`.

mod behaviours;
mod fixed;
mod message;
mod model;
mod page;
mod reflect;
mod reflection;
mod response;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use http_engine::listen::Claim;
pub use page::{Hint, Way};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::LocalOptions;
use tokio::sync::watch;

use crate::exit::{Failure, Outcome};
use crate::lifecycle::Signals;
use crate::terminal::{BOLD, SUCCESS};

/// Last part of the help.
const EXIT_CODES: &str = "\
Exit codes: 0 stopped by a signal, 2 the command line is invalid, 3 the address cannot be listened on.";

/// Arguments of `postern echo`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = format!("{}\n\n{}\n\n{EXIT_CODES}", behaviours::HELP, model::HELP))]
#[allow(clippy::struct_excessive_bools, reason = "one for each flag")]
pub struct Arguments {
    /// IP address and port to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// Listen on a Unix socket instead; an old socket with that name is replaced.
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    unix: Option<PathBuf>,
    /// Respond with the request as it arrived, as JSON, instead of a fixed text.
    #[arg(long)]
    reflect: bool,
    /// Print each request as a line of JSON (with --reflect).
    #[arg(long, requires = "reflect")]
    log: bool,
    /// Respond to browsers with a page that shows the request, and sends and counts further ones
    /// (with --reflect).
    #[arg(long, requires = "reflect")]
    page: bool,
    /// Respond like a server of language models: with streams of events, over HTTP/1.1 and HTTP/2
    /// with prior knowledge, and WebSockets.
    #[arg(long, conflicts_with_all = ["reflect", "body_bytes", "delay", "stall", "stall_every"])]
    stream: bool,
    /// Body size of the fixed response, in bytes.
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "reflect")]
    body_bytes: usize,
    /// Wait this long before responding, such as 20ms or 1s.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = config::parse_duration)]
    delay: Duration,
    /// Stop responding for this long periodically, like a service that collects garbage (without
    /// --reflect).
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = config::parse_duration, conflicts_with = "reflect")]
    stall: Duration,
    /// Time from the start of one stall to the start of the next; the first one begins after this
    /// time.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = config::parse_duration, conflicts_with = "reflect")]
    stall_every: Duration,
    /// Number of worker threads, each with its own listener.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
}

/// Address that an echo upstream listens on.
#[derive(Debug, Clone)]
pub enum EchoAddress {
    /// IP address and port.
    Tcp(SocketAddr),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

/// What an echo upstream responds with.
#[derive(Debug, Clone)]
pub enum EchoAnswer {
    /// A text with a fixed size.
    Fixed {
        /// Body size in bytes.
        body_bytes: usize,
        /// Length of a stall, and its period. A length of zero means no stalls.
        stall: (Duration, Duration),
    },
    /// The request as it arrived.
    Reflect {
        /// Whether each request is printed.
        log: bool,
        /// What the page for browsers suggests. `None`: they get the same as other clients.
        page: Option<Vec<Hint>>,
    },
    /// Streams of events, as requests ask for them.
    Stream,
}

/// A running echo upstream. It ends when it is dropped.
#[derive(Debug)]
pub struct Echo {
    address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// Runs `postern echo` until SIGINT or SIGTERM.
pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let place = arguments.unix.map_or(EchoAddress::Tcp(arguments.listen), EchoAddress::Unix);
    let answer = if arguments.reflect {
        EchoAnswer::Reflect { log: arguments.log, page: arguments.page.then(Vec::new) }
    } else if arguments.stream {
        EchoAnswer::Stream
    } else {
        if arguments.stall >= arguments.stall_every {
            return Err(Failure::usage("--stall has to be shorter than --stall-every"));
        }
        EchoAnswer::Fixed {
            body_bytes: arguments.body_bytes,
            stall: (arguments.stall, arguments.stall_every),
        }
    };
    let mut signals = Signals::install()?;
    let echo = Echo::start(&place, &answer, arguments.delay, arguments.workers)
        .map_err(|error| Failure::new(format!("cannot listen on {place}: {error}")))?;
    let shown = echo.address().map_or_else(|| place.to_string(), |address| format!("http://{address}"));
    anstream::eprintln!("{SUCCESS}echo{SUCCESS:#} listens on {BOLD}{shown}{BOLD:#}");
    signals.wait_for_stop();
    echo.stop();
    Ok(Outcome::Success)
}

impl std::fmt::Display for EchoAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Echo {
    /// Binds the address and responds from `workers` threads.
    ///
    /// # Errors
    ///
    /// Returns the error of a socket that cannot be bound.
    pub fn start(
        place: &EchoAddress,
        answer: &EchoAnswer,
        delay: Duration,
        workers: u16,
    ) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let (mut address, mut sockets) = (None, Vec::new());
        match place {
            EchoAddress::Tcp(wanted) => {
                let (mut wanted, mut claim) = (*wanted, Claim::Exclusive);
                for _ in 0..workers.max(1) {
                    let socket = http_engine::listen::bind_tcp(wanted, claim)?;
                    // The kernel chose the port for the first socket. The others share it.
                    (wanted, claim) = (socket.local_addr()?, Claim::Shared);
                    sockets.push(Listening::Tcp(socket));
                }
                address = Some(wanted);
            }
            EchoAddress::Unix(path) => {
                let socket = http_engine::listen::bind_unix(path, 0o600, Claim::Exclusive)?;
                for _ in 1..workers.max(1) {
                    sockets.push(Listening::Unix(socket.try_clone()?));
                }
                sockets.push(Listening::Unix(socket));
            }
        }
        let served = match answer {
            EchoAnswer::Fixed { body_bytes, stall } => {
                Served::Fixed(fixed::Answer::new(*body_bytes, delay).with_stall(*stall))
            }
            EchoAnswer::Reflect { log, page } => {
                let page = page.as_deref().map(page::page);
                Served::Reflect(reflect::ReflectState::new(delay, *log, page))
            }
            EchoAnswer::Stream => Served::Stream,
        };
        let spawn = |(index, socket): (usize, Listening)| {
            let (served, stopped) = (served.clone(), stopped.clone());
            std::thread::Builder::new()
                .name(format!("echo-{index}"))
                .spawn(move || run_worker(socket, served, stopped))
        };
        let threads = sockets.into_iter().enumerate().map(spawn).collect::<io::Result<_>>()?;
        Ok(Self { address, stop, threads })
    }

    /// Address of the listener. `None`: it listens on a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Closes all connections and waits for the threads.
    pub fn stop(mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            // A panic of a worker was printed when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

enum Listening {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

#[derive(Clone)]
enum Served {
    Fixed(fixed::Answer),
    Reflect(reflect::ReflectState),
    Stream,
}

/// Runs one worker with its own runtime and listener.
fn run_worker(socket: Listening, served: Served, mut stopped: watch::Receiver<bool>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let accept = async {
        let served = Rc::new(served);
        match socket {
            Listening::Tcp(socket) => accept_tcp(TcpListener::from_std(socket)?, &served).await,
            Listening::Unix(socket) => accept_unix(UnixListener::from_std(socket)?, &served).await,
        }
    };
    let outcome = runtime.and_then(|runtime| {
        runtime.block_on(async {
            tokio::select! {
                outcome = accept => outcome,
                _ = stopped.wait_for(|stop| *stop) => Ok(()),
            }
        })
    });
    if let Err(error) = outcome {
        anstream::eprintln!("echo: a worker ended: {error}");
    }
}

async fn accept_tcp(listener: TcpListener, served: &Rc<Served>) -> io::Result<()> {
    let local = listener.local_addr()?.to_string();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // No file descriptor is left. Wait until others are closed.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (served, ends) = (Rc::clone(served), (peer.to_string(), local.clone()));
        tokio::task::spawn_local(async move { serve(stream, &served, ends).await });
    }
}

async fn accept_unix(listener: UnixListener, served: &Rc<Served>) -> io::Result<()> {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let (served, ends) = (Rc::clone(served), ("unix".to_owned(), "unix".to_owned()));
        tokio::task::spawn_local(async move { serve(stream, &served, ends).await });
    }
}

/// Serves a connection. An error ends this connection only.
async fn serve<S>(stream: S, served: &Served, ends: (String, String))
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let _ = match served {
        Served::Fixed(answer) => fixed::connection(stream, answer).await,
        Served::Reflect(mirror) => reflect::connection(stream, mirror, ends).await,
        Served::Stream => model::connection(stream).await,
    };
}

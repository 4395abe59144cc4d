//! Command line: converts arguments to plans. Sends nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, Parser, Subcommand};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use lab_load::idle_connections::{HoldBehavior, HoldPlan};
use lab_load::load::{
    Exchange, InterArrival, Open, Plan, Protocol, RequestTemplate, Schedule, Step, Stop, Target, TokenChoice,
    Trust,
};
use lab_load::observe::WatchedProcess;
use lab_load::provider::{Flow, ProviderDescription, ProviderPlan};

/// Loads an HTTP server and measures it from outside.
///
/// Latencies count from the time at which a request should have started, so a stall of the server
/// is seen by every request it delayed. The generator measures itself; when it is the bottleneck,
/// the report says so first.
#[derive(Parser)]
#[command(name = "postern-load", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Send requests at a rate, or with a number of workers, and report latencies
    Run(Box<Run>),
    /// Run sign-ins and grants against an OpenID provider, and report transactions
    Provider(Box<Provider>),
    /// Open connections, leave them idle, and report which of them the server closes
    Idle(Idle),
    /// Open connections that never finish their request head, and report how the server closes them
    SlowLoris(SlowLoris),
    /// Sample processes: CPU, memory, threads, context switches
    Observe(Observe),
}

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    arrivals: Arrivals,
    #[command(flatten)]
    request: RequestArgs,
    /// Length of the measured phase
    #[arg(short, long, value_parser = duration, default_value = "10s", conflicts_with = "requests")]
    duration: Duration,
    /// Measure exactly this many requests instead
    #[arg(short = 'n', long)]
    requests: Option<u64>,
    /// Duration of the load before the measured phase
    #[arg(short, long, value_parser = duration, default_value = "1s")]
    warmup: Duration,
    /// Connections to keep open (with --rate and --steps; a closed loop opens what its concurrency
    /// needs)
    #[arg(short, long, default_value_t = 50)]
    connections: usize,
    /// Use HTTP/2: with prior knowledge on http, through ALPN on https
    #[arg(long)]
    http2: bool,
    /// HTTP/2 requests in flight at the same time on one connection
    #[arg(long, default_value_t = 1, requires = "http2")]
    streams: usize,
    /// Longest time to a response, and longest wait for a free connection
    #[arg(long, value_parser = duration, default_value = "10s")]
    timeout: Duration,
    /// Seed of arrival times and token choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    pub(crate) output: Output,
    /// Exit with code 3 when more measured requests than this were refused (status from 400) or
    /// failed
    #[arg(long, value_name = "N")]
    pub(crate) max_failures: Option<u64>,
}

#[derive(Args)]
pub(crate) struct Provider {
    /// Description of the provider: JSON with name, origin, endpoints, clients, users
    #[arg(value_name = "DESCRIPTION")]
    description: PathBuf,
    #[arg(
        short,
        long,
        help = "client_credentials, password, password_revoke, refresh, introspection or code_consent"
    )]
    scenario: Flow,
    /// Virtual users, each with its own connection; each waits for its response
    #[arg(long, default_value_t = 50, value_name = "N")]
    concurrency: usize,
    /// Length of the measured phase
    #[arg(short, long, value_parser = duration, default_value = "10s")]
    duration: Duration,
    /// Duration of the load before the measured phase; it lasts until every user has finished a
    /// transaction
    #[arg(short, long, value_parser = duration, default_value = "2s")]
    warmup: Duration,
    /// Longest time to a response
    #[arg(long, value_parser = duration, default_value = "60s")]
    timeout: Duration,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Connect to this address instead of the origin's
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,
    /// Accept server certificates that chain to this PEM file
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Accept any server certificate
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    /// Exit with code 3 when more transactions than this failed
    #[arg(long, value_name = "N")]
    pub(crate) max_failures: Option<u64>,
}

#[derive(Args)]
#[group(skip)]
struct Place {
    #[arg(help = "Target URL: http://HOST[:PORT]/PATH or https://…")]
    url: String,
    /// Connect to this address instead of the URL's
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,
    /// Accept server certificates that chain to this PEM file
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Accept any server certificate
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// Name for the TLS handshake instead of the URL's host
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
}

#[derive(Args)]
#[group(skip)]
#[command(group(clap::ArgGroup::new("when").required(true).args(["rate", "steps", "concurrency"])))]
struct Arrivals {
    /// Open loop: requests per second, independent of the server
    #[arg(short, long)]
    rate: Option<f64>,
    /// Open loop: consecutive rates, such as 5000@10s,5000..20000@60s,5000@10s, where the second
    /// one grows
    #[arg(long, value_parser = step, value_delimiter = ',', value_name = "RATE[..RATE]@TIME,…", conflicts_with_all = ["duration", "requests"])]
    steps: Vec<Step>,
    /// Closed loop: workers that each wait for their response (throughput is then concurrency ÷
    /// latency)
    #[arg(long, value_name = "N", conflicts_with = "connections")]
    concurrency: Option<usize>,
    /// Equal gaps between arrivals instead of those of independent users (Poisson)
    #[arg(long, conflicts_with = "concurrency")]
    constant: bool,
}

#[derive(Args)]
#[group(skip)]
struct RequestArgs {
    /// Request method
    #[arg(short = 'X', long, default_value = "GET")]
    method: Method,
    /// Header field, such as 'accept: text/html'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// Bearer token of the requests
    #[arg(long)]
    token: Option<String>,
    /// File with one bearer token per line
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Choose tokens by Zipf's law with this exponent instead of in turn
    #[arg(long, value_name = "EXPONENT")]
    zipf: Option<f64>,
    /// Content of the request
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// Content of the request, from a file
    #[arg(long, value_name = "FILE", conflicts_with = "body")]
    body_file: Option<PathBuf>,
    /// Content of the request: this many bytes
    #[arg(long, value_name = "N", conflicts_with_all = ["body", "body_file"])]
    body_bytes: Option<usize>,
    /// Open a new connection for each request
    #[arg(long)]
    no_keepalive: bool,
}

#[derive(Args)]
pub(crate) struct Output {
    /// Write the complete report as JSON to this file; `-` writes it to standard output instead of
    /// the table
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Sample a process and its descendants; may be repeated
    #[arg(long, value_parser = watched, value_name = "NAME=PID")]
    watch: Vec<WatchedProcess>,
}

#[derive(Args)]
pub(crate) struct Idle {
    #[command(flatten)]
    hold: Hold,
    /// Send one request on each connection first, so that it is a kept-alive one
    #[arg(long)]
    request: bool,
    /// Bearer token of that request
    #[arg(long, requires = "request")]
    token: Option<String>,
}

#[derive(Args)]
pub(crate) struct SlowLoris {
    #[command(flatten)]
    hold: Hold,
    /// Time between two header lines of a connection
    #[arg(long, value_parser = duration, default_value = "1s")]
    interval: Duration,
}

#[derive(Args)]
struct Hold {
    #[command(flatten)]
    place: Place,
    /// Connections to hold at the same time
    #[arg(short, long, default_value_t = 1000)]
    connections: usize,
    /// How long to hold them after all have been tried
    #[arg(short, long, value_parser = duration, default_value = "10s")]
    duration: Duration,
    /// Longest time to open one connection
    #[arg(long, value_parser = duration, default_value = "10s")]
    timeout: Duration,
    /// Connections that are opened at the same time
    #[arg(long, default_value_t = 128)]
    opening: usize,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub(crate) struct Observe {
    #[command(flatten)]
    pub(crate) output: Output,
    /// How long to sample; without it, until interrupted or until all processes have ended
    #[arg(short, long, value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Time between two samples
    #[arg(long, value_parser = duration, default_value = "100ms")]
    pub(crate) interval: Duration,
}

type Failure = Box<dyn std::error::Error>;

impl Run {
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        let protocol = if self.http2 { Protocol::Http2 } else { Protocol::Http1 };
        let schedule = self.arrivals.schedule(self.duration);
        let connections = match schedule {
            Schedule::Closed { concurrency } => {
                let streams = self.streams.max(1);
                if concurrency % streams != 0 {
                    return Err(format!(
                        "--concurrency {concurrency} is not a multiple of --streams {streams}"
                    )
                    .into());
                }
                concurrency / streams
            }
            Schedule::Open(_) => self.connections,
        };
        let stop = match (self.requests, self.arrivals.steps.as_slice()) {
            (Some(requests), _) => Stop::Count(requests),
            (None, []) => Stop::After(self.duration),
            (None, steps) => Stop::After(steps.iter().map(|step| step.duration).sum()),
        };
        Ok(Plan {
            target: self.place.target(protocol)?,
            flow: self.request.template()?,
            schedule,
            stop,
            warmup: self.warmup,
            connections,
            streams: self.streams,
            timeout: self.timeout,
            seed: self.seed,
            watch: self.output.watch.clone(),
        })
    }
}

impl Provider {
    pub(crate) fn plan(&self) -> Result<ProviderPlan, Failure> {
        Ok(ProviderPlan {
            description: ProviderDescription::read(&self.description)?,
            scenario: self.scenario,
            concurrency: self.concurrency,
            warmup: self.warmup,
            duration: self.duration,
            after: Duration::ZERO,
            timeout: self.timeout,
            seed: self.seed,
            trust: trust(self.ca.as_deref(), self.insecure),
            connect: self.connect.clone(),
            watch: self.output.watch.clone(),
        })
    }
}

fn trust(ca: Option<&Path>, insecure: bool) -> Option<Trust> {
    match ca {
        Some(file) => Some(Trust::CertificateFile(file.to_owned())),
        None => insecure.then_some(Trust::AnyCertificate),
    }
}

impl Place {
    fn target(&self, protocol: Protocol) -> Result<Target, Failure> {
        let trust = trust(self.ca.as_deref(), self.insecure);
        Ok(Target::new(
            &self.url,
            protocol,
            trust.as_ref(),
            self.connect.as_deref(),
            self.server_name.as_deref(),
        )?)
    }
}

impl Arrivals {
    fn schedule(&self, duration: Duration) -> Schedule {
        if let Some(concurrency) = self.concurrency {
            return Schedule::Closed { concurrency };
        }
        let spacing = if self.constant { InterArrival::Constant } else { InterArrival::Poisson };
        let steps = match self.rate {
            Some(rate) => vec![Step::steady(rate, duration)],
            None => self.steps.clone(),
        };
        Schedule::Open(Open { spacing, steps })
    }
}

impl RequestArgs {
    fn template(&self) -> Result<RequestTemplate, Failure> {
        let body = match (&self.body, &self.body_file, self.body_bytes) {
            (Some(text), _, _) => Bytes::from(text.clone()),
            (_, Some(file), _) => Bytes::from(fs::read(file).map_err(|error| unreadable(file, &error))?),
            (_, _, Some(size)) => Bytes::from(vec![b'x'; size]),
            _ => Bytes::new(),
        };
        let mut headers = HeaderMap::new();
        for field in &self.headers {
            let (name, value) = header(field)?;
            headers.append(name, value);
        }
        Ok(RequestTemplate {
            method: self.method.clone(),
            headers,
            body,
            tokens: self.tokens()?,
            choice: self.zipf.map_or(TokenChoice::RoundRobin, TokenChoice::Zipf),
            keep_alive: !self.no_keepalive,
            exchange: Exchange::Request,
        })
    }

    fn tokens(&self) -> Result<Vec<String>, Failure> {
        let Some(file) = &self.token_file else { return Ok(self.token.iter().cloned().collect()) };
        let text = fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
        let tokens: Vec<String> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        if tokens.is_empty() {
            return Err(format!("`{}` has no token; expected one per line", file.display()).into());
        }
        Ok(tokens)
    }
}

impl Idle {
    pub(crate) fn plan(&self) -> Result<HoldPlan, Failure> {
        let flow =
            || RequestTemplate { tokens: self.token.iter().cloned().collect(), ..RequestTemplate::get() };
        self.hold.plan(HoldBehavior::Idle { first: self.request.then(|| Box::new(flow())) })
    }

    pub(crate) fn output(&self) -> &Output {
        &self.hold.output
    }
}

impl SlowLoris {
    pub(crate) fn plan(&self) -> Result<HoldPlan, Failure> {
        self.hold.plan(HoldBehavior::SlowLoris { interval: self.interval })
    }

    pub(crate) fn output(&self) -> &Output {
        &self.hold.output
    }
}

impl Hold {
    fn plan(&self, manner: HoldBehavior) -> Result<HoldPlan, Failure> {
        Ok(HoldPlan {
            target: self.place.target(Protocol::Http1)?,
            connections: self.connections,
            behavior: manner,
            hold: self.duration,
            timeout: self.timeout,
            max_concurrent_connects: self.opening,
            watch: self.output.watch.clone(),
        })
    }
}

impl Output {
    pub(crate) fn watch(&self) -> &[WatchedProcess] {
        &self.watch
    }
}

fn unreadable(file: &std::path::Path, error: &std::io::Error) -> Failure {
    format!("cannot read `{}`: {error}", file.display()).into()
}

fn header(field: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let refused = || format!("`{field}` is not a header field; give 'name: value'");
    let (name, value) = field.split_once(':').ok_or_else(refused)?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| refused())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| refused())?;
    Ok((name, value))
}

/// Parses a time such as `500ms`, `10s`, `2m`, `1h`; a bare number is in seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("`{text}` is not a time; give 500ms, 10s, 2m or 1h");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: f64 = digits.parse().map_err(|_| refused())?;
    let unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(refused()),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| refused())
}

fn step(text: &str) -> Result<Step, String> {
    let refused = || format!("`{text}` is not a step; give RATE@TIME, such as 5000@10s, or RATE..RATE@TIME");
    let (rates, time) = text.split_once('@').ok_or_else(refused)?;
    let (from, to) = rates.split_once("..").unwrap_or((rates, rates));
    let rate = |text: &str| text.parse::<f64>().map_err(|_| refused());
    Ok(Step { rate: rate(from)?, to: rate(to)?, duration: duration(time)? })
}

fn watched(text: &str) -> Result<WatchedProcess, String> {
    let refused = || format!("`{text}` is not NAME=PID");
    let (name, pid) = text.split_once('=').ok_or_else(refused)?;
    Ok(WatchedProcess { name: name.to_owned(), pid: pid.parse().map_err(|_| refused())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("postern-load").chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        match cli.command {
            Command::Run(run) => run.plan().map_err(|error| error.to_string()),
            _ => Err("another command".to_owned()),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn times_are_understood() {
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_mins(2)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "s", "-1s", "1d", "1 s", "1e400"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_way_to_arrive_must_be_chosen() {
        assert!(plan("run http://127.0.0.1:1/").unwrap_err().contains("--rate"));
        assert!(plan("run http://127.0.0.1:1/ --rate 5 --concurrency 5").is_err());
        let open = plan("run http://127.0.0.1:1/ --rate 5 --constant -d 2s").unwrap();
        let steps = vec![Step::steady(5.0, Duration::from_secs(2))];
        assert_eq!(open.schedule, Schedule::Open(Open { spacing: InterArrival::Constant, steps }));
        let closed = plan("run http://127.0.0.1:1/ --concurrency 20 --http2 --streams 5").unwrap();
        assert_eq!((closed.connections, closed.streams), (4, 5));
        assert!(plan("run http://127.0.0.1:1/ --concurrency 21 --http2 --streams 5").is_err());
    }

    #[test]
    fn steps_set_the_length_of_the_run() {
        let plan = plan("run http://127.0.0.1:1/ --steps 10@1s,20@3s").unwrap();
        assert_eq!(plan.stop, Stop::After(Duration::from_secs(4)));
    }
}

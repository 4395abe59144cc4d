//! Real brokers on free loopback ports, each in a folder that is removed with it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tempfile::TempDir;

use super::servers::free_port;

pub(crate) const USER: &str = "postern";
pub(crate) const PASSWORD: &str = "a broker's password";

/// Time limit for a broker's start, on a machine that is busy.
const PATIENCE: Duration = Duration::from_mins(2);

/// Time limit for a broker's end after it is killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// The supported brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Artemis,
    Classic,
    Rabbit,
}

/// A broker with one account, [`USER`]. Killed when it is dropped.
pub(crate) struct Broker {
    kind: Kind,
    port: u16,
    folder: TempDir,
    /// Its processes: those that it needs come first, the broker last.
    processes: Vec<ProcessGroup>,
}

/// A process, with its children.
struct ProcessGroup(Child);

impl ProcessGroup {
    fn start(command: &mut Command, log: &Path) -> Self {
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        let command = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self(command.process_group(0).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.0), signal);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.0.wait();
        // Children of scripts cannot be waited for. Their port must be free again, and their folder
        // is removed.
        let began = Instant::now();
        while test_kill_process_group(Pid::from_child(&self.0)).is_ok() && began.elapsed() < KILL_TIMEOUT {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Path of something that `dev/setup brokers` installs; the test fails when it is not there.
fn installed(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "{} is missing: run dev/setup brokers", path.display());
    path
}

fn cached(name: &str) -> PathBuf {
    installed(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache").join(name))
}

impl Broker {
    /// Starts a broker and waits until it accepts connections.
    pub(crate) fn start(kind: Kind) -> Self {
        let folder = tempfile::Builder::new().prefix("postern-broker-").tempdir().unwrap();
        let mut broker = Self { kind, port: free_port(), folder, processes: Vec::new() };
        broker.prepare();
        broker.run();
        broker
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills it, as a power failure would.
    pub(crate) fn kill(&mut self) {
        self.processes.pop();
    }

    /// Stops its processes, with their sockets open.
    pub(crate) fn freeze(&self) {
        self.processes.last().unwrap().signal(Signal::STOP);
    }

    /// Continues its processes.
    pub(crate) fn thaw(&self) {
        self.processes.last().unwrap().signal(Signal::CONT);
    }

    /// Starts it again, at the same port.
    pub(crate) fn run(&mut self) {
        let mut command = match self.kind {
            Kind::Artemis => self.artemis(),
            Kind::Classic => self.classic(),
            Kind::Rabbit => self.rabbit(),
        };
        self.processes.push(ProcessGroup::start(&mut command, &self.log()));
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.processes.last_mut().unwrap().0.try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < PATIENCE, "{:?}: {}", self.kind, self.log_text());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn log_text(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Prepares its folder once, before the first start.
    fn prepare(&mut self) {
        match self.kind {
            Kind::Artemis => self.create_artemis(),
            Kind::Classic => {}
            Kind::Rabbit => self.configure_rabbit(),
        }
    }

    fn create_artemis(&self) {
        let port = self.port.to_string();
        let instance = self.folder.path().join("instance");
        let mut command = Command::new(cached("artemis/bin/artemis"));
        command.arg("create").arg(&instance).args([
            "--user",
            USER,
            "--password",
            PASSWORD,
            "--require-login",
        ]);
        command.args(["--host", "127.0.0.1", "--default-port", &port, "--no-web", "--no-autotune", "--nio"]);
        command.args([
            "--no-amqp-acceptor",
            "--no-mqtt-acceptor",
            "--no-stomp-acceptor",
            "--no-hornetq-acceptor",
        ]);
        let mut created = ProcessGroup::start(command.arg("--silent"), &self.log());
        assert!(created.0.wait().unwrap().success(), "{}", self.log_text());
        self.configure_artemis(-1, "PAGE");
    }

    /// Share of the disk, in percent, from which Artemis does not take messages as usual (-1:
    /// never), and what it does then. It is read at the start. By default Artemis pages from 90 %
    /// on, and new subscriptions may then get no messages. With this setting the disk of the test
    /// machine does not matter.
    pub(crate) fn configure_artemis(&self, disk: i8, policy: &str) {
        let file = self.folder.path().join("instance/etc/broker.xml");
        let mut xml = fs::read_to_string(&file).unwrap();
        for (name, value) in [("max-disk-usage", &*disk.to_string()), ("address-full-policy", policy)] {
            let (open, close) = (format!("<{name}>"), format!("</{name}>"));
            let mut parts = xml.split(&open);
            let mut written = parts.next().unwrap().to_owned();
            for part in parts {
                let (_, rest) = part.split_once(&close).unwrap();
                for part in [&*open, value, &*close, rest] {
                    written.push_str(part);
                }
            }
            assert!(written.contains(&open), "{name}");
            xml = written;
        }
        fs::write(&file, xml).unwrap();
    }

    fn artemis(&self) -> Command {
        let mut command = Command::new(self.folder.path().join("instance/bin/artemis"));
        command.arg("run").env("JAVA_ARGS_APPEND", "-Xmx512M");
        command
    }

    fn classic(&self) -> Command {
        let home = cached("activemq");
        let mut command = Command::new("java");
        command.arg("-Xmx512M").arg("-cp").arg(format!("{0}:{0}/lib/*", home.display()));
        command.args(["Classic", &self.address(), USER, PASSWORD]).current_dir(self.folder.path());
        command
    }

    fn configure_rabbit(&mut self) {
        let folder = self.folder.path();
        fs::write(folder.join("plugins"), "[rabbitmq_amqp1_0].\n").unwrap();
        let settings = format!("default_user = {USER}\ndefault_pass = {PASSWORD}\n");
        fs::write(folder.join("rabbitmq.conf"), settings).unwrap();
        // Otherwise Erlang would start this process by itself, and leave it running.
        let names = free_port().to_string();
        let mut command = Command::new(installed("/usr/bin/epmd".into()));
        command.args(["-address", "127.0.0.1", "-port", &names]);
        fs::write(folder.join("names"), &names).unwrap();
        let names = ProcessGroup::start(&mut command, &self.log());
        self.processes.push(names);
    }

    fn rabbit(&self) -> Command {
        let folder = self.folder.path();
        let mut command = Command::new(installed("/usr/lib/rabbitmq/bin/rabbitmq-server".into()));
        command
            .current_dir(folder)
            .env("HOME", folder)
            .env("ERL_EPMD_PORT", fs::read_to_string(folder.join("names")).unwrap())
            .env("RABBITMQ_NODENAME", format!("postern{}@localhost", self.port))
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", self.port.to_string())
            .env("RABBITMQ_DIST_PORT", free_port().to_string())
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}")
            .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
            .env("RABBITMQ_LOG_BASE", folder)
            .env("RABBITMQ_PID_FILE", folder.join("pid"))
            .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"));
        command
    }
}

//! Topologies, scenarios and runs with real programs: shells, and this test program as a server.

mod beside;
mod cgroups;
mod commands;
mod counts;
mod during;
mod flows;
mod generators;
mod remote;
mod revocations;
mod runs;
mod server;
mod topologies;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::run::{Options, ProgressOutput};
use lab::topology::{ProgramFinder, Topology, Workdir};
use lab_load::{Interrupt, Interrupter};

/// A core that this process may use: not every machine permits the first one.
fn usable_core() -> usize {
    let usable = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).find(|core| usable.is_set(*core)).unwrap()
}

/// Folder of a test, with topologies that use its server.
struct Lab {
    folder: tempfile::TempDir,
    interrupter: Interrupter,
    interrupt: Interrupt,
}

impl Lab {
    fn new() -> Self {
        let (interrupter, interrupt) = Interrupt::manual();
        Self { folder: tempfile::tempdir().unwrap(), interrupter, interrupt }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a topology file. Returns its path.
    fn topology(&self, name: &str, text: &str) -> String {
        let path = self.path(&format!("{name}.toml"));
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn place(&self) -> Workdir {
        Workdir::new(&self.path("work"), programs(), self.interrupt.clone()).unwrap()
    }

    fn options(&self) -> Options {
        Options {
            seed: 1,
            keep: Some(self.path("work")),
            commit: Some("0123".to_owned()),
            show: ProgressOutput::Off,
            programs: programs(),
        }
    }
}

/// This test program under the name `server`.
fn programs() -> ProgramFinder {
    let own = std::env::current_exe().unwrap();
    ProgramFinder::new(BTreeMap::from([("server".to_owned(), own)]))
}

/// A server component (see [`server`]). `keys` are further keys of its table, `environment` of its
/// environment.
fn server_component(name: &str, keys: &str, environment: &str) -> String {
    format!(
        "[[component]]\nname = \"{name}\"\nprogram = \"server\"\narguments = [\"floor::server::serve\", \"--exact\", \"--ignored\", \
         \"--nocapture\"]\nports = [\"http\"]\nenvironment = {{ LAB_TEST_PORT = \"@{name}.http@\"{environment} }}\n{keys}\n"
    )
}

/// A topology with one server, which issues tokens and requires them.
fn guarded_topology(environment: &str) -> String {
    format!(
        "title = \"a server that wants a token\"\npath = [\"front\"]\n[load]\nurl = \"http://127.0.0.1:@front.http@/app\"\n\
         server_timing_of = \"front\"\n[tokens]\nurl = \"http://127.0.0.1:@front.http@/token\"\nsecret_file = \"@secret_file@\"\n\
         [tokens.mode.oauth]\nclient = \"tester\"\n{}",
        server_component("front", "", &format!(", LAB_TEST_GUARDED = \"yes\"{environment}"))
    )
}

fn parse(text: &str) -> Topology {
    Topology::from_text(text, "mine.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until a condition is true. `what` is the message if it stays false.
fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !happened() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

//! Programs: where they are, which version they have, and how to install a missing one.
//!
//! Owns: the search, and the hints for installation. Does not own: how a program is started.

use std::collections::BTreeMap;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::TopologyError;
use super::description::{Kind, ProgramInfo, Topology};

/// Folders that the search path of a user often lacks.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
/// A program that does not print its version within this time has no version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Known programs: name, arguments that print the version, and how to install the program.
const KNOWN_PROGRAMS: [(&str, &[&str], &str); 14] = [
    (
        "postern",
        &["--version"],
        "build it with `cargo build --release`, or name it with --program postern=PATH",
    ),
    (
        "envoy",
        &["--version"],
        "download it from the Envoy project's releases, or name it with --program envoy=PATH",
    ),
    (
        "haproxy",
        &["-v"],
        "install the package haproxy (Debian, Fedora), or name it with --program haproxy=PATH",
    ),
    ("nginx", &["-v"], "install the package nginx (Debian, Fedora), or name it with --program nginx=PATH"),
    (
        "postgres",
        &["--version"],
        "install PostgreSQL (Debian: package postgresql, below /usr/lib/postgresql), or name it with --program postgres=PATH",
    ),
    (
        "valgrind",
        &["--version"],
        "install the package valgrind (Debian, Fedora), or name it with --program valgrind=PATH",
    ),
    ("initdb", &["--version"], "it comes with PostgreSQL; name it with --program initdb=PATH"),
    (
        "setpriv",
        &["--version"],
        "it comes with util-linux; root needs it for programs that refuse to run as root",
    ),
    (
        "nats-server",
        &["--version"],
        "install the package nats-server (Debian), download it from the NATS project's releases, or name it with --program nats-server=PATH",
    ),
    ("wrk", &["-v"], "install the package wrk (Debian, Fedora), or name it with --program wrk=PATH"),
    (
        "h2load",
        &["--version"],
        "install the package nghttp2-client (Debian) or nghttp2 (Fedora), or name it with --program h2load=PATH",
    ),
    ("oha", &["--version"], "install it with `cargo install oha`, or name it with --program oha=PATH"),
    // `hey` cannot print its version.
    ("hey", &[], "install the package hey (Debian), or name it with --program hey=PATH"),
    ("k6", &["version"], "download it from the k6 project's releases, or name it with --program k6=PATH"),
];

/// Finds programs: in the search path, or at given paths.
#[derive(Debug, Clone, Default)]
pub struct ProgramFinder {
    bundled: BTreeMap<String, PathBuf>,
    given: BTreeMap<String, PathBuf>,
    /// Level of optimization of the bundled programs.
    optimization: Option<String>,
}

impl ProgramFinder {
    /// Creates a finder for the search path; `given` paths take precedence by name.
    pub fn new(given: BTreeMap<String, PathBuf>) -> Self {
        Self { given, ..Self::default() }
    }

    /// Uses `path` for `name` unless a path was given: for the program that contains the lab, built
    /// with this level of optimization.
    #[must_use]
    pub fn with_own(mut self, name: &str, path: PathBuf, optimization: &str) -> Self {
        self.bundled.insert(name.to_owned(), path);
        self.optimization = Some(optimization.to_owned());
        self
    }

    /// Level of optimization of the program at `path`, if that is the one that contains the lab.
    pub(crate) fn optimization_of(&self, path: &Path) -> Option<String> {
        let same = |own: &PathBuf| own == path || own.canonicalize().ok() == path.canonicalize().ok();
        self.bundled.values().any(same).then(|| self.optimization.clone()).flatten()
    }

    /// Adds a given path for a name.
    #[must_use]
    pub fn with(mut self, name: &str, path: PathBuf) -> Self {
        self.given.insert(name.to_owned(), path);
        self
    }

    /// Finds the path of a program.
    ///
    /// # Errors
    /// The program is not found; the error says how to install it.
    pub(crate) fn find(
        &self,
        component: &str,
        name: &str,
        table: Option<&ProgramInfo>,
    ) -> Result<PathBuf, TopologyError> {
        let missing = |missing: String| TopologyError::Program {
            component: component.to_owned(),
            program: name.to_owned(),
            missing,
            get: how_to_get(name, table),
        };
        if let Some(path) = self.given.get(name) {
            let found = absolute(path);
            return found.ok_or_else(|| missing(format!("not an executable file at {}", path.display())));
        }
        if let Some(path) = self.bundled.get(name) {
            return Ok(path.clone());
        }
        if name.contains('/') {
            return absolute(Path::new(name)).ok_or_else(|| missing("missing at that path".to_owned()));
        }
        let paths = std::env::var_os("PATH").unwrap_or_default();
        // The wrapper that Debian puts into the search path switches to another account and loses
        // the environment.
        let before = (name == "rabbitmq-server").then(|| PathBuf::from("/usr/lib/rabbitmq/bin"));
        let folders = before
            .into_iter()
            .chain(std::env::split_paths(&paths))
            .chain(SYSTEM_FOLDERS.map(PathBuf::from))
            .chain(postgresql_folders());
        folders
            .map(|folder| folder.join(name))
            .find(|path| is_program(path))
            .ok_or_else(|| missing("not in the search path".to_owned()))
    }

    /// Checks that every program of a topology is installed.
    ///
    /// # Errors
    /// The first program that is missing.
    pub(crate) fn find_all(&self, topology: &Topology) -> Result<(), TopologyError> {
        for component in &topology.components {
            let Kind::Program(program) = &component.kind else { continue };
            for name in iter::once(&program.name).chain(&program.required_programs) {
                self.find(&component.name, name, topology.programs.get(name))?;
            }
        }
        Ok(())
    }

    /// First line of the program's version output; `None` if there is none.
    pub(crate) fn version(name: &str, path: &Path, table: Option<&ProgramInfo>) -> Option<String> {
        let usual = KNOWN_PROGRAMS.iter().find(|known| known.0 == name).map(|known| known.1);
        let words: Vec<&str> = match table.and_then(|table| table.version.as_ref()) {
            Some(words) => words.iter().map(String::as_str).collect(),
            None => usual.filter(|words| !words.is_empty())?.to_vec(),
        };
        let mut child = Command::new(path)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        let until = Instant::now() + VERSION_TIMEOUT;
        while child.try_wait().ok()?.is_none() {
            if Instant::now() > until {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().ok()?;
        let text =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().filter(|letter| !letter.is_control()).take(120).collect())
    }
}

fn how_to_get(name: &str, table: Option<&ProgramInfo>) -> String {
    let own = table.and_then(|table| table.get.clone());
    let known = || KNOWN_PROGRAMS.iter().find(|known| known.0 == name).map(|known| known.2.to_owned());
    own.or_else(known).unwrap_or_else(|| format!("install it, or name it with --program {name}=PATH"))
}

fn absolute(path: &Path) -> Option<PathBuf> {
    is_program(path).then(|| std::path::absolute(path).ok()).flatten()
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// Folders where Debian installs the PostgreSQL programs, newest version first.
fn postgresql_folders() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    found.sort();
    found.reverse();
    found
}

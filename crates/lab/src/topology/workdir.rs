//! Work directory: the folder of a run, and the values of names in its topologies.
//!
//! Owns: shared files of a run (a client secret, a certificate, a token signing key), and the
//! values of names, ports and secrets of one topology. Does not own: starting programs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lab_load::Interrupt;
use lab_load::cgroup::{Hierarchy, Limits};

use super::description::Kind;
use super::names::secret_names;
use super::ports::PortClaims;
use super::program::ProgramFinder;
use super::signer::Signer;
use super::template::{self, Values};
use super::{Topology, TopologyError};

/// Prints a line.
type PrintLine = dyn Fn(&str) + Send + Sync;

/// Folder and resources that all topologies of a run share.
pub struct Workdir {
    folder: PathBuf,
    programs: ProgramFinder,
    interrupt: Interrupt,
    hierarchy: OnceLock<Hierarchy>,
    signer: OnceLock<Arc<Signer>>,
    /// Prints lines of progress of a long start.
    printer: OnceLock<Box<PrintLine>>,
    /// Values of names that every topology can use.
    values: Values,
}

/// Overrides of a topology by a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopologyOverrides {
    /// Values of topology variables, by name.
    pub variables: BTreeMap<String, String>,
    /// Limits by component; they replace those of the topology.
    pub limits: BTreeMap<String, Limits>,
    /// Limit of open files by component; it replaces that of the topology.
    pub open_files: BTreeMap<String, u64>,
    /// Cores by component; they replace those of the topology.
    pub cores: BTreeMap<String, Vec<u32>>,
}

impl Workdir {
    /// Creates the work directory in `folder`, which is created if necessary, with a client secret
    /// and a server certificate.
    ///
    /// # Errors
    /// A file cannot be written, or the certificate cannot be created.
    pub fn new(folder: &Path, programs: ProgramFinder, interrupt: Interrupt) -> Result<Self, TopologyError> {
        make_folder(folder)?;
        let folder = fs::canonicalize(folder).map_err(failed("read", folder))?;
        let mut values = Values::new();
        let mut file = |name: &str, path: &str, content: &str| {
            let path = folder.join(path);
            write_private(&path, content)?;
            values.insert(name.to_owned(), path.display().to_string());
            Ok::<_, TopologyError>(())
        };
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| failed("make", &folder.join("certificate.pem"))(io::Error::other(error)))?;
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        file("certificate", "certificate.pem", &certificate)?;
        file("key", "key.pem", &key)?;
        file("certificate_and_key", "certificate-and-key.pem", &format!("{certificate}{key}"))?;
        file("secret_file", "client.secret", &format!("{}\n", new_secret()))?;
        values.insert("cores".to_owned(), cores().to_string());
        Ok(Self {
            folder,
            programs,
            interrupt,
            hierarchy: OnceLock::new(),
            signer: OnceLock::new(),
            printer: OnceLock::new(),
            values,
        })
    }

    /// Folder for the files of the run.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Prints lines of progress with `printer` from now on.
    pub(crate) fn report_to(&self, printer: Box<dyn Fn(&str) + Send + Sync>) {
        // Only a run sets it, once.
        let _ = self.printer.set(printer);
    }

    /// Prints a line of progress.
    pub(super) fn report(&self, line: &str) {
        if let Some(printer) = self.printer.get() {
            printer(line);
        }
    }

    /// Finder of the programs to start.
    pub(crate) fn programs(&self) -> &ProgramFinder {
        &self.programs
    }

    /// The token signer of this run. At the first call it creates the key, and two files with the
    /// public key that topologies find by name.
    pub(super) fn signer(&self, values: &mut Values) -> Result<Arc<Signer>, TopologyError> {
        let path = |name: &str| self.folder.join(name);
        let (key, keys) = (path("token-key.pem"), path("token-keys.json"));
        let signer = match self.signer.get() {
            Some(signer) => Arc::clone(signer),
            None => {
                let no_key = || failed("make", &key)(io::Error::other("cannot create an RSA key"));
                let signer = Signer::new().ok_or_else(no_key)?;
                write_private(&key, &signer.public_pem().ok_or_else(no_key)?)?;
                write_private(&keys, &signer.jwks())?;
                Arc::clone(self.signer.get_or_init(|| Arc::new(signer)))
            }
        };
        values.insert("token_key".to_owned(), key.display().to_string());
        values.insert("token_keys".to_owned(), keys.display().to_string());
        Ok(signer)
    }

    /// Handle that ends the run early.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Control group hierarchy of this machine.
    pub(crate) fn hierarchy(&self) -> &Hierarchy {
        self.hierarchy.get_or_init(Hierarchy::detect)
    }
}

/// Number of cores that this process can use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

pub(super) fn failed<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> TopologyError + 'a {
    move |error| TopologyError::File { action, path: path.display().to_string(), error }
}

/// Creates a folder that programs under another account can enter.
pub(super) fn make_folder(path: &Path) -> Result<(), TopologyError> {
    fs::create_dir_all(path).map_err(failed("make", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(failed("make", path))
}

/// Writes a file that only its owner can read.
pub(super) fn write_private(path: &Path, content: &str) -> Result<(), TopologyError> {
    let open = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    open.and_then(|mut file| io::Write::write_all(&mut file, content.as_bytes()))
        .map_err(failed("write", path))
}

/// Creates a secret: 32 random bytes in base64. Only values without `+` and `/` are used, so that
/// the secret fits unchanged into a URL, a command line and any file format.
fn new_secret() -> String {
    use base64::Engine as _;
    loop {
        let mut bytes = [0; 32];
        aws_lc_rs::rand::fill(&mut bytes).expect("the system gives random bytes");
        let text = base64::engine::general_purpose::STANDARD.encode(bytes);
        if !text.contains(['+', '/']) {
            return text;
        }
    }
}

/// Values of the names of a topology in this run.
pub(super) fn run_values(
    topology: &Topology,
    change: &TopologyOverrides,
    place: &Workdir,
    folder: &Path,
    ports: &mut PortClaims,
) -> Result<Values, TopologyError> {
    let mut values = place.values.clone();
    values.insert("run".to_owned(), folder.display().to_string());
    for component in &topology.components {
        match &component.kind {
            Kind::Remote { url } => {
                values.insert(format!("{}.url", component.name), url.clone());
            }
            Kind::Program(program) => {
                for port in &program.ports {
                    let number = ports.claim_free().map_err(failed("make", Path::new("a free port")))?;
                    values.insert(format!("{}.{port}", component.name), number.to_string());
                }
            }
        }
    }
    for name in &topology.secrets {
        let (text, path) = (new_secret(), folder.join(format!("{name}.secret")));
        write_private(&path, &format!("{text}\n"))?;
        let [own, file] = secret_names(name);
        values.insert(own, text);
        values.insert(file, path.display().to_string());
    }
    // The parts were selected when the topology was read. Another value now would not match the
    // running topology.
    let other = topology
        .part_variables
        .iter()
        .find(|(name, chosen)| change.variables.get(*name).is_some_and(|value| value != *chosen));
    if let Some((name, chosen)) = other {
        let message =
            format!("`{name}` selects a part and cannot change after the topology was read with `{chosen}`");
        return Err(TopologyError::invalid_value(&topology.name, "variables", message));
    }
    let mut filled = Values::new();
    for (name, value) in &topology.variables {
        let value = change.variables.get(name).unwrap_or(value);
        let value = template::fill(value, &values).map_err(|unknown| {
            TopologyError::invalid_value(
                &topology.name,
                format!("variables.{name}"),
                unknown.describe(&values),
            )
        })?;
        filled.insert(name.clone(), value);
    }
    if let Some(unknown) = change.variables.keys().find(|name| !topology.variables.contains_key(*name)) {
        let known = topology.variables.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let message = format!("unknown variable `{unknown}`; available: {known}");
        return Err(TopologyError::invalid_value(&topology.name, "variables", message));
    }
    values.extend(filled);
    Ok(values)
}

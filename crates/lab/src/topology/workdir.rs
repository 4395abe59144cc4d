//! Where topologies run: the folder of a run, and what names in them stand for.
//!
//! Owns: files that all topologies of a run share (a secret for clients, a certificate, a key that signs tokens), and the values of names,
//! ports and secrets of one topology. Does not own: starting anything.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::description::Kind;
use super::names::secret_names;
use super::ports::Ports;
use super::program::Programs;
use super::signer::Signer;
use super::template::{self, Values};
use super::{Topology, TopologyError};
use crate::cgroup::{Hierarchy, Limits};
use crate::interrupt::Interrupt;

/// What all topologies of a run share.
#[derive(Debug)]
pub struct Workdir {
    folder: PathBuf,
    programs: Programs,
    interrupt: Interrupt,
    hierarchy: OnceLock<Hierarchy>,
    signer: OnceLock<Arc<Signer>>,
    /// Places every topology can use by name.
    values: Values,
}

/// What a scenario changes about a topology.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Variables of the topology.
    pub variables: BTreeMap<String, String>,
    /// Limits by component, in place of the topology's.
    pub limits: BTreeMap<String, Limits>,
    /// Files that a component may open, in place of the topology's.
    pub open_files: BTreeMap<String, u64>,
    /// Cores that a component may run on, in place of the topology's.
    pub cores: BTreeMap<String, Vec<u32>>,
}

impl Workdir {
    /// A place in `folder`, which is made when missing: a secret for clients, a certificate for servers.
    pub fn new(folder: &Path, programs: Programs, interrupt: Interrupt) -> Result<Self, TopologyError> {
        make_folder(folder)?;
        let folder = fs::canonicalize(folder).map_err(failed("read", folder))?;
        let mut values = Values::new();
        let mut file = |name: &str, path: &str, content: &str| {
            let path = folder.join(path);
            private(&path, content)?;
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
        file("secret_file", "client.secret", &format!("{}\n", secret()))?;
        values.insert("cores".to_owned(), cores().to_string());
        Ok(Self { folder, programs, interrupt, hierarchy: OnceLock::new(), signer: OnceLock::new(), values })
    }

    /// Where files of the run go.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Programs as they are found here.
    pub(crate) fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Who signs tokens in this run, with its public key in two files that topologies find by name: made when first asked for.
    pub(super) fn signer(&self, values: &mut Values) -> Result<Arc<Signer>, TopologyError> {
        let path = |name: &str| self.folder.join(name);
        let (key, keys) = (path("token-key.pem"), path("token-keys.json"));
        let signer = match self.signer.get() {
            Some(signer) => Arc::clone(signer),
            None => {
                let no_key = || failed("make", &key)(io::Error::other("no RSA key can be made"));
                let signer = Signer::new().ok_or_else(no_key)?;
                private(&key, &signer.public_pem().ok_or_else(no_key)?)?;
                private(&keys, &signer.jwks())?;
                Arc::clone(self.signer.get_or_init(|| Arc::new(signer)))
            }
        };
        values.insert("token_key".to_owned(), key.display().to_string());
        values.insert("token_keys".to_owned(), keys.display().to_string());
        Ok(signer)
    }

    /// What ends the run early.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Control groups of this machine.
    pub(crate) fn hierarchy(&self) -> &Hierarchy {
        self.hierarchy.get_or_init(Hierarchy::find)
    }
}

/// Cores that this process can use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

pub(super) fn failed<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> TopologyError + 'a {
    move |error| TopologyError::File { action, path: path.display().to_string(), error }
}

/// A folder that programs which drop root's rights can enter.
pub(super) fn make_folder(path: &Path) -> Result<(), TopologyError> {
    fs::create_dir_all(path).map_err(failed("make", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(failed("make", path))
}

/// A file that only its owner reads.
pub(super) fn private(path: &Path, content: &str) -> Result<(), TopologyError> {
    let open = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    open.and_then(|mut file| io::Write::write_all(&mut file, content.as_bytes()))
        .map_err(failed("write", path))
}

/// A new secret: 32 random bytes in base64, of those only ones that need neither `+` nor `/`, so that it fits into a URL, a command line
/// and a file of any form as it is.
fn secret() -> String {
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

/// What stands for the names of a topology in this run.
pub(super) fn values(
    topology: &Topology,
    change: &Change,
    place: &Workdir,
    folder: &Path,
    ports: &mut Ports,
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
                    let number = ports.take().map_err(failed("make", Path::new("a free port")))?;
                    values.insert(format!("{}.{port}", component.name), number.to_string());
                }
            }
        }
    }
    for name in &topology.secrets {
        let (text, path) = (secret(), folder.join(format!("{name}.secret")));
        private(&path, &format!("{text}\n"))?;
        let [own, file] = secret_names(name);
        values.insert(own, text);
        values.insert(file, path.display().to_string());
    }
    // Parts were chosen when the topology was read: another choice now would not be the topology that runs.
    let other = topology
        .chosen
        .iter()
        .find(|(name, chosen)| change.variables.get(*name).is_some_and(|value| value != *chosen));
    if let Some((name, chosen)) = other {
        let what = format!("`{name}` chooses parts and was `{chosen}` when the topology was read");
        return Err(TopologyError::value(&topology.name, "variables", what));
    }
    let mut filled = Values::new();
    for (name, value) in &topology.variables {
        let value = change.variables.get(name).unwrap_or(value);
        let value = template::fill(value, &values).map_err(|unknown| {
            TopologyError::value(&topology.name, format!("variables.{name}"), unknown.words(&values))
        })?;
        filled.insert(name.clone(), value);
    }
    if let Some(unknown) = change.variables.keys().find(|name| !topology.variables.contains_key(*name)) {
        let known = topology.variables.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let what = format!("there is no variable `{unknown}`; there is {known}");
        return Err(TopologyError::value(&topology.name, "variables", what));
    }
    values.extend(filled);
    Ok(values)
}

//! The files a configuration names.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gateway::tls::{TlsError, TlsWarning};
use rustls::RootCertStore;

/// What the loader may look at. It does nothing else to the world.
pub trait Files {
    /// The whole content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The authorities that the system trusts.
    fn system_roots(&self) -> Result<(Arc<RootCertStore>, Vec<TlsWarning>), TlsError>;
}

/// The file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn system_roots(&self) -> Result<(Arc<RootCertStore>, Vec<TlsWarning>), TlsError> {
        gateway::tls::system_roots()
    }
}

/// No files at all, and a system that trusts nobody: a configuration that names a file is refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn system_roots(&self) -> Result<(Arc<RootCertStore>, Vec<TlsWarning>), TlsError> {
        Ok((Arc::new(RootCertStore::empty()), Vec::new()))
    }
}

/// Remembers what was asked for, so that it can be watched: missing files as well, for they may appear.
pub(super) struct Reader<'f> {
    files: &'f dyn Files,
    base: PathBuf,
    seen: BTreeSet<PathBuf>,
}

impl<'f> Reader<'f> {
    /// Relative paths count from `base`, the folder of the configuration file.
    pub(super) fn new(files: &'f dyn Files, base: &Path) -> Self {
        Self { files, base: base.into(), seen: BTreeSet::new() }
    }

    pub(super) fn resolve(&self, path: &Path) -> PathBuf {
        self.base.join(path)
    }

    /// The content, or why there is none, in words.
    pub(super) fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        let path = self.resolve(path);
        let content = self.files.read(&path);
        let content = content.map_err(|error| format!("cannot read {}: {}", path.display(), reason(&error)));
        self.seen.insert(path);
        content
    }

    pub(super) fn into_seen(self) -> BTreeSet<PathBuf> {
        self.seen
    }
}

/// What went wrong with a file, without the system's error number.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::IsADirectory => "it is a folder".into(),
        _ => error.to_string(),
    }
}

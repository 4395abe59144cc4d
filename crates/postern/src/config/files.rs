//! The files a configuration names.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gateway::tls::{TlsError, TlsWarning};
use rustls::RootCertStore;

/// What the loader may look at. It does nothing else to the world.
pub trait Files {
    /// The whole content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The state a file is in, by which a later one is told from it.
    fn stamp(&self, path: &Path) -> Stamp;

    /// Who may do what with a file: its permission bits.
    fn mode(&self, path: &Path) -> io::Result<u32>;

    /// The authorities that the system trusts.
    fn system_roots(&self) -> Result<(Arc<RootCertStore>, Vec<TlsWarning>), TlsError>;
}

/// What tells one state of a file from another: device, inode, size and time of change. A file that is not
/// there has a state too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(Option<(u64, u64, u64, i64, i64)>);

impl Stamp {
    /// The state a file on disk is in now, symbolic links followed.
    pub fn of(path: &Path) -> Self {
        let state = |m: std::fs::Metadata| (m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec());
        Self(std::fs::metadata(path).ok().map(state))
    }
}

/// The file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn stamp(&self, path: &Path) -> Stamp {
        Stamp::of(path)
    }

    fn mode(&self, path: &Path) -> io::Result<u32> {
        std::fs::metadata(path).map(|metadata| metadata.mode())
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

    fn stamp(&self, _: &Path) -> Stamp {
        Stamp(None)
    }

    fn mode(&self, _: &Path) -> io::Result<u32> {
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
    seen: BTreeMap<PathBuf, Stamp>,
}

impl<'f> Reader<'f> {
    /// Relative paths count from `base`, the folder of the configuration file.
    pub(super) fn new(files: &'f dyn Files, base: &Path) -> Self {
        Self { files, base: base.into(), seen: BTreeMap::new() }
    }

    pub(super) fn resolve(&self, path: &Path) -> PathBuf {
        self.base.join(path)
    }

    /// The content, or why there is none, in words.
    pub(super) fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        let path = self.resolve(path);
        // before the content: a change in between must show
        let stamp = self.files.stamp(&path);
        let content = self.files.read(&path);
        let content = content.map_err(|error| format!("cannot read {}: {}", path.display(), reason(&error)));
        self.seen.insert(path, stamp);
        content
    }

    /// The permission bits; `None` when there is no such file, or none that can be seen.
    pub(super) fn mode(&self, path: &Path) -> Option<u32> {
        self.files.mode(&self.resolve(path)).ok()
    }

    pub(super) fn into_seen(self) -> BTreeMap<PathBuf, Stamp> {
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

//! The files a configuration names.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http_engine::tls::{TlsError, TlsWarning};
use rustls::RootCertStore;

use super::version::version;

/// What the loader may look at. It does nothing else to the world.
pub trait Files {
    /// The whole content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The state a file is in, by which a later one is told from it.
    fn stamp(&self, path: &Path) -> Stamp;

    /// Who may do what with a file.
    fn access(&self, path: &Path) -> io::Result<Access>;

    /// The authorities that the system trusts.
    fn system_roots(&self) -> Result<(Arc<RootCertStore>, Vec<TlsWarning>), TlsError>;
}

/// Who may do what with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Permission bits.
    pub mode: u32,
    /// The user whose file it is.
    pub owner: u32,
}

impl Access {
    /// Whether nobody can read it but its owner; or a group that the system's administrator chose, by whom alone the file can
    /// be changed: so Kubernetes mounts secrets for those who do not run as root.
    pub fn is_private(self) -> bool {
        let others = if self.owner == 0 { 0o037 } else { 0o077 };
        self.mode & others == 0
    }
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

    fn access(&self, path: &Path) -> io::Result<Access> {
        std::fs::metadata(path).map(|metadata| Access { mode: metadata.mode(), owner: metadata.uid() })
    }

    fn system_roots(&self) -> Result<(Arc<RootCertStore>, Vec<TlsWarning>), TlsError> {
        http_engine::tls::system_roots()
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

    fn access(&self, _: &Path) -> io::Result<Access> {
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
    digests: Digests,
}

/// What tells one content of a file from another, by the path as it is written. A short secret can be found by its digest: it is shown to
/// nobody.
pub(super) type Digests = BTreeMap<PathBuf, u64>;

impl<'f> Reader<'f> {
    /// Relative paths count from `base`, the folder of the configuration file.
    pub(super) fn new(files: &'f dyn Files, base: &Path) -> Self {
        Self { files, base: base.into(), seen: BTreeMap::new(), digests: Digests::new() }
    }

    pub(super) fn resolve(&self, path: &Path) -> PathBuf {
        self.base.join(path)
    }

    /// The content, or why there is none, in words.
    pub(super) fn read(&mut self, written: &Path) -> Result<Vec<u8>, String> {
        let path = self.resolve(written);
        // before the content: a change in between must show
        let stamp = self.files.stamp(&path);
        let content = self.files.read(&path);
        let content = content.map_err(|error| format!("cannot read {}: {}", path.display(), reason(&error)));
        self.seen.insert(path, stamp);
        if let Ok(content) = &content {
            self.digests.insert(written.to_owned(), version([content.as_slice()]));
        }
        content
    }

    /// Who may do what with a file; `None` when there is none, or none that can be seen.
    pub(super) fn access(&self, path: &Path) -> Option<Access> {
        self.files.access(&self.resolve(path)).ok()
    }

    /// The files that were asked for as they were then, and the content of those that were there.
    pub(super) fn into_seen(self) -> (BTreeMap<PathBuf, Stamp>, Digests) {
        (self.seen, self.digests)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_is_what_the_owner_or_a_group_of_roots_choice_alone_reads() {
        for (owner, mode, private) in [
            (1000, 0o600, true),
            (1000, 0o400, true),
            (1000, 0o640, false),
            (1000, 0o604, false),
            (0, 0o600, true),
            (0, 0o100_440, true),
            (0, 0o660, false),
            (0, 0o444, false),
        ] {
            assert_eq!(Access { mode, owner }.is_private(), private, "{owner} {mode:o}");
        }
    }
}

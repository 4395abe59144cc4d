//! Access to the files that a configuration names.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use http_engine::tls::{TlsError, TlsWarning, TrustAnchors};
use rustls::RootCertStore;

use super::version::version;

/// Read access to what the loader needs from outside the process: files, and variables of the
/// environment. Nothing else is read, and nothing is changed.
pub trait Files {
    /// Reads the whole content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// State of a file. It differs from a later state when the file has changed.
    fn stamp(&self, path: &Path) -> Stamp;

    /// Owner and permission bits of a file.
    fn access(&self, path: &Path) -> io::Result<Access>;

    /// A variable of the environment. `None`: it is not set. Only `[outbound]` reads any.
    fn variable(&self, name: &str) -> Option<String>;

    /// The certificate authorities that the system trusts.
    fn system_roots(&self) -> Result<(TrustAnchors, Vec<TlsWarning>), TlsError>;
}

/// Owner and permission bits of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Mode of the file: permission bits and possibly its type.
    pub mode: u32,
    /// User ID of the owner.
    pub owner: u32,
}

impl Access {
    /// Whether only the owner can read the file. When root owns it, its group may read it too:
    /// Kubernetes mounts secrets like this for processes that do not run as root.
    pub fn is_private(self) -> bool {
        let others = if self.owner == 0 { 0o037 } else { 0o077 };
        self.mode & others == 0
    }
}

/// State of a file: device, inode, size and time of change. A missing file has a state too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(Option<(u64, u64, u64, i64, i64)>);

impl Stamp {
    /// Current state of a file on disk. Symbolic links are followed.
    pub fn of_path(path: &Path) -> Self {
        let state = |m: std::fs::Metadata| (m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec());
        Self(std::fs::metadata(path).ok().map(state))
    }
}

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileSystem;

impl Files for FileSystem {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn stamp(&self, path: &Path) -> Stamp {
        Stamp::of_path(path)
    }

    fn access(&self, path: &Path) -> io::Result<Access> {
        std::fs::metadata(path).map(|metadata| Access { mode: metadata.mode(), owner: metadata.uid() })
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment: proxies")]
    fn variable(&self, name: &str) -> Option<String> {
        match std::env::var(name) {
            Ok(value) => Some(value),
            Err(std::env::VarError::NotPresent) => None,
            Err(std::env::VarError::NotUnicode(value)) => Some(value.to_string_lossy().into_owned()),
        }
    }

    fn system_roots(&self) -> Result<(TrustAnchors, Vec<TlsWarning>), TlsError> {
        http_engine::tls::system_roots()
    }
}

/// No files, no environment and no trusted authorities: a configuration that names a file is refused.
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

    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn system_roots(&self) -> Result<(TrustAnchors, Vec<TlsWarning>), TlsError> {
        Ok((RootCertStore::empty().into(), Vec::new()))
    }
}

/// Reads files and remembers which, so that they can be watched. A missing file is remembered too,
/// because it may appear.
pub(super) struct Reader<'f> {
    files: &'f dyn Files,
    base: PathBuf,
    stamps: BTreeMap<PathBuf, Stamp>,
    digests: Digests,
}

/// Digest of the content of each file, by its path as written in the configuration. The digest of a
/// short secret reveals the secret, so digests must not be shown.
pub(super) type Digests = BTreeMap<PathBuf, u64>;

impl<'f> Reader<'f> {
    /// Creates a reader. Relative paths are resolved against `base`, the folder of the
    /// configuration file.
    pub(super) fn new(files: &'f dyn Files, base: &Path) -> Self {
        Self { files, base: base.into(), stamps: BTreeMap::new(), digests: Digests::new() }
    }

    pub(super) fn resolve(&self, path: &Path) -> PathBuf {
        self.base.join(path)
    }

    /// Reads the content of a file.
    ///
    /// # Errors
    ///
    /// Returns a message that says why the file cannot be read.
    pub(super) fn read(&mut self, written: &Path) -> Result<Vec<u8>, String> {
        let path = self.resolve(written);
        // Take the stamp before the content, so that a change in between is noticed.
        let stamp = self.files.stamp(&path);
        let content = self.files.read(&path);
        let content =
            content.map_err(|error| format!("cannot read {}: {}", path.display(), describe_io_error(&error)));
        self.stamps.insert(path, stamp);
        if let Ok(content) = &content {
            self.digests.insert(written.to_owned(), version([content.as_slice()]));
        }
        content
    }

    /// Reads the content of a file that may be missing. `None`: it is.
    ///
    /// # Errors
    ///
    /// Returns a message that says why the file cannot be read.
    pub(super) fn read_if_present(&mut self, written: &Path) -> Result<Option<Vec<u8>>, String> {
        let path = self.resolve(written);
        let stamp = self.files.stamp(&path);
        if matches!(self.files.read(&path), Err(error) if error.kind() == io::ErrorKind::NotFound) {
            self.stamps.insert(path, stamp);
            return Ok(None);
        }
        self.read(written).map(Some)
    }

    /// Owner and permission bits of a file. `None`: it does not exist or is not accessible.
    pub(super) fn access(&self, path: &Path) -> Option<Access> {
        self.files.access(&self.resolve(path)).ok()
    }

    /// The files that were requested with their states at that time, and digests of those that were
    /// read.
    pub(super) fn into_parts(self) -> (BTreeMap<PathBuf, Stamp>, Digests) {
        (self.stamps, self.digests)
    }
}

/// Describes an I/O error without the error number of the system.
pub(super) fn describe_io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "the file does not exist".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::IsADirectory => "it is a directory".into(),
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

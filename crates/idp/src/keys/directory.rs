//! Keys on disk: one directory, one manifest, one PKCS#8 PEM file per key that can sign.
//!
//! Owns: the layout, its permissions, and that a change is all or nothing.
//! Does not own: what the states mean ([`super::ring`]).
//!
//! ```text
//! ring.json        the manifest: every key, its state and since when; retired keys with their public half
//! key-<kid>.pem    private halves of active and next keys
//! lock             held while a process uses the directory
//! ```
//!
//! Order of a change: new key files, then the manifest (written aside, synced, renamed), then removal of key
//! files that the manifest does not name. The rename is the moment at which the change has happened.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use auth::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    KeyError,
    key::{self, Key},
    ring::{Active, KeyRing, Next, Retired, Slot},
};

const MANIFEST: &str = "ring.json";
const VERSION: u32 = 1;
/// Largest manifest or key file that is read.
const MAX_FILE: u64 = 1024 * 1024;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    version: u32,
    keys: Vec<Entry>,
}

/// One key. Instants are milliseconds since the Unix epoch.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "state", rename_all = "lowercase")]
enum Entry {
    Active { alg: String, kid: String, since: u64 },
    Next { alg: String, kid: String, since: u64 },
    Retired { kid: String, since: u64, until: u64, jwk: Value },
}

/// A directory of keys, locked for this process.
#[derive(Debug)]
pub struct KeyDirectory {
    path: PathBuf,
    /// The lock is released when this is closed.
    _lock: File,
}

impl KeyDirectory {
    /// Opens a directory, making it (mode 0700) when it is not there. Refuses one that group or others can
    /// enter, and one that another process has open.
    pub fn open(path: &Path) -> Result<Self, KeyError> {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => sync_directory(parent)?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(io_error(path, source)),
        }
        let metadata = fs::metadata(path).map_err(|e| io_error(path, e))?;
        if !metadata.is_dir() {
            return Err(io_error(path, io::ErrorKind::NotADirectory.into()));
        }
        refuse_open_mode(path, metadata.mode(), true)?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(|e| io_error(&lock_path, e))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(KeyError::InUse(path.to_owned())),
            Err(TryLockError::Error(e)) => Err(io_error(&lock_path, e)),
        }
    }

    /// The ring that the manifest describes; `None` when there is no manifest.
    pub fn load(&self) -> Result<Option<KeyRing>, KeyError> {
        let path = self.path.join(MANIFEST);
        let text = match read_private(&path) {
            Ok(text) => text,
            Err(KeyError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| manifest_fault(&path, &e))?;
        if manifest.version != VERSION {
            return Err(manifest_fault(
                &path,
                &format_args!("version {} is not {VERSION}", manifest.version),
            ));
        }
        self.assemble(manifest.keys, &path).map(Some)
    }

    fn assemble(&self, entries: Vec<Entry>, path: &Path) -> Result<KeyRing, KeyError> {
        let (mut active, mut next, mut retired) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries {
            match entry {
                Entry::Active { alg, kid, since } => {
                    active.push(Active {
                        key: self.read_key(&alg, &kid, path)?,
                        since: Timestamp::from_millis(since),
                    });
                }
                Entry::Next { alg, kid, since } => {
                    next.push(Next {
                        key: self.read_key(&alg, &kid, path)?,
                        since: Timestamp::from_millis(since),
                    });
                }
                Entry::Retired { kid, since, until, jwk } => {
                    if jwk.get("kid").and_then(Value::as_str) != Some(kid.as_str()) || jwk.get("d").is_some()
                    {
                        return Err(manifest_fault(
                            path,
                            &format_args!("retired key {kid:?} is not a public key of that name"),
                        ));
                    }
                    let (since, until) = (Timestamp::from_millis(since), Timestamp::from_millis(until));
                    retired.push(Retired { kid: kid.into(), jwk, since, until });
                }
            }
        }
        let mut slots: Vec<Slot> = Vec::with_capacity(active.len());
        for active in active {
            let algorithm = active.key.algorithm();
            let one = |what| {
                manifest_fault(path, &format_args!("{} needs exactly one {what} key", key::name(algorithm)))
            };
            if slots.iter().any(|s| s.active.key.algorithm() == algorithm) {
                return Err(one("active"));
            }
            let at = next.iter().position(|n| n.key.algorithm() == algorithm).ok_or_else(|| one("next"))?;
            slots.push(Slot { active, next: next.remove(at) });
        }
        if let Some(odd) = next.first() {
            return Err(manifest_fault(path, &format_args!("{:?} is one next key too many", odd.key.kid())));
        }
        Ok(KeyRing { slots, retired })
    }

    fn read_key(&self, alg: &str, kid: &str, manifest: &Path) -> Result<Arc<Key>, KeyError> {
        let unknown =
            || manifest_fault(manifest, &format_args!("key {kid:?} has the unknown algorithm {alg:?}"));
        let algorithm = key::by_name(alg).ok_or_else(unknown)?;
        if !key::is_kid(kid) {
            return Err(manifest_fault(manifest, &format_args!("{kid:?} is not a key identifier")));
        }
        let path = self.key_path(kid);
        let text = read_private(&path)?;
        let key = Key::from_pem(algorithm, &text)
            .and_then(|k| if k.kid() == kid { Ok(k) } else { Err(key::KeyFault::OtherKey) });
        key.map(Arc::new).map_err(|source| KeyError::KeyFile { path, source })
    }

    /// Makes `ring` the ring of this directory. When this fails, the old one still is, unless the very last
    /// sync failed.
    pub fn save(&self, ring: &KeyRing) -> Result<(), KeyError> {
        let mut entries = Vec::new();
        for slot in &ring.slots {
            for key in [&slot.active.key, &slot.next.key] {
                let path = self.key_path(key.kid());
                if !path.exists() {
                    let pem =
                        key.to_pem().map_err(|source| KeyError::KeyFile { path: path.clone(), source })?;
                    write_private(&path, pem.as_ref())?;
                }
            }
            let Slot { active, next } = slot;
            let (alg, kid) = (key::name(active.key.algorithm()).to_owned(), active.key.kid().to_owned());
            entries.push(Entry::Active { alg: alg.clone(), kid, since: active.since.as_millis() });
            entries.push(Entry::Next { alg, kid: next.key.kid().to_owned(), since: next.since.as_millis() });
        }
        entries.extend(ring.retired.iter().map(|r| Entry::Retired {
            kid: r.kid.to_string(),
            since: r.since.as_millis(),
            until: r.until.as_millis(),
            jwk: r.jwk.clone(),
        }));
        let path = self.path.join(MANIFEST);
        let manifest = Manifest { version: VERSION, keys: entries };
        let mut text = serde_json::to_vec_pretty(&manifest).map_err(|e| manifest_fault(&path, &e))?;
        text.push(b'\n');
        write_private(&path, &text)
    }

    /// Removes the private halves of keys that `ring` does not sign with, now or next, and what a crash left
    /// half written. Other files stay.
    pub fn sweep(&self, ring: &KeyRing) -> Result<(), KeyError> {
        let signing =
            |kid: &str| ring.slots.iter().any(|s| s.active.key.kid() == kid || s.next.key.kid() == kid);
        for entry in fs::read_dir(&self.path).map_err(|e| io_error(&self.path, e))? {
            let path = entry.map_err(|e| io_error(&self.path, e))?.path();
            let Some(name) = path.file_name().and_then(|n| n.to_str()) else { continue };
            let kid = name.strip_prefix("key-").and_then(|n| n.strip_suffix(".pem"));
            let stale = kid.is_some_and(|kid| key::is_kid(kid) && !signing(kid));
            if stale || name.ends_with(TEMPORARY) {
                fs::remove_file(&path).map_err(|e| io_error(&path, e))?;
            }
        }
        sync_directory(&self.path)
    }

    fn key_path(&self, kid: &str) -> PathBuf {
        self.path.join(format!("key-{kid}.pem"))
    }
}

/// Ends the names of files being written.
const TEMPORARY: &str = ".postern-tmp";

/// Writes a file of mode 0600 whole or not at all: aside, synced, renamed, directory synced.
fn write_private(path: &Path, content: &[u8]) -> Result<(), KeyError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(TEMPORARY);
    let aside = PathBuf::from(aside);
    let write = || -> io::Result<()> {
        match fs::remove_file(&aside) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    write().map_err(|e| io_error(path, e))?;
    sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// Reads a file that only its owner may read.
fn read_private(path: &Path) -> Result<Vec<u8>, KeyError> {
    let file = File::open(path).map_err(|e| io_error(path, e))?;
    // of the open file, so that it is the one that is read
    let mode = file.metadata().map_err(|e| io_error(path, e))?.mode();
    refuse_open_mode(path, mode, false)?;
    let mut content = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut content).map_err(|e| io_error(path, e))?;
    Ok(content)
}

fn refuse_open_mode(path: &Path, mode: u32, directory: bool) -> Result<(), KeyError> {
    let others = mode & 0o077;
    if others == 0 {
        return Ok(());
    }
    Err(KeyError::Permissions { path: path.to_owned(), mode: mode & 0o7777, directory })
}

/// Makes renames and new names in a directory durable.
fn sync_directory(path: &Path) -> Result<(), KeyError> {
    File::open(path).and_then(|d| d.sync_all()).map_err(|e| io_error(path, e))
}

fn io_error(path: &Path, source: io::Error) -> KeyError {
    KeyError::Io { path: path.to_owned(), source }
}

fn manifest_fault(path: &Path, what: &dyn std::fmt::Display) -> KeyError {
    KeyError::Manifest { path: path.to_owned(), what: what.to_string() }
}

//! New files of a configuration, with the secrets that it names.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::exit::Failure;

/// A file to write.
pub(super) struct NewFile {
    /// Name in the folder.
    pub(super) name: &'static str,
    pub(super) content: Zeroizing<String>,
    /// Permissions, as for `chmod`.
    pub(super) mode: u32,
}

impl NewFile {
    /// A file that everybody may read.
    pub(super) fn public(name: &'static str, content: String) -> Self {
        Self { name, content: Zeroizing::new(content), mode: 0o644 }
    }

    /// A file for its owner alone.
    pub(super) fn secret(name: &'static str, content: Zeroizing<String>) -> Self {
        Self { name, content, mode: 0o600 }
    }
}

/// A key of 256 bits, as a line of base64.
///
/// # Errors
/// When the system has no random numbers.
pub(super) fn random_key() -> Result<Zeroizing<String>, Failure> {
    let mut bytes = Zeroizing::new([0; 32]);
    SystemRandom::new()
        .fill(&mut *bytes)
        .map_err(|_| Failure::new("the system has no random numbers available"))?;
    Ok(Zeroizing::new(STANDARD.encode(*bytes) + "\n"))
}

/// Writes all files, or none of them. Creates the folder if necessary.
///
/// # Errors
/// When a file exists, with the name of the command's `option` for the folder, and when one cannot
/// be written.
pub(super) fn write(folder: &Path, files: &[NewFile], option: &str) -> Result<(), Failure> {
    for file in files {
        let path = folder.join(file.name);
        if fs::symlink_metadata(&path).is_ok() {
            return Err(Failure::new(format!(
                "{} exists, and nothing is written: choose another folder with {option}",
                path.display()
            )));
        }
    }
    let failed = |path: &Path, error: std::io::Error| {
        Failure::new(format!("cannot write {}: {error}", path.display()))
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for file in files {
        let path = folder.join(file.name);
        let open = OpenOptions::new().write(true).create_new(true).mode(file.mode).open(&path);
        let written = open.and_then(|mut open| open.write_all(file.content.as_bytes()));
        written.map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

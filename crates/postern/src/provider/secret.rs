//! Provider secret: reads its file, and creates the file if there is none.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::SystemRandom;
use config::{DatabaseSettings, SecretFile};
use idp::Secrets;
use zeroize::Zeroizing;

use crate::exit::Failure;

/// Returns the secret that the configuration read, or creates one in a file that only this user can
/// read.
pub(super) fn read_or_make(
    secret: &SecretFile,
    database: &DatabaseSettings,
) -> Result<Zeroizing<String>, Failure> {
    if let Some(text) = &secret.text {
        return Ok(text.clone());
    }
    let path = &secret.path;
    let begun = database.file.as_deref().and_then(|file| std::fs::metadata(file).ok());
    if !path.exists() && begun.is_some_and(|database| database.len() > 0) {
        return Err(Failure::new(format!(
            "the provider's database exists, but its secret {} does not; restore the secret, because the database is useless \
             without it",
            path.display()
        )));
    }
    let made = create(path).and_then(|()| std::fs::read_to_string(path)).map(Zeroizing::new);
    made.map_err(|error| {
        let hint = "is the folder there, and may this user write to it?";
        Failure::new(format!("the provider's secret {} cannot be created: {error}; {hint}", path.display()))
    })
}

/// Creates the complete file or nothing. Another process may do this at the same time.
fn create(path: &Path) -> io::Result<()> {
    let text = Secrets::generate(&SystemRandom::new()).map_err(io::Error::other)?;
    let mut new = path.to_owned().into_os_string();
    new.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = writeln!(file, "{}", &*text).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| match std::fs::hard_link(&new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    std::fs::remove_file(&new)?;
    linked?;
    // Make the name as durable as the content.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(folder)?.sync_all()
}

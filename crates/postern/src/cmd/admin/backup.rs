//! `postern admin backup` and `restore`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::SystemRandom;
use http_engine::clock::{Clock as _, SystemClock};
use idp::Entropy as _;
use idp::secrets::Purpose;
use store::Epoch;
use store::audit::AuditEntry;
use store::backup::{BackupContents, BackupError, Imported};

use super::Done;
use crate::cmd::admin::context;
use crate::exit::{Failure, Outcome};
use crate::provider::{self, OpenedProvider};
use crate::terminal::{ERROR, HINT, SUCCESS};

/// Arguments of `postern admin backup`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The backup is a consistent snapshot, even while others write. It contains password hashes, personal data, and signing
keys that are sealed with the provider's secret. It does not contain the secret: keep a copy of the secret in another
place, because a database without its secret is useless.")]
pub(super) struct Backup {
    /// A new file, or - for standard output.
    file: String,
}

/// Arguments of `postern admin restore`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The database of the configuration must be empty, and the provider's secret must be that of the backup. The kind of
database may differ. Consumers load all revocations again.

Exit codes: 0 everything is restored, 1 backup, database or secret do not match and nothing was restored,
3 failure, or the result is unknown.")]
pub(super) struct Restore {
    /// A file of `backup`, or - for standard input.
    file: String,
}

/// A new file that appears only when it is complete and that only this user can read; or standard
/// output.
pub(super) enum OutputTarget {
    File { file: File, path: PathBuf, new: PathBuf },
    Output(io::Stdout),
}

impl OutputTarget {
    pub(super) fn open(file: &str) -> Result<Self, Failure> {
        if file == "-" {
            return Ok(Self::Output(io::stdout()));
        }
        let path = PathBuf::from(file);
        if path.symlink_metadata().is_ok() {
            return Err(Failure::new(format!("{file} already exists; name a new file")));
        }
        let mut new = path.clone().into_os_string();
        new.push(format!(".{}", std::process::id()));
        let new = PathBuf::from(new);
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        let file = opened.map_err(|error| {
            Failure::new(format!("cannot write to {}: {error}; is the folder there?", new.display()))
        })?;
        Ok(Self::File { file, path, new })
    }

    /// Gives the file its final name when all of its content is on disk.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let kept = match &mut self {
            Self::Output(out) => out.flush(),
            Self::File { file, path, new } => {
                file.sync_all().and_then(|()| link_new_file(new, path)).and_then(|()| {
                    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
                })
            }
        };
        kept.map_err(|error| Failure::new(format!("the file cannot be saved: {error}")))
    }
}

/// Names the file with a hard link. Unlike a rename, a link does not replace a file that was
/// created meanwhile. Not every file system supports links.
fn link_new_file(new: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(new, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::rename(new, path),
        linked => linked,
    }
}

impl Write for OutputTarget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File { file, .. } => file.write(bytes),
            Self::Output(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File { file, .. } => file.flush(),
            Self::Output(out) => out.flush(),
        }
    }
}

impl Drop for OutputTarget {
    fn drop(&mut self) {
        if let Self::File { new, .. } = self {
            // The file has its final name by now, or is incomplete.
            let _ = fs::remove_file(new);
        }
    }
}

pub(super) async fn backup(config: &config::ProviderSettings, backup: &Backup) -> Done {
    if let Some(file) = &config.database.file
        && !file.exists()
    {
        return Err(
            Failure::new(format!("there is no database {}: nothing to back up", file.display())).into()
        );
    }
    let mut target = OutputTarget::open(&backup.file)?;
    let OpenedProvider { store, .. } = provider::open(config).await?;
    context::note_migrated(store.migrated());
    let exported = store.export(&mut target).await;
    store.close().await;
    let exported = exported.map_err(|error| Failure::new(format!("no backup was written: {error}")))?;
    target.finish()?;
    let secret = config.secret.path.display();
    anstream::eprintln!(
        "{SUCCESS}done{SUCCESS:#}: {} rows written to {}",
        exported.rows,
        named(&backup.file, "output")
    );
    anstream::eprintln!(
        "{HINT}note{HINT:#}: keep a copy of {secret} in another place; the backup is useless without it"
    );
    Ok(Outcome::Success)
}

pub(super) async fn restore(config: &config::ProviderSettings, restore: &Restore, operator: &str) -> Done {
    if config.secret.text.is_none() {
        let secret = config.secret.path.display();
        let text =
            format!("put the secret of the backup to {secret} first; the backup is useless with another one");
        return Err(Failure::new(text).into());
    }
    let mut from: BufReader<Box<dyn io::Read + Send>> = BufReader::new(match &*restore.file {
        "-" => Box::new(io::stdin()),
        file => {
            Box::new(File::open(file).map_err(|error| Failure::new(format!("cannot read {file}: {error}")))?)
        }
    });
    let mut epoch = [0; 16];
    SystemRandom::new().fill(&mut epoch).map_err(|error| Failure::new(error.to_string()))?;
    let OpenedProvider { store, secrets, .. } = provider::open(config).await?;
    let accept = |copied: &BackupContents| {
        if copied.key_ring.as_ref().is_some_and(|ring| secrets.open(Purpose::KeyRing, "", ring).is_none()) {
            let secret = config.secret.path.display();
            return Err(format!(
                "the secret in {secret} is not that of the backup; put the right one there first"
            ));
        }
        Ok(vec![AuditEntry {
            actor: context::actor(operator),
            action: "database.restore".into(),
            target: "database".into(),
            detail: format!("{{\"rows\":{}}}", copied.rows),
            at: SystemClock.now().wall,
            user_id: None,
            client_id: None,
        }])
    };
    let imported = store.import(&mut from, Epoch(epoch), accept).await;
    store.close().await;
    match imported {
        Ok(Imported { rows, head, migrated }) => {
            let epoch = config::hex(&head.epoch.0);
            anstream::eprintln!(
                "{SUCCESS}done{SUCCESS:#}: {rows} rows restored; the history of revocations continues as {epoch} after {}",
                head.seq
            );
            context::note_migrated(&migrated);
            Ok(Outcome::Success)
        }
        Err(error) => report_restore_error(&error, named(&restore.file, "input")),
    }
}

/// Reports a failed restore: an invalid copy, an error of the environment, or an unknown result.
fn report_restore_error(error: &BackupError, file: &str) -> Done {
    match error {
        BackupError::CommitUnknown(_) => {
            let hint = "the result is unknown; run `postern admin user list`: if it shows any user, everything was restored";
            Err(Failure::new(format!("{error}; {hint}")).into())
        }
        BackupError::Database(_) | BackupError::File(_) => {
            Err(Failure::new(format!("nothing was restored: {error}")).into())
        }
        _ => {
            anstream::eprintln!("{ERROR}refused{ERROR:#}: nothing was restored from {file}: {error}");
            Ok(Outcome::Negative)
        }
    }
}

fn named<'f>(file: &'f str, stream: &'f str) -> &'f str {
    match (file, stream) {
        ("-", "output") => "standard output",
        ("-", _) => "standard input",
        (file, _) => file,
    }
}

#[cfg(test)]
mod tests {
    use store::StoreError;

    use super::super::Fault;
    use super::*;

    /// Exit code and message for an error.
    fn exit_of(error: &BackupError) -> (u8, String) {
        match report_restore_error(error, "copy") {
            Ok(outcome) => (u8::from(outcome == Outcome::Negative), String::new()),
            Err(Fault::Failure(failure)) => (3, failure.to_string()),
            Err(fault) => panic!("{fault:?}"),
        }
    }

    #[test]
    fn a_copy_is_refused_when_it_is_at_fault_and_nothing_is_said_that_is_not_known() {
        let (code, text) = exit_of(&BackupError::CommitUnknown(StoreError::Busy));
        assert!(code == 3 && text.contains("the result is unknown") && !text.contains("nothing"), "{text}");
        let (code, text) = exit_of(&BackupError::Database(StoreError::Busy));
        assert!(code == 3 && text.starts_with("nothing was restored: "), "{text}");
        let refused = BackupError::Refused { first: 1, last: 2, error: StoreError::MissingReference };
        for refused in [refused, BackupError::NotEmpty("users"), BackupError::Rejected("no".into())] {
            assert_eq!(exit_of(&refused), (1, String::new()), "{refused}");
        }
    }
}

//! Provider secret: checks the file with the secret that protects the provider's database.

use std::fmt;
use std::path::PathBuf;

use idp::Secrets;
use idp::secrets::SecretMalformed;
use zeroize::Zeroizing;

use super::super::super::fault::KeyPath;
use super::super::super::raw;
use super::super::{Context, DatabaseSettings};

/// The file with the provider's secret. `Debug` shows the path only.
#[derive(Clone)]
pub struct SecretFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Content of the file. `None`: the process creates the file at its first start.
    pub text: Option<Zeroizing<String>>,
}

impl fmt::Debug for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Checks the secret's file. `None` when a fault was noted, or when no path is known because the
/// database is not known.
pub(super) fn secret(
    raw: &raw::Provider,
    database: Option<&DatabaseSettings>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<SecretFile> {
    let at = path.key("secret_file");
    let file = match (&raw.secret_file, database) {
        (Some(file), _) => file.clone(),
        (None, Some(DatabaseSettings { file: Some(database), .. })) => {
            let mut file = database.clone().into_os_string();
            file.push(".secret");
            let file = PathBuf::from(file);
            if context.reader.access(&file).is_none() {
                return Some(SecretFile { path: file, text: None });
            }
            file
        }
        (None, Some(_)) => {
            let message = "missing key `secret_file`";
            let hint =
                "with PostgreSQL all nodes share one; create it with `openssl rand -base64 32` and mode 0600";
            context.faults.add(&at, message, hint);
            return None;
        }
        (None, None) => return None,
    };
    let read = Zeroizing::new(context.read(&file, &at)?);
    if context.reader.access(&file).is_some_and(|access| !access.is_private()) {
        let message = format!("{} can be read by other users", context.reader.resolve(&file).display());
        context.faults.add(&at, message, "restrict it: chmod 600");
        return None;
    }
    // A text that is not UTF-8 is not base64 either.
    let text = Zeroizing::new(std::str::from_utf8(&read).unwrap_or_default().to_owned());
    if let Err(fault) = Secrets::parse(&text) {
        let message = match fault {
            SecretMalformed::Form => "does not hold 32 bytes in base64",
            SecretMalformed::Regular => "contains no random secret: its bytes repeat or count up",
        };
        let message = format!("{} {message}", context.reader.resolve(&file).display());
        let hint = "use the secret that the database was created with; for a new database: `openssl rand -base64 32`";
        context.faults.add(&at, message, hint);
        return None;
    }
    Some(SecretFile { path: context.reader.resolve(&file), text: Some(text) })
}

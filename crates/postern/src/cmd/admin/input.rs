//! Input of operators: passwords and tokens, which are never arguments, and settings.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;

use idp::admin::Secret;
use idp::provider::Provider;
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::exit::Failure;

/// Size limit, in bytes, of a file with one value.
const MAX: u64 = 64 * 1024;
/// Size limit, in bytes, of a file with a list.
const MAX_LIST: u64 = 1024 * 1024 * 1024;

/// Options that supply a password.
#[derive(Debug, Default, clap::Args)]
#[group(multiple = false)]
pub(super) struct PasswordFrom {
    /// Read the password from the first line of this file, or of standard input: -.
    #[arg(long, value_name = "FILE")]
    password_file: Option<String>,
    /// Generate a password and print it once.
    #[arg(long)]
    pub(super) generate_password: bool,
    /// Ask for the password at the terminal.
    #[arg(long)]
    pub(super) ask_password: bool,
}

impl PasswordFrom {
    /// Reads the password. `None`: no option supplies one.
    pub(super) fn read(&self) -> Result<Option<Secret>, Failure> {
        match &self.password_file {
            Some(file) => {
                let text = Zeroizing::new(read_limited(file, "password", MAX)?);
                let line = text.lines().next().unwrap_or_default();
                if line.is_empty() {
                    return Err(Failure::new(format!(
                        "the first line of {} is empty: write the password there",
                        display_name(file)
                    )));
                }
                Ok(Some(Secret::new(line.to_owned())))
            }
            None if self.ask_password => prompt_password().map(Some),
            None => Ok(None),
        }
    }

    /// Whether no option supplies a password.
    pub(super) fn is_absent(&self) -> bool {
        self.password_file.is_none() && !self.generate_password && !self.ask_password
    }
}

/// Reads a token from a file, or from standard input.
pub(super) fn token(file: &str) -> Result<Secret, Failure> {
    let text = Zeroizing::new(read_limited(file, "token", MAX)?);
    match text.trim() {
        "" => Err(Failure::new(format!("{} is empty: write the token there", display_name(file)))),
        token => Ok(Secret::new(token.to_owned())),
    }
}

/// Reads tokens from a file, or from standard input: one per line.
pub(super) fn tokens(file: &str) -> Result<Vec<Secret>, Failure> {
    let text = Zeroizing::new(read_limited(file, "list of tokens", MAX_LIST)?);
    lines(&text, file, "token", |token| Ok(Secret::new(token.to_owned())))
}

/// Reads token identifiers in the same format. An invalid one is refused before any is used. The
/// message does not repeat it, because it may be a token.
pub(super) fn names(file: &str) -> Result<Vec<String>, Failure> {
    let text = Zeroizing::new(read_limited(file, "list of tokens' names", MAX_LIST)?);
    let why = "is not a token identifier: 22 characters of base64url (the claim `jti`)";
    lines(&text, file, "name", |name| Provider::is_id(name).then(|| name.to_owned()).ok_or(why))
}

/// Parses each line that is not empty.
fn lines<T>(
    text: &str,
    file: &str,
    kind: &str,
    read: impl Fn(&str) -> Result<T, &'static str>,
) -> Result<Vec<T>, Failure> {
    let lines = text.lines().zip(1..).map(|(line, number)| (line.trim(), number));
    let all = lines.filter(|(line, _)| !line.is_empty()).map(|(line, number)| {
        read(line).map_err(|why| {
            Failure::new(format!("line {number} of {} {why}; nothing was changed", display_name(file)))
        })
    });
    let all = all.collect::<Result<Vec<T>, Failure>>()?;
    if all.is_empty() {
        return Err(Failure::new(format!("{} is empty; write one {kind} per line", display_name(file))));
    }
    Ok(all)
}

/// Reads JSON from a file, or from standard input.
pub(super) fn json<T: DeserializeOwned>(file: &str, kind: &str) -> Result<T, Failure> {
    let text = read_limited(file, kind, MAX)?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("the {kind} in {}: {error}", display_name(file))))
}

fn read_limited(file: &str, kind: &str, most: u64) -> Result<String, Failure> {
    let unread = |error: io::Error| {
        Failure::new(format!("cannot read the {kind} from {}: {error}", display_name(file)))
    };
    let mut text = String::new();
    let read = match file {
        "-" => io::stdin().lock().take(most + 1).read_to_string(&mut text),
        file => File::open(Path::new(file)).map_err(unread)?.take(most + 1).read_to_string(&mut text),
    };
    if read.map_err(unread)? as u64 > most {
        let most = most / 1024;
        return Err(Failure::new(format!(
            "{} has more than {most} KiB: it is not the {kind}",
            display_name(file)
        )));
    }
    Ok(text)
}

fn display_name(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

/// Reads a password twice at the terminal, without echo.
pub(super) fn prompt_password() -> Result<Secret, Failure> {
    let refused = |error: io::Error| {
        Failure::new(format!(
            "there is no terminal to read a password from ({error}); use --password-file or --generate-password"
        ))
    };
    let terminal = File::options().read(true).write(true).open("/dev/tty").map_err(refused)?;
    if !isatty(&terminal) {
        return Err(refused(io::ErrorKind::Unsupported.into()));
    }
    let silence = EchoOff::disable(&terminal).map_err(refused)?;
    let first = prompt(&terminal, "password: ").map_err(refused)?;
    let second = prompt(&terminal, "once more: ").map_err(refused)?;
    drop(silence);
    if first != second {
        return Err(Failure::new("the two passwords differ; nothing was changed"));
    }
    Ok(Secret::new(first))
}

fn prompt(mut terminal: &File, text: &str) -> io::Result<Zeroizing<String>> {
    terminal.write_all(text.as_bytes())?;
    let mut line = Zeroizing::new(String::new());
    // A terminal returns one line at a time.
    BufReader::new(terminal).read_line(&mut line)?;
    terminal.write_all(b"\n")?;
    Ok(Zeroizing::new(line.trim_end_matches(['\n', '\r']).to_owned()))
}

/// Disables the echo of a terminal until it is dropped.
struct EchoOff<'t> {
    terminal: &'t File,
    before: Termios,
}

impl<'t> EchoOff<'t> {
    fn disable(terminal: &'t File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for EchoOff<'_> {
    fn drop(&mut self) {
        // A failure here cannot be reported to a caller.
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}

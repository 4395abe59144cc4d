//! Path checks: paths in the file must be in canonical form.

use auth::request::{Canonical, RawRequest, Scheme};

use super::super::fault::KeyPath;
use super::Context;

/// Returns a path in canonical form without its trailing slash. Notes a fault for any other path.
pub(super) fn plain_path(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<String> {
    let problem = match without_end(text) {
        Ok(plain) => return Some(plain),
        Err(problem) => problem,
    };
    context.faults.add(path, format!("{text:?} is not a canonical path"), problem);
    None
}

/// A path in canonical form without its trailing slash.
///
/// # Errors
/// What is the canonical form of another path, or why it has none.
pub fn without_end(text: &str) -> Result<String, String> {
    match canonical(text)? {
        canonical if canonical == text => Ok(text.trim_end_matches('/').to_owned()),
        canonical => Err(format!("its canonical form is {canonical:?}")),
    }
}

/// Canonical path of a request for this target.
///
/// # Errors
///
/// Returns why a request for this target is malformed, or what servers read differently in it.
pub(super) fn canonical(text: &str) -> Result<String, String> {
    let request = RawRequest {
        method: "GET",
        scheme: Scheme::Https,
        authority: None,
        host: Some(b"host.example"),
        target: text.as_bytes(),
    };
    let canonical = Canonical::parse(&request).map_err(|malformed| malformed.to_string())?;
    canonical.strict_fault().map_or_else(|| Ok(canonical.path().to_owned()), |fault| Err(fault.to_string()))
}

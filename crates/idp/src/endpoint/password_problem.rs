//! What a page says when a new password is not accepted.

use crate::login::SetFault;
use crate::oauth::error::OAuthFault;
use crate::pages::PasswordProblem;
use crate::passwords::rules::Refusal;

/// The problem that the page shows.
///
/// # Errors
/// [`OAuthFault`] when not the password is at fault but the provider.
pub(super) fn password_problem(fault: SetFault) -> Result<PasswordProblem, OAuthFault> {
    match fault {
        SetFault::Refused(Refusal::TooShort { .. }) => Ok(PasswordProblem::TooShort),
        SetFault::Refused(Refusal::Characters) => Ok(PasswordProblem::Characters),
        SetFault::Refused(_) | SetFault::TooLong(_) => Ok(PasswordProblem::TooCommon),
        SetFault::Pool(error) => Err(error.into()),
        SetFault::Store(error) => Err(error.into()),
    }
}

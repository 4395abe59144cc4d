//! Lifetime of access tokens: its bounds and its check.
//!
//! Other lifetimes depend on the maximum: keys stay published for longer, and revocations are kept
//! as long.

use std::time::Duration;

/// Longest lifetime of an access token and of an ID token.
pub const MAX_ACCESS_TOKEN: Duration = Duration::from_hours(24);

/// Reason why a duration is not a token lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LifetimeFault {
    /// Less than one second or more than [`MAX_ACCESS_TOKEN`].
    #[error("access token lifetime out of range: use 1 second to 24 hours")]
    Range,
    /// Not whole seconds: `exp` and `expires_in` have no fractions.
    #[error("access token lifetime has a fraction: use whole seconds")]
    Fraction,
}

/// Checks a configured lifetime.
///
/// # Errors
/// [`LifetimeFault`] when it is out of range or not whole seconds.
pub fn check(lifetime: Duration) -> Result<(), LifetimeFault> {
    if !(Duration::from_secs(1)..=MAX_ACCESS_TOKEN).contains(&lifetime) {
        return Err(LifetimeFault::Range);
    }
    if lifetime.subsec_nanos() != 0 {
        return Err(LifetimeFault::Fraction);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_whole_seconds_up_to_a_day() {
        let millis = |millis| check(Duration::from_millis(millis));
        assert_eq!(millis(1000), Ok(()));
        assert_eq!(check(MAX_ACCESS_TOKEN), Ok(()));
        assert_eq!(millis(0), Err(LifetimeFault::Range));
        assert_eq!(millis(999), Err(LifetimeFault::Range));
        assert_eq!(millis(1500), Err(LifetimeFault::Fraction));
        assert_eq!(check(MAX_ACCESS_TOKEN + Duration::from_secs(1)), Err(LifetimeFault::Range));
    }
}

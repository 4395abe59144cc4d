//! Messages of the provider's pages.
//!
//! Owns: the keys (`Words`) and their English and German texts, and how times and durations are
//! written. Does not own: reading and checking files of messages ([`::pages::messages`]), the
//! language of a page ([`::pages::language`]).

use std::{borrow::Borrow, time::Duration};

use auth::time::Timestamp;

/// The built-in texts, by language tag.
pub const BUILTIN: [(&str, &str); 2] =
    [("en", include_str!("../../locales/en.toml")), ("de", include_str!("../../locales/de.toml"))];

::pages::words! {
    time: TimeWords { shown(day month year clock), jan, feb, mar, apr, may, jun, jul, aug, sep, oct, nov, dec, second, seconds(count), minute,
        minutes(count), hour, hours(count) }
    common: CommonWords { back(client), signed_in(user) }
    login: LoginWords { title, lead(client), user, password, submit, wrong, too_many(wait), expired, incomplete, forgot }
    forgot_password: ForgotPasswordWords { title, lead, login, submit, incomplete, done_title, done_text, done_hint, back }
    mail: MailWords {
        reset_subject(brand), reset_lead(brand user), operator_lead(brand user), reset_ignore, invitation_subject(brand),
        invitation_lead(brand user), invitation_ignore, until(time), test_subject(brand), test_text(brand),
    }
    new_password: NewPasswordWords { title, lead, submit, account(user), invited_title, invited_lead, reset_lead, set }
    consent: ConsentWords { title, lead(client), asks, new, had, allow, deny, returns(host), note }
    scope: ScopeWords { openid, profile, email, address, phone, groups, offline_access, other(scope) }
    device: DeviceWords {
        title, lead, code, hint, next, unknown, expired, too_many(wait), confirm_title, confirm_lead(client), compare,
        warning, asks, allow, deny, done_title, done_text(client), denied_title, denied_text(client),
    }
    logout: LogoutWords { title, lead(user), lead_client(client user), submit, stay, done_title, done_text }
    form_post: FormPostWords { title, lead(client), submit }
    account: AccountWords {
        title, sign_out, details, details_none, yes, no, list_hint, save, refused(label), did_save, sessions, sessions_none, this_session, last_seen(time), end, end_others, consents,
        consents_none, since(time), withdraw, withdraw_all, tokens, tokens_lead, tokens_none, issued(time),
        expires(time), revoke, revoke_all, passing, passing_lead, ends_with(browser time), password, current, fresh, fresh_hint(min), again, change, wrong_current, too_short(min),
        characters, too_common, differ, same, too_many(wait), did_change, did_end, did_end_others, did_withdraw,
        did_withdraw_all, did_revoke, did_revoke_all,
    }
    error: ErrorWords {
        bad_request_title, bad_request_text, unknown_client_title, unknown_client_text, redirect_title,
        redirect_text, no_logout_hint_text, expired_title, expired_text, link_title, link_text, form_title, form_text, denied_title, denied_text,
        not_found_title, not_found_text, too_many_title, too_many_text(wait), server_title, server_text,
        unavailable_title, unavailable_text, code, request,
    }
}

/// Names of the groups of these messages.
pub const GROUPS: &[&str] = <Words as ::pages::messages::Words>::GROUPS;

impl Words {
    /// A waiting time in whole seconds, minutes or hours, rounded up.
    pub(crate) fn wait(&self, wait: Duration) -> String {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        let t = &self.time;
        let seconds = (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1);
        let (unit, one, many) = match seconds {
            ..MINUTE => (1, &t.second, &t.seconds),
            MINUTE..HOUR => (MINUTE, &t.minute, &t.minutes),
            _ => (HOUR, &t.hour, &t.hours),
        };
        match seconds.div_ceil(unit) {
            1 => one.filled().plain(),
            count => many.with("count", count).plain(),
        }
    }

    /// A time with the precision of a minute, in UTC with its zone, and the month as a word. So it
    /// is unambiguous and needs no script that determines the reader's zone.
    pub(crate) fn time(&self, at: impl Borrow<Timestamp>) -> String {
        let at = at.borrow();
        let t = &self.time;
        let months =
            [&t.jan, &t.feb, &t.mar, &t.apr, &t.may, &t.jun, &t.jul, &t.aug, &t.sep, &t.oct, &t.nov, &t.dec];
        let minutes = at.as_secs() / 60;
        let (year, month, day) = at.date();
        let month = usize::try_from(month - 1).unwrap_or(0);
        let clock = format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60);
        t.shown.with("day", day).and("month", months[month]).and("year", year).and("clock", clock).plain()
    }
}

#[cfg(test)]
mod tests {
    use ::pages::{Catalog, Languages};

    use super::*;

    fn both() -> (Words, Words) {
        let languages = Languages::default();
        let catalog = Catalog::<Words>::read(&languages, &BUILTIN).unwrap();
        let of = |tag| catalog.of(languages.choose(Some(tag), None)).clone();
        (of("en"), of("de"))
    }

    #[test]
    fn english_and_german_have_the_same_keys_and_placeholders() {
        let [(_, english), (_, german)] = BUILTIN;
        assert_eq!(::pages::messages::keys(english), ::pages::messages::keys(german));
    }

    #[test]
    fn a_wait_is_told_in_its_own_unit_and_never_too_short() {
        let (en, de) = both();
        let wait = |words: &Words, millis| words.wait(Duration::from_millis(millis)).replace('\u{a0}', " ");
        for (millis, english, german) in [
            (1, "1 second", "1 Sekunde"),
            (1001, "2 seconds", "2 Sekunden"),
            (10_000, "10 seconds", "10 Sekunden"),
            (59_001, "1 minute", "1 Minute"),
            (60_000, "1 minute", "1 Minute"),
            (60_001, "2 minutes", "2 Minuten"),
            (15 * 60_000, "15 minutes", "15 Minuten"),
            (60 * 60_000, "1 hour", "1 Stunde"),
            (61 * 60_000, "2 hours", "2 Stunden"),
            (24 * 60 * 60_000, "24 hours", "24 Stunden"),
        ] {
            assert_eq!((wait(&en, millis), wait(&de, millis)), (english.into(), german.into()), "{millis}");
        }
    }

    #[test]
    fn times_name_month_and_zone() {
        let (en, de) = both();
        // Dates contain no-break spaces, so that no line breaks within a date or before its zone.
        let time = |words: &Words, secs| words.time(Timestamp::from_secs(secs)).replace('\u{a0}', " ");
        let shown = |secs| (time(&en, secs), time(&de, secs));
        assert_eq!(shown(0), ("1 Jan 1970, 00:00 UTC".into(), "1. Jan. 1970, 00:00 UTC".into()));
        assert_eq!(shown(1_709_251_199).0, "29 Feb 2024, 23:59 UTC");
        assert_eq!(shown(1_709_251_200).1, "1. März 2024, 00:00 UTC");
        assert_eq!(shown(4_107_542_400).0, "1 Mar 2100, 00:00 UTC", "2100 has no leap day");
        let _ = en.time(Timestamp::MAX);
    }
}

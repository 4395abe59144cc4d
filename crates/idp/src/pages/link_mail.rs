//! Texts of mails with an account link.
//!
//! Owns: subject and text, in the language of the recipient. Does not own: links, sending.
//!
//! A mail is plain text: every program shows it alike, and the link is shown as it is.

use auth::time::Timestamp;
use store::account_links::LinkKind;

use super::Pages;
use super::messages::Words;

/// A mail with an account link.
#[derive(Clone, Copy)]
pub(crate) struct LinkMail<'a> {
    /// What the link is for.
    pub(crate) kind: LinkKind,
    /// Login name of the user.
    pub(crate) user: &'a str,
    /// The link.
    pub(crate) url: &'a str,
    /// When it expires.
    pub(crate) expires_at: Timestamp,
    /// Whether somebody asked for it who claims to be the user; otherwise an operator did.
    pub(crate) is_asked_for: bool,
}

impl LinkMail<'_> {
    /// Subject and text.
    fn write(&self, brand: &str, w: &Words) -> (String, String) {
        let m = &w.mail;
        let subject = match self.kind {
            LinkKind::Invitation => m.invitation_subject.with("brand", brand),
            LinkKind::Reset => m.reset_subject.with("brand", brand),
        };
        let lead = match (self.kind, self.is_asked_for) {
            (LinkKind::Invitation, _) => m.invitation_lead.with("brand", brand),
            (LinkKind::Reset, true) => m.reset_lead.with("brand", brand),
            (LinkKind::Reset, false) => m.operator_lead.with("brand", brand),
        };
        let lead = lead.and("user", self.user).plain();
        let until = m.until.with("time", w.time(self.expires_at)).plain();
        let not_asked = match self.kind {
            LinkKind::Invitation => m.invitation_ignore.filled().plain(),
            LinkKind::Reset => m.reset_ignore.filled().plain(),
        };
        let text = format!("{lead}\n\n{}\n\n{until}\n\n{not_asked}\n\n-- \n{brand}\n", self.url);
        (subject.plain(), text)
    }
}

impl Pages {
    /// Subject and text of a mail in the language with this tag, or else the default language.
    pub(crate) fn link_mail(&self, language: &str, mail: &LinkMail<'_>) -> (String, String) {
        let language = self.languages().choose(Some(language), None);
        mail.write(self.shell.brand().name(), self.messages.of(language))
    }

    /// Subject and text of a mail that tests the mail server.
    pub(crate) fn test_mail(&self) -> (String, String) {
        let (brand, language) = (self.shell.brand().name(), self.languages().choose(None, None));
        let m = &self.messages.of(language).mail;
        let text = m.test_text.with("brand", brand).plain();
        (m.test_subject.with("brand", brand).plain(), format!("{text}\n"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::pages::{Brand, BrandConfig, Languages, Shell};

    use super::*;

    fn pages() -> Pages {
        let brand = BrandConfig { name: "Exämple & Söhne".into(), ..BrandConfig::default() };
        Pages::new(Arc::new(Shell::new(Brand::check(&brand).unwrap(), Languages::default()))).unwrap()
    }

    #[test]
    fn a_mail_says_who_what_until_when_and_what_otherwise() {
        let pages = pages();
        let url = "https://login.example/set-password?token=q0Zr-7dXbK3nVtY_2mLw9A";
        for kind in [LinkKind::Invitation, LinkKind::Reset] {
            for is_asked_for in [false, true] {
                let expires_at = Timestamp::from_secs(1_800_000_000);
                let mail = LinkMail { kind, user: "ada", url, expires_at, is_asked_for };
                for (tag, month) in [("en", "15 Jan 2027, 08:00 UTC"), ("de-AT", "15. Jan. 2027, 08:00 UTC")]
                {
                    let (subject, text) = pages.link_mail(tag, &mail);
                    assert!(subject.contains("Exämple & Söhne"), "not escaped: {subject}");
                    let text = text.replace('\u{a0}', " ");
                    assert!(text.lines().any(|line| line == url), "alone in its line: {text}");
                    assert!(
                        text.contains(month) && text.contains("ada") && text.contains("Exämple"),
                        "{text}"
                    );
                }
            }
        }
        let (_, unknown) = pages.link_mail(
            "zz",
            &LinkMail {
                kind: LinkKind::Reset,
                user: "ada",
                url,
                expires_at: Timestamp::from_secs(0),
                is_asked_for: true,
            },
        );
        assert!(unknown.contains("password"), "English: {unknown}");
    }

    #[test]
    fn a_name_adds_no_line() {
        let mail = LinkMail {
            kind: LinkKind::Reset,
            user: "ada\r\n\r\nhttps://evil.example",
            url: "https://login.example/",
            expires_at: Timestamp::from_secs(0),
            is_asked_for: true,
        };
        let (_, text) = pages().link_mail("en", &mail);
        assert!(!text.lines().any(|line| line.starts_with("https://evil")), "{text}");
    }
}

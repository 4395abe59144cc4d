//! Samples of each page, for tests and for the example `pages`.

use auth::time::Timestamp;

use ::pages::{FormTarget, Href, Link};

use super::{
    Account, AccountDone, AccountPaths, AttributeField, AttributeInput, Consent, ConsentRow, DeviceCode,
    DeviceConfirm, DeviceDone, DeviceProblem, ErrorKind, ErrorPage, ForgotPassword, ForgotPasswordStep, Form,
    Login, LoginProblem, Logout, LogoutDone, NewPassword, NewPasswordReason, Page, PasswordForm,
    PasswordProblem, Scope, SessionEntry, TokenRow,
};

/// Texts in the samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Texts<'a> {
    pub(crate) user: &'a str,
    pub(crate) client: &'a str,
    pub(crate) other_client: &'a str,
    pub(crate) browser: &'a str,
    pub(crate) address: &'a str,
    pub(crate) host: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) meaning: &'a str,
    pub(crate) code: &'a str,
    pub(crate) opaque: &'a str,
}

impl<'a> Texts<'a> {
    /// Realistic texts.
    #[allow(dead_code, reason = "the example uses it, tests have texts of their own as well")]
    pub(crate) fn ordinary() -> Texts<'static> {
        Texts {
            user: "ada.lovelace@example.com",
            client: "Grafana",
            other_client: "Build Runner CLI",
            browser: "Firefox on Linux",
            address: "203.0.113.7",
            host: "grafana.example.com",
            scope: "deploy:write",
            meaning: "Start deployments in the staging cluster",
            code: "WDJB-MJHT",
            opaque: "01JF8ZK3T6Q2W9",
        }
    }

    /// The same text in all places.
    #[allow(dead_code, reason = "tests use it, the example does not")]
    pub(crate) fn all(text: &'a str) -> Self {
        Self {
            user: text,
            client: text,
            other_client: text,
            browser: text,
            address: text,
            host: text,
            scope: text,
            meaning: text,
            code: text,
            opaque: text,
        }
    }
}

/// Lists that the pages borrow.
pub(crate) struct Sample<'a> {
    t: Texts<'a>,
    scopes: [Scope<'a>; 5],
    sessions: [SessionEntry<'a>; 3],
    tokens: [TokenRow<'a>; 2],
    passing: [TokenRow<'a>; 1],
    attributes: [AttributeField<'a>; 4],
    targets: Vec<FormTarget>,
    href: Option<Href>,
    hidden: [(&'a str, &'a str); 1],
}

impl<'a> Sample<'a> {
    pub(crate) fn new(t: Texts<'a>) -> Self {
        let scope = |name, meaning, new| Scope { name, meaning, new };
        let session = |browser, address, at, this_one| SessionEntry {
            id: t.opaque,
            browser,
            address,
            last_seen: Timestamp::from_secs(at),
            is_current: this_one,
        };
        let attribute = |label, name, value, input| AttributeField { label, name, value, input };
        let token = |client, at, expires| TokenRow {
            id: t.opaque,
            client,
            issued: Timestamp::from_secs(at),
            expires,
            session: None,
        };
        Self {
            t,
            scopes: [
                scope("openid", None, false),
                scope("email", None, false),
                scope("groups", None, true),
                scope("offline_access", None, true),
                scope(t.scope, Some(t.meaning), true),
            ],
            sessions: [
                session(t.browser, t.address, 1_783_000_000, true),
                session("Safari on iPhone", "2001:db8:85a3::8a2e:370:7334", 1_782_910_000, false),
                session(t.browser, t.address, 1_782_000_000, false),
            ],
            tokens: [
                token(t.other_client, 1_781_500_000, Some(Timestamp::from_secs(1_784_000_000))),
                token(t.client, 1_780_500_000, None),
            ],
            passing: [TokenRow {
                session: Some(t.browser),
                ..token(t.client, 1_783_000_000, Some(Timestamp::from_secs(1_783_040_000)))
            }],
            attributes: [
                attribute("Department", "department", t.meaning, AttributeInput::Shown),
                attribute("Newsletter", "newsletter", "true", AttributeInput::YesNo),
                attribute("Floor", "floor", "7", AttributeInput::Number),
                attribute("Interests", "interests", t.opaque, AttributeInput::List),
            ],
            targets: FormTarget::of_redirect("https://grafana.example.com/login/generic_oauth")
                .into_iter()
                .collect(),
            href: Href::parse("https://grafana.example.com/").ok(),
            hidden: [("request", t.opaque)],
        }
    }

    /// Consents that the account page borrows.
    pub(crate) fn consents(&self) -> [ConsentRow<'_>; 2] {
        let row = |client, scopes, at| ConsentRow {
            client_id: self.t.opaque,
            client,
            scopes,
            since: Timestamp::from_secs(at),
        };
        [
            row(self.t.client, &self.scopes[..3], 1_780_000_000),
            row(self.t.other_client, &self.scopes[3..], 1_779_000_000),
        ]
    }

    /// The account page with everything that it can show.
    fn account<'s>(&'s self, consents: &'s [ConsentRow<'s>]) -> Account<'s> {
        let t = &self.t;
        Account {
            user: t.user,
            csrf: t.opaque,
            paths: AccountPaths {
                logout: "/logout",
                end_session: "/account/sessions/end",
                end_others: "/account/sessions/end-others",
                withdraw: "/account/consents/withdraw",
                withdraw_all: "/account/consents/withdraw-all",
                revoke: "/account/tokens/revoke",
                revoke_all: "/account/tokens/revoke-all",
                password: "/account/password",
                attributes: "/account/attributes",
            },
            attributes: &self.attributes,
            refused_attribute: None,
            sessions: &self.sessions,
            consents,
            tokens: &self.tokens,
            session_bound: &self.passing,
            password: Some(PasswordForm { min_length: 12, problem: None }),
            done: Some(AccountDone::SessionEnded),
        }
    }

    /// The page that asks for a new password, for each reason.
    fn new_passwords(&self) -> Vec<(&'static str, Page<'_>)> {
        let form = |action| Form { action, csrf: self.t.opaque, hidden: &self.hidden };
        let fresh = NewPassword {
            reason: NewPasswordReason::Temporary,
            form: form("/login/password"),
            user: self.t.user,
            min_length: 12,
            problem: None,
            form_targets: &self.targets,
        };
        let refused = NewPassword { problem: Some(PasswordProblem::TooShort), ..fresh };
        let linked = |reason| Page::NewPassword(NewPassword { reason, form: form("/set-password"), ..fresh });
        vec![
            ("login-new-password", Page::NewPassword(fresh)),
            ("login-new-password-short", Page::NewPassword(refused)),
            ("login-invitation", linked(NewPasswordReason::Invitation)),
            ("login-reset", linked(NewPasswordReason::Reset)),
        ]
    }

    /// The page for users who forgot their password, in each of its steps.
    fn forgot_passwords(&self) -> Vec<(&'static str, Page<'_>)> {
        let form = Form { action: "/forgot-password", csrf: self.t.opaque, hidden: &self.hidden };
        let page = |step| Page::ForgotPassword(ForgotPassword { form, step, back: "/login" });
        vec![
            ("forgot", page(ForgotPasswordStep::Ask)),
            ("forgot-empty", page(ForgotPasswordStep::Incomplete)),
            ("forgot-done", page(ForgotPasswordStep::Done)),
        ]
    }

    /// All pages, with the file names of the example.
    pub(crate) fn pages<'s>(&'s self, consents: &'s [ConsentRow<'s>]) -> Vec<(&'static str, Page<'s>)> {
        let t = &self.t;
        let form = |action| Form { action, csrf: t.opaque, hidden: &self.hidden };
        let back = self.href.as_ref().map(|href| Link { href, name: t.client });
        let login = Login {
            form: form("/login"),
            client: Some(t.client),
            hint: None,
            problem: None,
            forgot: Some("/forgot-password"),
            back,
            form_targets: &self.targets,
        };
        let consent = Consent {
            form: form("/consent"),
            client: t.client,
            user: t.user,
            scopes: &self.scopes,
            returns_to: t.host,
            form_targets: &self.targets,
        };
        let code = DeviceCode { form: form("/device"), code: None, problem: None };
        let confirm = DeviceConfirm {
            form: form("/device/confirm"),
            code: t.code,
            client: t.other_client,
            user: t.user,
            scopes: &self.scopes[2..],
        };
        let logout =
            Logout { form: form("/logout"), user: t.user, client: None, form_targets: &self.targets };
        let account = self.account(consents);
        let torn = Some(PasswordForm { min_length: 12, problem: Some(PasswordProblem::TooShort) });
        let error = |kind| Page::Error(ErrorPage { kind, request_id: t.opaque, back: None });
        let wrong = Login { hint: Some(t.user), problem: Some(LoginProblem::Wrong), ..login };
        let unknown = DeviceCode { code: Some(t.code), problem: Some(DeviceProblem::Unknown), ..code };
        let done = |allowed| Page::DeviceDone(DeviceDone { client: t.other_client, allowed });
        let mut all = vec![
            ("login", Page::Login(login)),
            ("login-wrong", Page::Login(wrong)),
            ("consent", Page::Consent(consent)),
            ("consent-first", Page::Consent(Consent { scopes: &self.scopes[2..], ..consent })),
            ("device", Page::DeviceCode(code)),
            ("device-unknown", Page::DeviceCode(unknown)),
            ("device-confirm", Page::DeviceConfirm(confirm)),
            ("device-done", done(true)),
            ("device-denied", done(false)),
            ("logout", Page::Logout(logout)),
            ("logout-client", Page::Logout(Logout { client: Some(t.client), ..logout })),
            ("logout-done", Page::LogoutDone(LogoutDone { back })),
            ("account", Page::Account(account)),
            (
                "account-bare",
                Page::Account(Account {
                    sessions: &self.sessions[..1],
                    consents: &[],
                    tokens: &[],
                    session_bound: &[],
                    done: None,
                    password: torn,
                    ..account
                }),
            ),
            (
                "account-refused",
                Page::Account(Account { refused_attribute: Some("floor"), done: None, ..account }),
            ),
            ("error", error(ErrorKind::RedirectMismatch)),
            ("error-link", error(ErrorKind::LinkInvalid)),
            ("error-server", error(ErrorKind::Server)),
            ("error-back", Page::Error(ErrorPage { kind: ErrorKind::Expired, request_id: t.opaque, back })),
        ];
        all.extend(self.new_passwords());
        all.extend(self.forgot_passwords());
        all
    }
}

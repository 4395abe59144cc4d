//! Rules: which callers a route permits.
//!
//! Owns: [`Policy`], [`RuleSet`], [`Rule`], [`Condition`]; whether a condition holds for an
//! identity and a request; the text of a rule for people. Building from the configuration is in
//! [`spec`].
//!
//! Does not own: the order of evaluation and its outcome (`decide`).
//!
//! Rules are evaluated on every request, also when the credential comes from a cache. So nothing
//! here allocates unless a query value is percent-encoded. Lists of up to
//! [`repeated_values::MAX_LINEAR`] values are compared one by one, longer ones are hashed. All
//! values compare byte for byte, except domains of e-mail addresses, which compare as hosts do.
//!
//! The address of the client may be unknown. Then no allow rule with a condition on it matches, and
//! in a deny rule that condition holds.

mod spec;
mod values;
mod window;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
pub use spec::{ConditionSpec, RuleSpec, TestSpec, Vocabulary};
use values::Values;
pub use window::{TimeWindow, Weekday, WindowSpec};

use super::review::ReviewSet;
use crate::identity::Identity;
use crate::request::{Canonical, canonical_host, pairs};
use crate::time::Timestamp;

/// What a route requires of its callers.
#[derive(Debug, Clone)]
pub enum Policy {
    /// Every request is permitted, with or without a credential. The only way to make a route
    /// public.
    Public,
    /// A valid credential is required, and these rules must permit the request.
    Rules(RuleSet),
}

/// The rules of a route. A request is permitted when no deny rule matches and an allow rule does.
#[derive(Debug, Clone)]
pub struct RuleSet {
    allow: Box<[Rule]>,
    deny: Box<[Rule]>,
    parameters: Box<[Box<str>]>,
    reviews: Option<Arc<ReviewSet>>,
}

impl RuleSet {
    /// No rules: every caller with a credential is reviewed.
    pub fn with_reviews_only(reviews: impl Into<ReviewSet>) -> Self {
        let none = || Box::default();
        let reviews = Some(Arc::new(reviews.into()));
        Self { allow: none(), deny: none(), parameters: Box::default(), reviews }
    }

    /// The same rules, and reviews of every request that they do not decide.
    #[must_use]
    pub fn with_reviews(self, reviews: impl Into<ReviewSet>) -> Self {
        Self { reviews: Some(Arc::new(reviews.into())), ..self }
    }

    /// The access reviews that Kubernetes is asked for when no rule decides.
    pub fn reviews(&self) -> Option<&ReviewSet> {
        self.reviews.as_deref()
    }

    /// Whether some rule reads the address of the client.
    pub fn reads_client_address(&self) -> bool {
        self.conditions().any(|condition| condition.attribute == Attribute::Addresses)
    }

    /// The next instant after `now` at which the time alone may change the decision;
    /// [`Timestamp::MAX`]: never.
    pub fn next_change(&self, now: Timestamp) -> Timestamp {
        let windows = self.conditions().filter_map(|condition| match &condition.test {
            Test::Within(window) => Some(window.next_change(now)),
            _ => None,
        });
        windows.min().unwrap_or(Timestamp::MAX)
    }

    fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.allow.iter().chain(&self.deny).flat_map(Rule::conditions)
    }

    /// Rules of which any one permits. Empty only where there is a review.
    pub fn allow(&self) -> &[Rule] {
        &self.allow
    }

    /// Rules of which any one refuses, whatever the allow rules say.
    pub fn deny(&self) -> &[Rule] {
        &self.deny
    }

    /// The query parameters that conditions read, sorted: each may occur at most once in a request.
    pub fn parameters(&self) -> &[Box<str>] {
        &self.parameters
    }

    /// The scopes that a refused caller lacks to match an allow rule: those of the first rule whose
    /// other conditions all hold (RFC 6750 §3, `scope`). Empty when the rule accepts any scope at
    /// all.
    pub(crate) fn missing_scopes(&self, input: &RuleInput<'_>) -> Option<Vec<&str>> {
        let rule = self.allow.iter().find(|rule| {
            let mut others = rule.conditions.iter().filter(|c| c.attribute != Attribute::Scopes);
            others.all(|c| c.holds(input, Effect::Allow))
        })?;
        let of_scopes = rule.conditions.iter().filter(|c| c.attribute == Attribute::Scopes);
        Some(of_scopes.flat_map(Condition::sufficient_values).collect())
    }
}

/// A conjunction of conditions; without any, a valid credential suffices.
#[derive(Debug, Clone)]
pub struct Rule {
    conditions: Box<[Condition]>,
}

impl Rule {
    /// The conditions, in configured order.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Whether every condition holds. `effect` is the list that the rule is in.
    pub fn matches(&self, input: &RuleInput<'_>, effect: Effect) -> bool {
        self.conditions.iter().all(|condition| condition.holds(input, effect))
    }
}

/// What conditions read: the caller, the request, and where and when it arrived.
#[derive(Debug, Clone, Copy)]
pub struct RuleInput<'i> {
    /// The identity of the caller.
    pub identity: &'i Identity,
    /// The request.
    pub request: &'i Canonical<'i>,
    /// The address of the client, an IPv4-mapped one as IPv4. `None`: unknown.
    pub client: Option<IpAddr>,
    /// The time of the decision.
    pub now: Timestamp,
}

/// The list that a rule is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The allow rules.
    Allow,
    /// The deny rules.
    Deny,
}

impl Effect {
    /// `allow` or `deny`, as in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// The attribute that a condition reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// Groups and roles of the identity.
    Groups,
    /// OAuth scopes of the identity.
    Scopes,
    /// The mapped user name; an identity may have none.
    Users,
    /// The subject within its issuer.
    Subjects,
    /// The e-mail address of the identity.
    Emails,
    /// The domain of the identity's e-mail address, as a canonical host.
    EmailDomains,
    /// The OAuth client that the credential was issued to.
    Clients,
    /// The configured name of the issuer.
    Issuers,
    /// The kind of credential, as
    /// [`CredentialKind::as_str`](crate::identity::CredentialKind::as_str).
    Credentials,
    /// The method of the request; `HEAD` counts as `GET`.
    Methods,
    /// The address of the client.
    Addresses,
    /// The time of the request.
    Time,
    /// The values kept under this configured claim path.
    Claim(Box<str>),
    /// The value of this query parameter.
    Query(Box<str>),
}

impl Attribute {
    /// Whether it can have several values at once.
    const fn is_list(&self) -> bool {
        matches!(self, Self::Groups | Self::Scopes | Self::Claim(_))
    }

    /// Whether every verified caller has a value.
    const fn is_certain(&self) -> bool {
        matches!(
            self,
            Self::Subjects | Self::Issuers | Self::Credentials | Self::Methods | Self::Addresses | Self::Time
        )
    }

    /// The place within a rule, for faults: the key, and the name after it where there is one.
    fn path(&self) -> String {
        match self {
            Self::Claim(path) => format!("claims.{path}"),
            Self::Query(name) => format!("query.{name}"),
            Self::EmailDomains => "email_domains".into(),
            Self::Addresses => "addresses".into(),
            Self::Time => "time".into(),
            other => format!("{}s", other.noun()),
        }
    }

    fn noun(&self) -> &'static str {
        match self {
            Self::Groups => "group",
            Self::Scopes => "scope",
            Self::Users => "user",
            Self::Subjects => "subject",
            Self::Emails => "email",
            Self::EmailDomains => "email domain",
            Self::Clients => "client",
            Self::Issuers => "issuer",
            Self::Credentials => "credential",
            Self::Methods => "method",
            Self::Addresses => "address",
            Self::Time => "time",
            Self::Claim(_) => "claim",
            Self::Query(_) => "query parameter",
        }
    }

    /// The noun with the claim's or parameter's name; `plural` where it names a list.
    fn write(&self, f: &mut fmt::Formatter<'_>, plural: bool) -> fmt::Result {
        f.write_str(self.noun())?;
        match self {
            Self::Claim(name) | Self::Query(name) => write!(f, " {}", values::Quoted(name)),
            Self::Addresses if plural => f.write_str("es"),
            _ if plural => f.write_str("s"),
            _ => Ok(()),
        }
    }
}

/// How an attribute is tested.
#[derive(Debug, Clone)]
enum Test {
    Any(Values),
    All(Values),
    Present,
    /// The address is in one of these networks.
    In(Box<[IpNet]>),
    /// The time is in this window.
    Within(TimeWindow),
}

/// One condition of a rule.
#[derive(Debug, Clone)]
pub struct Condition {
    attribute: Attribute,
    test: Test,
}

impl Condition {
    /// The attribute that it reads.
    pub fn attribute(&self) -> &Attribute {
        &self.attribute
    }

    /// Whether it holds. A query condition reads the first parameter of its name;
    /// [`decide`](crate::decide::decide) ensures that there is no second one. `effect` is the list
    /// that its rule is in: it decides about an unknown address.
    pub fn holds(&self, input: &RuleInput<'_>, effect: Effect) -> bool {
        let RuleInput { identity, request, client, now } = *input;
        match &self.attribute {
            Attribute::Groups => self.test.accepts_list(&identity.groups),
            Attribute::Scopes => self.test.accepts_list(&identity.scopes),
            Attribute::Claim(path) => self.test.accepts_list(identity.claim(path)),
            Attribute::Users => self.test.accepts_one(identity.user.as_deref()),
            Attribute::Subjects => self.test.accepts_one(Some(&identity.subject)),
            Attribute::Emails => self.test.accepts_one(identity.email.as_deref()),
            Attribute::EmailDomains => self.test.accepts_one(email_domain(identity).as_deref()),
            Attribute::Addresses => match client {
                Some(address) => self.test.accepts_address(address),
                None => effect == Effect::Deny,
            },
            Attribute::Time => matches!(&self.test, Test::Within(window) if window.contains(now)),
            Attribute::Clients => self.test.accepts_one(identity.client.as_deref()),
            Attribute::Issuers => self.test.accepts_one(Some(&identity.issuer)),
            Attribute::Credentials => self.test.accepts_one(Some(identity.kind.as_str())),
            Attribute::Methods => self.test.accepts_one(Some(request.required_method())),
            Attribute::Query(name) => {
                let value = pairs(request.query())
                    .find(|(key, _)| key.decodes_to(name))
                    .map(|(_, value)| value.decode());
                self.test.accepts_one(value.as_deref())
            }
        }
    }

    /// The values of the attribute in the identity or request, for an explanation.
    pub fn values<'s>(&'s self, input: &RuleInput<'s>) -> Vec<Cow<'s, str>> {
        let RuleInput { identity, request, client, now } = *input;
        let list = |list: &'s [Box<str>]| list.iter().map(|v| Cow::Borrowed(&**v)).collect();
        let one = |value: Option<&'s str>| value.map(Cow::Borrowed).into_iter().collect();
        match &self.attribute {
            Attribute::Groups => list(&identity.groups),
            Attribute::Scopes => list(&identity.scopes),
            Attribute::Claim(path) => list(identity.claim(path)),
            Attribute::Users => one(identity.user.as_deref()),
            Attribute::Subjects => one(Some(&identity.subject)),
            Attribute::Emails => one(identity.email.as_deref()),
            Attribute::EmailDomains => email_domain(identity).into_iter().collect(),
            Attribute::Addresses => client.map(|address| address.to_string().into()).into_iter().collect(),
            Attribute::Time => match &self.test {
                Test::Within(window) => vec![window.local_text(now).into()],
                _ => Vec::new(),
            },
            Attribute::Clients => one(identity.client.as_deref()),
            Attribute::Issuers => one(Some(&identity.issuer)),
            Attribute::Credentials => one(Some(identity.kind.as_str())),
            Attribute::Methods => one(Some(request.method())),
            Attribute::Query(name) => request.query_values(name).collect(),
        }
    }

    /// Values that suffice to meet the condition.
    fn sufficient_values(&self) -> impl Iterator<Item = &str> {
        let values = match &self.test {
            Test::All(values) => values.as_slice(),
            Test::Any(values) => values.as_slice().get(..1).unwrap_or_default(),
            Test::Present | Test::In(_) | Test::Within(_) => &[],
        };
        values.iter().map(|value| &**value)
    }
}

impl Test {
    fn accepts_one(&self, found: Option<&str>) -> bool {
        match self {
            // `All` on an attribute that has one value lists one value.
            Self::Any(values) | Self::All(values) => found.is_some_and(|value| values.contains(value)),
            Self::Present => found.is_some(),
            Self::In(_) | Self::Within(_) => false,
        }
    }

    fn accepts_address(&self, address: IpAddr) -> bool {
        matches!(self, Self::In(networks) if networks.iter().any(|network| network.contains(&address)))
    }

    fn accepts_list(&self, found: &[Box<str>]) -> bool {
        match self {
            Self::Any(values) => found.iter().any(|value| values.contains(value)),
            Self::All(values) => values.as_slice().iter().all(|value| found.contains(value)),
            Self::Present => !found.is_empty(),
            Self::In(_) | Self::Within(_) => false,
        }
    }
}

/// The domain of the identity's e-mail address as a canonical host; `None` also when it is none.
fn email_domain(identity: &Identity) -> Option<Cow<'_, str>> {
    let (_, domain) = identity.email.as_deref()?.split_once('@')?;
    canonical_host(domain).ok()
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (quantifier, values) = match &self.test {
            Test::Present => {
                self.attribute.write(f, true)?;
                return f.write_str(" present");
            }
            Test::In(networks) => {
                f.write_str("address in ")?;
                let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
                return values::show_list(f, networks.iter().map(String::as_str));
            }
            Test::Within(window) => return write!(f, "time {window}"),
            Test::Any(values) => ("any of ", values),
            Test::All(values) => ("all of ", values),
        };
        if let [value] = values.as_slice() {
            self.attribute.write(f, false)?;
            return write!(f, " {}", values::Quoted(value));
        }
        f.write_str(quantifier)?;
        self.attribute.write(f, true)?;
        write!(f, " {values}")
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.conditions {
            [] => f.write_str("authenticated"),
            conditions => joined(f, conditions, " and "),
        }
    }
}

impl fmt::Display for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        joined(f, &self.allow, " or ")?;
        if self.reviews.is_some() {
            f.write_str(if self.allow.is_empty() { "" } else { " or " })?;
            f.write_str("reviewed by Kubernetes")?;
        }
        if !self.deny.is_empty() {
            f.write_str(", unless ")?;
            joined(f, &self.deny, " or ")?;
        }
        Ok(())
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public => f.write_str("public"),
            Self::Rules(rules) => rules.fmt(f),
        }
    }
}

fn joined<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T], separator: &str) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(separator)?;
        }
        item.fmt(f)?;
    }
    Ok(())
}

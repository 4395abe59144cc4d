//! Overview of what a configuration means, in one table.

use std::fmt::Write as _;

use auth::policy::rule::Policy;
use comfy_table::presets::UTF8_FULL;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table};
use config::{FollowedIssuerConfig, LoadedConfig, ProviderSettings, raw};
use credentials::config::KeySource;
use credentials::config::{EventDelivery, Transmitter};
use gateway::config::{AuthorizerConfig, QuestionForm};
use idp::{ClientConfig, GrantType};
use login::config::{LoginConfig, LoginKind, LoginProvider};

use crate::terminal::{BOLD, DIM};

/// Width, in columns, of output that is not a terminal.
const WIDTH: u16 = 110;

/// Formats the overview, styled with ANSI escapes. The caller removes them where they are not
/// wanted.
pub(super) fn print(loaded: &LoadedConfig) -> String {
    let mut out = String::new();
    for listener in &loaded.raw.listener {
        section(&mut out, "listener", &listener.name.0, &describe_listener(listener));
    }
    if let Some(admin) = loaded.settings.admin {
        section(&mut out, "admin", "", &admin.to_string());
    }
    for issuer in &loaded.config.authentication.issuers {
        let keys = match &issuer.keys {
            KeySource::Discovery => "keys by discovery".to_owned(),
            KeySource::Uri(uri) => format!("keys from {uri}"),
            KeySource::File(file) => format!("keys from {}", file.display()),
        };
        let text = format!(
            "{}, {keys}, audience {}{}",
            issuer.config.issuer(),
            issuer.config.audiences().join(" or "),
            describe_revocation(loaded, issuer.config.issuer())
        );
        section(&mut out, "issuer", issuer.config.name(), &text);
    }
    for authority in &loaded.raw.token_authority {
        section(&mut out, "asks", &authority.name.0, &describe_authority(authority));
    }
    if let Some(certificates) = &loaded.raw.client_certificates {
        section(&mut out, "issuer", &certificates.name.0, "TLS client certificates");
    }
    if let Some(kubernetes) = &loaded.raw.kubernetes {
        section(&mut out, "reviews", "", &format!("Kubernetes at {}", kubernetes.url));
    }
    for authorizer in &loaded.config.authorizers {
        section(&mut out, "asks", &authorizer.name, &describe_authorizer(loaded, authorizer));
    }
    if let Some(provider) = &loaded.provider {
        section(&mut out, "provider", "", &describe_provider(provider));
    }
    if let Some(login) = &loaded.config.login {
        section(&mut out, "login", "", &describe_login(loaded, login));
        for provider in &login.providers {
            section(&mut out, "login at", &provider.name, &describe_login_provider(provider));
        }
    }
    for transmitter in loaded.events.iter().flat_map(|events| &events.transmitters) {
        section(&mut out, "events", transmitter.issuer.config.name(), &describe_transmitter(transmitter));
    }
    for client in loaded.provider.iter().flat_map(|provider| &provider.config.clients) {
        section(&mut out, "client", &client.id, &describe_client(client));
    }
    if !loaded.raw.route.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", table(loaded));
    }
    out
}

/// How the revocations of an issuer arrive. Empty when the issuer is not followed.
fn describe_revocation(loaded: &LoadedConfig, issuer: &str) -> String {
    let brokers = &loaded.raw.revocation.brokers;
    let own = loaded.provider.as_ref().is_some_and(|provider| provider.config.issuer == issuer);
    let follow = loaded.revocation.followed_issuers.iter().find(|follow| &*follow.issuer == issuer);
    match (own, follow) {
        (true, _) => ", revocations apply at once".into(),
        (false, Some(FollowedIssuerConfig { url, .. })) if !brokers.is_empty() => {
            format!(", revocations arrive over {} and are queried at {url}", brokers.join(", "))
        }
        (false, Some(FollowedIssuerConfig { url, .. })) => format!(", revocations are queried at {url}"),
        (false, None) => String::new(),
    }
}

fn describe_authorizer(loaded: &LoadedConfig, authorizer: &AuthorizerConfig) -> String {
    let upstream = &loaded.config.upstreams[authorizer.upstream].name;
    let how = match &authorizer.question {
        QuestionForm::SameRequest { prefix } if prefix.is_empty() => "with the request itself".to_owned(),
        QuestionForm::SameRequest { prefix } => format!("with the request below {prefix}"),
        QuestionForm::XOriginal { path } => format!("at {path} with X-Original-URI"),
        QuestionForm::XForwarded { path } => format!("at {path} with X-Forwarded-Uri"),
    };
    format!("authorizes requests, at upstream {upstream}, {how}")
}

fn describe_provider(provider: &ProviderSettings) -> String {
    let tls = if provider.tls.is_some() { "TLS" } else { "plain text" };
    let database = match &provider.database.file {
        Some(file) => format!("SQLite {}", file.display()),
        None => "PostgreSQL".into(),
    };
    let secret = match provider.secret.text {
        Some(_) => "",
        None => ", its secret is created at the first start",
    };
    format!("{}, {}, {tls}, {database}{secret}", provider.config.issuer, provider.address)
}

/// Where users log in, and how long sessions last.
fn describe_login(loaded: &LoadedConfig, login: &LoginConfig) -> String {
    let origins: Vec<_> =
        login.origins.iter().map(|origin| format!("{}{}", origin.text, login.path)).collect();
    let kept = match loaded.sessions.as_ref().map(|database| &database.file) {
        None => "in cookies".to_owned(),
        Some(Some(file)) => format!("in SQLite {}", file.display()),
        Some(None) => "in PostgreSQL".to_owned(),
    };
    let raw = loaded.raw.login.as_ref();
    let times = raw.map_or_else(String::new, |raw| {
        format!(", for {} at most, {} unused, refreshed every {}", raw.lifetime, raw.idle, raw.refresh)
    });
    let routes = loaded.config.routes.iter().filter(|route| route.login).map(|route| &*route.name);
    let routes: Vec<_> = routes.collect();
    format!("at {}, sessions {kept}{times}, for {}", origins.join(" and "), routes.join(", "))
}

fn describe_login_provider(provider: &LoginProvider) -> String {
    let (kind, at) = match &provider.kind {
        LoginKind::OpenId { issuer, .. } => ("OpenID Connect", issuer.to_string()),
        LoginKind::OpenShift { api } => ("OpenShift", api.to_string()),
    };
    format!("{kind}, {at}, as client {}, scopes {}", provider.client_id, provider.scopes)
}

fn describe_transmitter(transmitter: &Transmitter) -> String {
    let how = match &transmitter.delivery {
        EventDelivery::Pushed { authority, path, .. } => format!("pushed to {authority}{path}"),
        EventDelivery::Polled { url, .. } => format!("polled from {url}"),
    };
    let of = transmitter.tokens_of.join(" and ");
    format!("security events of {}, {how}, about tokens of {of}", transmitter.issuer.config.issuer())
}

fn describe_client(client: &ClientConfig) -> String {
    let proof = match client {
        ClientConfig { public: true, .. } => "public",
        ClientConfig { keys: Some(_), .. } => "by keys",
        _ => "by secret",
    };
    let grants = client.grants.iter().map(|grant| match grant {
        GrantType::AuthorizationCode => "authorization_code",
        GrantType::RefreshToken => "refresh_token",
        GrantType::ClientCredentials => "client_credentials",
        GrantType::DeviceCode => "device_code",
        GrantType::Password => "password",
    });
    let mut text = format!("{proof}, {}", grants.collect::<Vec<_>>().join(" and "));
    for (what, list) in [("scopes", &client.scopes), ("for", &client.audiences)] {
        if !list.is_empty() {
            let _ = write!(text, ", {what} {}", list.join(" "));
        }
    }
    text
}

fn section(out: &mut String, kind: &str, name: &str, text: &str) {
    let _ = writeln!(
        out,
        "{DIM}{kind:<9}{DIM:#} {BOLD}{name}{BOLD:#}{}{text}",
        if name.is_empty() { "" } else { "  " }
    );
}

fn describe_listener(listener: &raw::Listener) -> String {
    let protocols = listener.protocols.iter().map(|protocol| match protocol {
        raw::Protocol::Http1 => "HTTP/1.1",
        raw::Protocol::Http2 => "HTTP/2",
    });
    let protocols: Vec<_> = protocols.collect();
    let tls = match &listener.tls {
        None => "plain text",
        Some(tls) => match tls.client_certificates {
            raw::ClientCertificateDemand::Off => "TLS",
            raw::ClientCertificateDemand::Optional => "TLS, client certificates optional",
            raw::ClientCertificateDemand::Required => "TLS, client certificates required",
        },
    };
    let proxy = if listener.proxy_protocol_from.is_empty() { "" } else { ", behind PROXY protocol" };
    let asked = match listener.authorization.as_ref().map(|authorization| authorization.http) {
        None => "",
        Some(None) => ", queried by Envoy over gRPC: forwards nothing",
        Some(Some(raw::Asking::Envoy)) => ", queried by Envoy: forwards nothing",
        Some(Some(raw::Asking::XOriginal)) => ", queried by nginx: forwards nothing",
        Some(Some(raw::Asking::XForwarded)) => ", queried by another proxy: forwards nothing",
    };
    format!("{}, {tls}, {}{proxy}{asked}", listener.address, protocols.join(" and "))
}

/// How an authority is queried, and about which tokens.
fn describe_authority(authority: &raw::TokenAuthority) -> String {
    let how = match authority.kind {
        raw::TokenAuthorityKind::Introspection => "introspection",
        raw::TokenAuthorityKind::TokenReview => "TokenReview",
        raw::TokenAuthorityKind::OpenshiftUser => "OpenShift's users/~",
    };
    let prefixes = authority.prefixes.iter().map(|prefix| format!("{prefix}…"));
    let issuers = authority.issuers.iter().map(|issuer| format!("JWTs of {issuer}"));
    let tokens: Vec<_> = prefixes.chain(issuers).collect();
    let tokens = if tokens.is_empty() {
        "tokens that no other authority claims".to_owned()
    } else {
        tokens.join(", ")
    };
    let audience = match (authority.kind, authority.audiences.as_slice()) {
        (raw::TokenAuthorityKind::OpenshiftUser, _) => String::new(),
        (_, []) => ", any audience".into(),
        (_, audiences) => format!(", audience {}", audiences.join(" or ")),
    };
    format!("{how} at {}: {tokens}{audience}", authority.url)
}

fn table(loaded: &LoadedConfig) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL).set_content_arrangement(ContentArrangement::Dynamic).enforce_styling();
    if !table.is_tty() {
        table.set_width(WIDTH);
    }
    let heading = |text| Cell::new(text).add_attribute(Attribute::Bold);
    table.set_header(["route", "requests", "who may", "upstream", "limits"].map(heading));
    for (raw, route) in loaded.raw.route.iter().zip(&loaded.config.routes) {
        let mut who = who_may(&route.policy);
        if route.login {
            who.push_str("\nbrowsers log in");
        }
        let asked = raw.authorizer.as_ref().map(|name| &name.0);
        let who = match (&route.policy, asked) {
            (Policy::Public, None) => Cell::new(who).fg(Color::Yellow),
            (Policy::Public, Some(name)) => Cell::new(format!("whom {name} permits")),
            (Policy::Rules(_), None) => Cell::new(who),
            (Policy::Rules(_), Some(name)) => Cell::new(format!("{who}\nif {name} permits it too")),
        };
        table.add_row([
            Cell::new(&raw.name.0).add_attribute(Attribute::Bold),
            Cell::new(requests(raw)),
            who,
            Cell::new(upstream(raw, loaded)),
            Cell::new(limits(raw)),
        ]);
    }
    table
}

/// Requests that a route matches.
fn requests(route: &raw::Route) -> String {
    let mut lines = Vec::new();
    if route.hosts.is_empty() {
        lines.push("any host".to_owned());
    }
    lines.extend(route.hosts.iter().cloned());
    let path = route.path.as_ref();
    let path = path.and_then(|path| match path {
        raw::Path { prefix: Some(prefix), .. } => Some(format!("{prefix} and below")),
        raw::Path { exact: Some(exact), .. } => Some(format!("{exact} exactly")),
        raw::Path { template, .. } => template.clone(),
    });
    lines.push(path.unwrap_or_else(|| "any path".into()));
    if !route.methods.is_empty() {
        lines.push(route.methods.iter().map(|method| method.0.as_str()).collect::<Vec<_>>().join(" "));
    }
    for (name, value) in &route.headers {
        lines.push(match value {
            raw::HeaderValue::Exact(_) => format!("header {name} of a given value"),
            raw::HeaderValue::Present(_) => format!("header {name}"),
        });
    }
    lines.join("\n")
}

/// Callers that a route permits, with one line for each rule.
fn who_may(policy: &Policy) -> String {
    let rules = match policy {
        Policy::Public => return "everyone, without a credential".into(),
        Policy::Rules(rules) => rules,
    };
    let allow = rules.allow().iter().enumerate();
    let allow = allow.map(|(index, rule)| format!("{}{rule}", if index == 0 { "" } else { "or " }));
    let or = if rules.allow().is_empty() { "" } else { "or " };
    let review = rules.review().map(|_| format!("{or}whom Kubernetes permits"));
    let deny = rules.deny().iter().map(|rule| format!("never {rule}"));
    allow.chain(review).chain(deny).collect::<Vec<_>>().join("\n")
}

fn upstream(route: &raw::Route, loaded: &LoadedConfig) -> String {
    let Some(name) = &route.upstream else { return "(forwarded by the querying proxy)".into() };
    let upstream = loaded.raw.upstream.iter().find(|upstream| upstream.name == *name);
    let mut lines = vec![name.0.clone()];
    lines.extend(upstream.into_iter().flat_map(|upstream| upstream.endpoints.iter().cloned()));
    if let Some(prefix) = &route.strip_prefix {
        lines.push(format!("without {prefix}"));
    }
    if let Some(replace) = &route.replace_prefix {
        lines.push(format!("{} for {}", replace.to, replace.from));
    }
    if route.forward_authorization {
        lines.push("sees Authorization".into());
    }
    lines.join("\n")
}

fn limits(route: &raw::Route) -> String {
    let upgrades = match route.upgrades.as_slice() {
        [] => "no upgrades".to_owned(),
        upgrades => upgrades.join(", "),
    };
    let mut lines = format!("body {}\ntime {}\n{upgrades}", route.body_size, route.request_timeout);
    if route.on_expiry == raw::OnExpiry::Keep {
        lines.push_str("\nkept on expiry");
    }
    lines
}

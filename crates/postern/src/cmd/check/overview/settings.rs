//! The settings of a configuration, each in one sentence.

use std::fmt::Write as _;

use config::{FollowedIssuerConfig, LoadedConfig, ProviderSettings, raw};
use credentials::config::KeySource;
use credentials::config::{EventDelivery, Transmitter};
use gateway::config::{AuthorizerConfig, QuestionForm};
use http_engine::tls::TrustAnchors;
use idp::mailer::MailConfig;
use idp::{ClientConfig, GrantType};
use login::config::{LoginConfig, LoginKind, LoginProvider};
use serde::Serialize;

/// One setting.
#[derive(Debug, Serialize)]
pub(super) struct Setting {
    /// What it is, mostly the name of its table.
    pub(super) kind: &'static str,
    /// Its name in the file; empty if there is only one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    /// What it means.
    pub(super) text: String,
}

/// Describes all settings but the routes.
pub(super) fn describe(loaded: &LoadedConfig) -> Vec<Setting> {
    let mut all = Vec::new();
    let mut add = |kind, name: &str, text: String| all.push(Setting { kind, name: name.to_owned(), text });
    for listener in &loaded.raw.listener {
        add("listener", &listener.name.0, describe_listener(listener));
    }
    if let Some(admin) = loaded.settings.admin {
        add("admin", "", admin.to_string());
    }
    if !loaded.outbound.to_string().is_empty() {
        add("outbound", "", loaded.outbound.to_string());
    }
    for (file, trusted) in &loaded.trusted {
        add("ca", &file.display().to_string(), describe_trust(trusted));
    }
    for issuer in &loaded.config.authentication.issuers {
        let keys = match &issuer.keys {
            KeySource::Discovery => "keys by discovery".to_owned(),
            KeySource::Uri(uri) => format!("keys from {uri}"),
            KeySource::File(file) => format!("keys from {}", file.display()),
        };
        let config = &issuer.config;
        let audience_claim = match config.audience_claim() {
            "aud" => String::new(),
            claim => format!(" in {claim}"),
        };
        let id_tokens = if config.accepts_id_tokens() { ", ID tokens too" } else { "" };
        let text = format!(
            "{}, {keys}, audience {}{audience_claim}{id_tokens}{}",
            config.issuer(),
            config.audiences().join(" or "),
            describe_revocation(loaded, config.issuer())
        );
        add("issuer", issuer.config.name(), text);
    }
    for authority in &loaded.raw.token_authority {
        add("authority", &authority.name.0, describe_authority(authority));
    }
    if let Some(certificates) = &loaded.raw.client_certificates {
        add("issuer", &certificates.name.0, "TLS client certificates".to_owned());
    }
    if let Some(basic) = &loaded.raw.basic_auth {
        add("issuer", &basic.name.0, format!("user names and passwords of {}", basic.file.display()));
    }
    if let Some(kubernetes) = &loaded.raw.kubernetes {
        add("kubernetes", "", format!("reviews access, at {}", kubernetes.url));
    }
    for authorizer in &*loaded.config.authorizers {
        add("authorizer", &authorizer.name, describe_authorizer(loaded, authorizer));
    }
    if let Some(provider) = &loaded.provider {
        add("provider", "", describe_provider(provider));
        if let Some(mail) = &provider.config.mail {
            add("mail", "", describe_mail(mail));
        }
    }
    for client in loaded.provider.iter().flat_map(|provider| &provider.config.clients) {
        add("client", &client.id, describe_client(client));
    }
    if let Some(login) = &loaded.config.login {
        add("login", "", describe_login(loaded, login));
        for provider in &login.providers {
            add("login", &provider.name, describe_login_provider(provider));
        }
    }
    for transmitter in loaded.events.iter().flat_map(|events| &events.transmitters) {
        add("events", transmitter.issuer.config.name(), describe_transmitter(transmitter));
    }
    for upstream in &loaded.raw.upstream {
        add("upstream", &upstream.name.0, describe_upstream(upstream));
    }
    all
}

/// Addresses of an upstream, with their weights.
pub(super) fn endpoints(upstream: &raw::Upstream) -> impl Iterator<Item = String> {
    upstream.endpoints.iter().map(raw::UpstreamEndpoint::parts).map(|(address, weight)| match weight {
        1 => address.to_owned(),
        weight => format!("{address} (weight {weight})"),
    })
}

/// Where an upstream is, and how it is reached.
fn describe_upstream(upstream: &raw::Upstream) -> String {
    let mut text = endpoints(upstream).collect::<Vec<_>>().join(", ");
    if upstream.protocol == raw::UpstreamProtocol::Http2 {
        text.push_str(", HTTP/2");
    }
    if let Some(tls) = &upstream.tls {
        if let Some(ca) = &tls.ca {
            let _ = write!(text, ", verified by {}", ca.display());
        }
        if let Some(name) = &tls.server_name {
            let _ = write!(text, ", as {name}");
        }
        if let Some(certificate) = &tls.certificate {
            let _ = write!(text, ", with the client certificate {}", certificate.display());
        }
    }
    if let Some(check) = &upstream.health_check {
        let _ = write!(text, ", checked at {} every {}", check.path, check.interval);
    }
    text
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

/// What a CA file contains.
fn describe_trust(trusted: &TrustAnchors) -> String {
    let count = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let mut text = count(trusted.count(), "certificate", "certificates");
    for pinned in trusted.pinned() {
        let issues = if pinned.issues { ", and certificates that it issues" } else { " only" };
        let _ =
            write!(text, "; self-signed, of the server {}: accepts exactly this one{issues}", pinned.names);
    }
    text
}

fn describe_authorizer(loaded: &LoadedConfig, authorizer: &AuthorizerConfig) -> String {
    let upstream = &loaded.config.routing.upstream(authorizer.upstream).name;
    let how = match &authorizer.question {
        QuestionForm::SameRequest { prefix } if prefix.is_empty() => "with the request itself".to_owned(),
        QuestionForm::SameRequest { prefix } => format!("with the request below {prefix}"),
        QuestionForm::XOriginal { path } => format!("at {path} with X-Original-URI"),
        QuestionForm::XForwarded { path } => format!("at {path} with X-Forwarded-Uri"),
        QuestionForm::Grpc => "over gRPC".to_owned(),
    };
    format!("authorizes requests, at upstream {upstream}, {how}")
}

fn describe_mail(mail: &MailConfig) -> String {
    let reset = if mail.self_service_reset { ", users may ask for reset links" } else { "" };
    format!("through {}, {}{reset}", mail.server.name(), mail.server.encryption())
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
    let routes = loaded.config.routing.routes().filter(|route| route.login).map(|route| &*route.name);
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
    for (label, list) in [("scopes", &client.scopes), ("for", &client.audiences)] {
        if !list.is_empty() {
            let _ = write!(text, ", {label} {}", list.join(" "));
        }
    }
    text
}

fn describe_listener(listener: &raw::Listener) -> String {
    let protocols = listener.protocols.iter().map(|protocol| match protocol {
        raw::Protocol::Http1 => "HTTP/1.1",
        raw::Protocol::Http2 => "HTTP/2",
    });
    let protocols: Vec<_> = protocols.collect();
    let tls = listener.tls.as_ref().map_or_else(|| "plain text".to_owned(), describe_listener_tls);
    let proxy = if listener.proxy_protocol_from.is_empty() { "" } else { ", behind PROXY protocol" };
    let queried = match listener.authorization.as_ref().map(|authorization| authorization.http) {
        None => "",
        Some(None) => ", queried by Envoy over gRPC: forwards nothing",
        Some(Some(raw::Asking::Envoy)) => ", queried by Envoy: forwards nothing",
        Some(Some(raw::Asking::XOriginal)) => ", queried by nginx: forwards nothing",
        Some(Some(raw::Asking::XForwarded)) => ", queried by another proxy: forwards nothing",
    };
    let trusted = if listener.trusted_proxies.is_some() { ", behind trusted proxies" } else { "" };
    let redirects = if listener.https_redirect { ", redirects to https" } else { "" };
    let protocols = protocols.join(" and ");
    format!("{}, {tls}, {protocols}{proxy}{trusted}{redirects}{queried}", listener.address)
}

fn describe_listener_tls(tls: &raw::ListenerTls) -> String {
    let modern = tls.profile == raw::TlsProfile::Modern || tls.min_version == Some(raw::TlsVersion::Tls13);
    let version = if modern { "TLS 1.3" } else { "TLS" };
    let certificates = match tls.certificates.len() {
        0 | 1 => String::new(),
        several => format!(" with {several} certificates"),
    };
    let lists = if tls.client_crl.is_empty() { "" } else { " with revocation lists" };
    let clients = match tls.client_certificates {
        raw::ClientCertificateDemand::Off => String::new(),
        raw::ClientCertificateDemand::Optional => format!(", client certificates optional{lists}"),
        raw::ClientCertificateDemand::Required => format!(", client certificates required{lists}"),
    };
    format!("{version}{certificates}{clients}")
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

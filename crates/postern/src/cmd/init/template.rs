//! Text of a first configuration, and what to do with it.

use std::fmt::Write as _;
use std::path::Path;

use super::answers::Answers;
use super::{Callers, ProviderKind};
use crate::shell;

/// The configuration of the service that the packages install.
const SERVICE_CONFIGURATION: &str = "/etc/postern/postern.toml";

/// What the provider needs beside URL and client, for logins and for tokens.
struct Particulars {
    /// Name in the configuration, by which rules know it.
    name: &'static str,
    title: &'static str,
    /// Lines of `[[login.provider]]`.
    login: &'static str,
    /// Lines of `[[issuer]]`.
    issuer: &'static str,
    /// Page of the documentation.
    page: &'static str,
}

fn particulars(provider: ProviderKind) -> Particulars {
    let offline = "# A refresh token renews the session without another sign-in.\n\
                   scopes = [\"openid\", \"profile\", \"email\", \"offline_access\"]\n";
    let (name, title, login, issuer, page) = match provider {
        ProviderKind::Keycloak => (
            "keycloak",
            "Keycloak",
            "",
            "# Roles of the realm count as groups.\nclaims = { groups = [\"groups\", \"realm_access.roles\"] }\n",
            "docs/guides/keycloak.md",
        ),
        ProviderKind::Entra => (
            "entra",
            "Microsoft Entra ID",
            offline,
            "# Application roles count as groups.\nclaims = { groups = [\"groups\", \"roles\"] }\n",
            "docs/providers/entra-id.md",
        ),
        ProviderKind::Okta => (
            "okta",
            "Okta",
            offline,
            "# Its access tokens do not say that they are access tokens.\ntoken_types = \"untyped\"\n\
             claims = { client = [\"cid\"], user = [\"sub\"] }\n",
            "docs/providers/okta.md",
        ),
        ProviderKind::Google => (
            "google",
            "Google",
            "# Both are needed for a refresh token.\n\
             parameters = { access_type = \"offline\", prompt = \"consent\" }\n",
            "# Its access tokens are opaque. Programs send ID tokens that were made for the audience.\n\
             id_tokens = true\n",
            "docs/providers/google.md",
        ),
        ProviderKind::Dex => (
            "dex",
            "Dex",
            "scopes = [\"openid\", \"profile\", \"email\", \"groups\", \"offline_access\"]\n",
            "# Its access tokens are like ID tokens.\nid_tokens = true\ntoken_types = \"untyped\"\n\
             claims = { user = [\"name\"] }\n",
            "docs/providers/dex.md",
        ),
        ProviderKind::Openshift => ("cluster", "OpenShift", "", "", "docs/guides/login-openshift.md"),
        ProviderKind::Kubernetes => ("cluster", "Kubernetes", "", "", "docs/providers/kubernetes.md"),
        ProviderKind::Own => (
            "own",
            "its own provider",
            "scopes = [\"openid\", \"profile\", \"email\", \"groups\"]\n",
            "",
            "docs/guides/provider.md",
        ),
    };
    Particulars { name, title, login, issuer, page }
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// The configuration.
pub(super) fn configuration(answers: &Answers) -> String {
    let about = particulars(answers.provider);
    let mut text = String::new();
    let who = match answers.callers {
        Callers::People => "people",
        Callers::Programs => "programs",
        Callers::Both => "people and programs",
    };
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "# Postern in front of {upstream}, for {who} of {title}.\n\
         # Made by `postern init`. All keys: docs/reference/configuration.md. This provider: {page}.\n\
         \n\
         # Probes and metrics, for you.\n\
         [admin]\n\
         address = {admin}\n\
         \n\
         [[listener]]\n\
         name = \"web\"\n\
         address = {address}\n",
        upstream = answers.upstream,
        title = about.title,
        page = about.page,
        admin = quoted(answers.admin_address),
        address = quoted(&answers.address),
    );
    if answers.url.starts_with("https://") {
        let _ = write!(
            text,
            "# Clients reach it at {}. TLS ends at a proxy in front; or let it end here:\n\
             # tls = {{ certificate = \"cert.pem\", key = \"key.pem\" }}\n",
            answers.url
        );
    }
    if answers.callers.has_people() {
        login(&mut text, answers, &about);
    }
    if answers.callers.has_programs() {
        tokens(&mut text, answers, &about);
    }
    if answers.provider == ProviderKind::Own {
        provider(&mut text, answers);
    }
    service(&mut text, answers);
    text
}

fn login(text: &mut String, answers: &Answers, about: &Particulars) {
    let _ = write!(
        text,
        "\n[login]\n\
         # Where browsers reach Postern. The provider sends them back to {url}/oauth2/callback.\n\
         origins = [{origin}]\n\
         # Seals the sessions. All processes of one gateway share this file; keep a copy.\n\
         keys_file = \"login.keys\"\n\
         \n\
         [[login.provider]]\n\
         name = {name}\n",
        url = answers.url,
        origin = quoted(&answers.url),
        name = quoted(about.name),
    );
    if answers.provider == ProviderKind::Openshift {
        let _ = write!(
            text,
            "kind = \"openshift\"\nurl = {}\nca = {}\n",
            quoted(&answers.issuer),
            quoted(&answers.ca)
        );
    } else {
        let _ = writeln!(text, "url = {}", quoted(&answers.issuer));
    }
    let (id, file) = (quoted(&answers.client_id), quoted(&answers.secret_file));
    let _ = write!(text, "client_id = {id}\nclient_secret_file = {file}\n{}", about.login);
}

fn tokens(text: &mut String, answers: &Answers, about: &Particulars) {
    let (name, issuer, audience) = (quoted(about.name), quoted(&answers.issuer), quoted(&answers.audience));
    let (ca, token) = (quoted(&answers.ca), quoted(&answers.token_file));
    let _ = match answers.provider {
        ProviderKind::Kubernetes => write!(
            text,
            "\n# Service accounts, with tokens that were made for this audience:\n\
             # kubectl create token ACCOUNT --audience NAME\n\
             [[token_authority]]\n\
             name = {name}\n\
             kind = \"token-review\"\n\
             url = {issuer}\n\
             ca = {ca}\n\
             token_file = {token}\n\
             # kubectl get --raw /.well-known/openid-configuration | jq .issuer\n\
             issuers = [\"https://kubernetes.default.svc.cluster.local\"]\n\
             audiences = [{audience}]\n"
        ),
        ProviderKind::Openshift => write!(
            text,
            "\n# Tokens of people (`oc whoami --show-token`).\n\
             [[token_authority]]\n\
             name = {name}\n\
             kind = \"openshift-user\"\n\
             url = {issuer}\n\
             ca = {ca}\n\
             prefixes = [\"sha256~\"]\n"
        ),
        _ => write!(
            text,
            "\n# Access tokens (JWTs) of this issuer. They must be meant for this audience.\n\
             [[issuer]]\n\
             name = {name}\n\
             issuer = {issuer}\n\
             audiences = [{audience}]\n\
             {more}",
            more = about.issuer
        ),
    };
    if answers.asks_for_reviews() {
        let _ = write!(
            text,
            "\n# Asks the API server what a caller may do.\n\
             [kubernetes]\n\
             url = {issuer}\n\
             ca = {ca}\n\
             token_file = {token}\n\
             token_authorities = [{name}]\n"
        );
    }
}

fn provider(text: &mut String, answers: &Answers) {
    // Services write to no folder of `/etc`: theirs is the one of the packages.
    let database_folder = if answers.is_for_service { "/var/lib/postern/" } else { "" };
    let _ = write!(
        text,
        "\n# The OpenID provider in this process. Its pages are at {issuer}.\n\
         [provider]\n\
         issuer = {quoted_issuer}\n\
         address = {address}\n\
         {proxy}database = {database}\n\
         audiences = [{audience}]\n\
         \n\
         [[provider.client]]\n\
         id = {id}\n\
         secret_files = [\"client.secret\"]\n",
        issuer = answers.issuer,
        quoted_issuer = quoted(&answers.issuer),
        address = quoted(&answers.provider_address),
        // Without it, wrong passwords of all clients would count for one.
        proxy = if answers.issuer.starts_with("https://") {
            "# The proxy on this machine, where TLS ends, adds its client to X-Forwarded-For.\n\
             trusted_proxies = [\"127.0.0.1/32\"]\n"
        } else {
            ""
        },
        database = quoted(&format!("sqlite://{database_folder}provider.db?mode=rwc")),
        audience = quoted(&answers.audience),
        id = quoted(&answers.client_id),
    );
    let grants = match answers.callers {
        Callers::People => "\"authorization_code\", \"refresh_token\"",
        Callers::Programs => "\"client_credentials\"",
        Callers::Both => "\"authorization_code\", \"refresh_token\", \"client_credentials\"",
    };
    let _ = writeln!(text, "grants = [{grants}]");
    if answers.callers.has_people() {
        let redirect = quoted(&format!("{}/oauth2/callback", answers.url));
        let _ = write!(
            text,
            "redirect_uris = [{redirect}]\n\
             scopes = [\"openid\", \"profile\", \"email\", \"groups\", \"offline_access\"]\n\
             # The gateway reads names and groups in the ID token.\n\
             claims_in_id_token = true\n\
             # It is your own application.\n\
             asks_consent = false\n"
        );
    }
    if answers.callers.has_programs() {
        let _ = writeln!(text, "audiences = [{}]", quoted(&answers.audience));
    }
}

fn service(text: &mut String, answers: &Answers) {
    let _ = write!(
        text,
        "\n[[upstream]]\nname = \"app\"\nendpoints = [{upstream}]\n\n[[route]]\nname = \"app\"\nupstream = \"app\"\n",
        upstream = quoted(&answers.upstream)
    );
    if answers.callers.has_people() {
        text.push_str("# Browsers without a session are sent to sign in.\nlogin = true\n");
    }
    let _ = match &answers.group {
        Some(group) => writeln!(text, "policy = {{ allow = [{{ groups = [{}] }}] }}", quoted(group)),
        None if answers.asks_for_reviews() => write!(
            text,
            "# Whoever may `get` services/proxy of this service in the cluster.\n\
             access_review = {{ resource = \"services\", subresource = \"proxy\", verb = \"get\", \
             namespace = \"default\", name = \"app\" }}\n"
        ),
        None => write!(
            text,
            "# Everybody who is known. For a group: policy = {{ allow = [{{ groups = [\"staff\"] }}] }}\n\
             policy = {{ allow = [{{ authenticated = true }}] }}\n"
        ),
    };
}

/// What to do next, with `program` as the command that runs this program.
pub(super) fn next_steps(answers: &Answers, path: &Path, program: &str) -> String {
    let mut text = String::from("\nnext:\n");
    if answers.callers.has_people()
        && !matches!(answers.provider, ProviderKind::Own | ProviderKind::Openshift)
    {
        let _ =
            writeln!(text, "  at the provider, register the redirect URI {}/oauth2/callback", answers.url);
    }
    // Below /etc it is for the service of the packages. That may run already, with the configuration
    // that it came with, and the database belongs to its user.
    let (program, file) = if answers.is_for_service {
        let (service, folder) = (Path::new(SERVICE_CONFIGURATION), path.parent().unwrap_or(Path::new(".")));
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let files = folder.display();
        let _ = if service.parent() == Some(&folder) {
            writeln!(text, "  chgrp postern {files}/* && chmod g+r {files}/*")
        } else {
            writeln!(text, "  install -g postern -m 0640 {files}/* /etc/postern")
        };
        let _ = writeln!(text, "  systemctl restart postern");
        ("runuser -u postern -- postern", shell::quote(SERVICE_CONFIGURATION))
    } else {
        let file = shell::quote(&path.display().to_string());
        let _ = writeln!(text, "  {program} serve {file}");
        (program, file)
    };
    if answers.provider == ProviderKind::Own && answers.callers.has_people() {
        let _ = writeln!(text, "  {program} admin {file} user add YOU --generate-password");
    }
    let _ = match answers.callers {
        Callers::Programs => writeln!(text, "  curl -H \"Authorization: Bearer TOKEN\" {}/", answers.url),
        _ => writeln!(text, "  open {}/ in a browser", answers.url),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(is_for_service: bool) -> Answers {
        let text = String::new;
        Answers {
            provider: ProviderKind::Own,
            callers: Callers::People,
            upstream: "http://127.0.0.1:3000".to_owned(),
            url: "http://localhost:8080".to_owned(),
            address: "127.0.0.1:8080".to_owned(),
            admin_address: "127.0.0.1:9901",
            issuer: "http://127.0.0.1:9000".to_owned(),
            provider_address: "127.0.0.1:9000".to_owned(),
            is_for_service,
            client_id: "app".to_owned(),
            secret_file: "client.secret".to_owned(),
            audience: "app".to_owned(),
            group: None,
            ca: text(),
            token_file: text(),
        }
    }

    #[test]
    fn services_keep_no_database_below_etc() {
        let database = |answers: &Answers| {
            let text = configuration(answers);
            text.lines().find(|line| line.starts_with("database = ")).unwrap_or_default().to_owned()
        };
        assert_eq!(database(&answers(true)), "database = \"sqlite:///var/lib/postern/provider.db?mode=rwc\"");
        assert_eq!(database(&answers(false)), "database = \"sqlite://provider.db?mode=rwc\"");
    }

    #[test]
    fn the_service_of_the_packages_gets_the_files_and_is_restarted() {
        let steps =
            |is_for_service, path: &str| next_steps(&answers(is_for_service), Path::new(path), "bin/postern");
        let elsewhere = steps(true, "/etc/postern/first/postern.toml");
        let expected = "\nnext:\n\
                        \x20 install -g postern -m 0640 /etc/postern/first/* /etc/postern\n\
                        \x20 systemctl restart postern\n\
                        \x20 runuser -u postern -- postern admin /etc/postern/postern.toml user add YOU --generate-password\n\
                        \x20 open http://localhost:8080/ in a browser\n";
        assert_eq!(elsewhere, expected);
        let in_place = steps(true, "/etc/postern/postern.toml");
        assert!(
            in_place.contains("\n  chgrp postern /etc/postern/* && chmod g+r /etc/postern/*\n"),
            "{in_place}"
        );
        let by_hand = steps(false, "first/postern.toml");
        assert!(by_hand.contains("\n  bin/postern serve first/postern.toml\n"), "{by_hand}");
        assert!(!by_hand.contains("systemctl"), "{by_hand}");
    }
}

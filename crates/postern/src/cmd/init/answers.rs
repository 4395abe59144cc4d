//! Answers: what the flags say, and what is asked at the terminal or taken by default.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use clap::ValueEnum as _;
use http_engine::url::Url;

use super::{Arguments, Callers, ProviderKind};
use crate::exit::Failure;

/// Folder of the files that a pod has for its account.
const POD_FILES: &str = "/var/run/secrets/kubernetes.io/";

/// Where Postern will run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A proxy in front of it may be on the same machine.
    Machine,
    /// Clients and the kubelet come from outside.
    Pod,
}

/// Everything that the configuration is made of.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) provider: ProviderKind,
    pub(super) callers: Callers,
    pub(super) upstream: String,
    /// Where clients reach Postern, without a path.
    pub(super) url: String,
    /// Address to listen on.
    pub(super) address: String,
    /// Address of the admin listener.
    pub(super) admin_address: &'static str,
    pub(super) issuer: String,
    /// Address of the provider in this process.
    pub(super) provider_address: String,
    /// Whether it is for the service of the packages: services have their configuration below `/etc`.
    pub(super) is_for_service: bool,
    pub(super) client_id: String,
    /// File with the client's secret, as the configuration names it.
    pub(super) secret_file: String,
    pub(super) audience: String,
    pub(super) group: Option<String>,
    pub(super) ca: String,
    pub(super) token_file: String,
}

impl ProviderKind {
    /// Its URL, or an example for the question.
    fn issuer(self) -> Result<&'static str, &'static str> {
        match self {
            Self::Keycloak => Err("https://sso.example/realms/NAME"),
            Self::Entra => Err("https://login.microsoftonline.com/TENANT/v2.0"),
            Self::Okta => Err("https://COMPANY.okta.com/oauth2/default"),
            Self::Dex => Err("https://dex.example"),
            Self::Google => Ok("https://accounts.google.com"),
            Self::Openshift | Self::Kubernetes => Ok("https://kubernetes.default.svc"),
            // Another host than the gateway's: browsers send the cookies of a host to all its ports,
            // and the service must not get the session at the provider.
            Self::Own => Ok("http://127.0.0.1:9000"),
        }
    }
}

impl Answers {
    /// Whether the cluster decides what a caller may do.
    pub(super) fn asks_for_reviews(&self) -> bool {
        self.provider == ProviderKind::Kubernetes && self.group.is_none()
    }

    /// # Errors
    /// A usage error that names the flag: an answer is missing and nobody can be asked, or it is not
    /// of the right form.
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Failure> {
        let provider = match arguments.provider {
            Some(provider) => provider,
            None => chosen("--for", "who identifies the callers")?,
        };
        let callers = match arguments.callers {
            Some(callers) => callers,
            None if provider == ProviderKind::Kubernetes => Callers::Programs,
            None => Callers::People,
        };
        if provider == ProviderKind::Kubernetes && callers.has_people() {
            let why = "people do not sign in at the API server: use --for openshift, or the provider of your cluster";
            return Err(Failure::usage(why));
        }
        let upstream = asked(arguments.upstream.as_deref(), "--upstream", "URL of the service to protect")?;
        let upstream = origin(&upstream, "--upstream")?.0;
        let url = arguments.url.as_deref().unwrap_or("http://localhost:8080");
        let place = origin(url, "--url")?;
        let of_cluster = matches!(provider, ProviderKind::Kubernetes | ProviderKind::Openshift);
        let runs_in = if of_cluster && arguments.token_file.starts_with(POD_FILES) {
            Place::Pod
        } else {
            Place::Machine
        };
        let address = listen_address(&place, 8080, runs_in);
        let (url, _, is_local) = place;
        if callers.has_people() && url.starts_with("http://") && !is_local {
            return Err(Failure::usage(format!(
                "--url {url}: browsers keep sessions only for https, and for localhost: use https"
            )));
        }
        let issuer = match provider.issuer() {
            // Browsers of other machines do not reach it there.
            Ok(_) if provider == ProviderKind::Own && !is_local => {
                let question = "URL under which callers reach the provider, on another host than --url, such as \
                                https://login.example";
                asked(arguments.issuer.as_deref(), "--issuer", question)?
            }
            Ok(known) => arguments.issuer.clone().unwrap_or_else(|| known.to_owned()),
            Err(example) => {
                let question = format!("URL of the provider, such as {example}");
                asked(arguments.issuer.as_deref(), "--issuer", &question)?
            }
        };
        Url::parse(&issuer).map_err(|error| Failure::usage(format!("--issuer {issuer}: {error}")))?;
        let provider_address = match provider {
            ProviderKind::Own => listen_address(&origin(&issuer, "--issuer")?, 9000, Place::Machine),
            _ => String::new(),
        };
        let (client_id, secret_file) = client(arguments, provider, callers)?;
        let audience = arguments.audience.clone().unwrap_or_else(|| client_id.clone());
        Ok(Self {
            provider,
            callers,
            upstream,
            address,
            admin_address: match runs_in {
                Place::Machine => "127.0.0.1:9901",
                Place::Pod => "0.0.0.0:9911",
            },
            url,
            issuer,
            provider_address,
            is_for_service: is_below_etc(&arguments.out),
            client_id,
            secret_file,
            audience,
            group: arguments.group.clone(),
            ca: arguments.ca.clone(),
            token_file: arguments.token_file.clone(),
        })
    }
}

/// The client at the provider, and the file with its secret.
fn client(
    arguments: &Arguments,
    provider: ProviderKind,
    callers: Callers,
) -> Result<(String, String), Failure> {
    if provider == ProviderKind::Own {
        return Ok((arguments.client_id.clone().unwrap_or_else(|| "app".into()), "client.secret".into()));
    }
    if !callers.has_people() {
        let name = arguments.client_id.clone().unwrap_or_else(|| "app".into());
        return Ok((name, String::new()));
    }
    let question = match provider {
        ProviderKind::Openshift => "the service account of Postern: system:serviceaccount:NAMESPACE:NAME",
        _ => "id of the client that is registered at the provider",
    };
    let id = asked(arguments.client_id.as_deref(), "--client-id", question)?;
    if provider == ProviderKind::Openshift {
        return Ok((id, arguments.token_file.clone()));
    }
    let given = arguments.client_secret_file.as_ref().map(|path| path.display().to_string());
    let file = asked(given.as_deref(), "--client-secret-file", "file with the secret of that client")?;
    let path = Path::new(&file);
    if !path.is_file() {
        return Err(Failure::usage(format!(
            "--client-secret-file {file}: there is no such file; write the secret that the provider shows into it"
        )));
    }
    // The configuration may be in another folder.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok((id, path.display().to_string()))
}

/// Scheme and authority of a URL, its port, and whether it is of this machine.
fn origin(text: &str, flag: &str) -> Result<(String, u16, bool), Failure> {
    let url = Url::parse(text).map_err(|error| Failure::usage(format!("{flag} {text}: {error}")))?;
    let written = url.to_string();
    let (scheme, rest) = written.split_once("://").unwrap_or(("http", &written));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !path.is_empty() {
        return Err(Failure::usage(format!("{flag} {text}: give it without a path")));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap_or(0)),
        _ => (authority, if scheme == "https" { 443 } else { 80 }),
    };
    let is_local = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    Ok((format!("{scheme}://{authority}"), port, is_local))
}

/// Where to listen for an origin: at its port, or at another one behind the proxy that ends TLS.
fn listen_address(
    (url, port, is_local): &(String, u16, bool),
    behind_a_proxy: u16,
    runs_in: Place,
) -> String {
    match (runs_in, url.starts_with("http://"), is_local) {
        (Place::Pod, ..) => format!("0.0.0.0:{behind_a_proxy}"),
        (Place::Machine, true, true) => format!("127.0.0.1:{port}"),
        (Place::Machine, true, false) => format!("0.0.0.0:{port}"),
        (Place::Machine, false, _) => format!("127.0.0.1:{behind_a_proxy}"),
    }
}

fn is_below_etc(folder: &Path) -> bool {
    std::path::absolute(folder).is_ok_and(|folder| folder.starts_with("/etc"))
}

/// The value of a flag, or the answer to its question. An empty answer repeats the question.
fn asked(given: Option<&str>, flag: &str, question: &str) -> Result<String, Failure> {
    if let Some(given) = given.map(str::trim) {
        return match given {
            "" => Err(Failure::usage(format!("{flag} is empty: give the {question}"))),
            given => Ok(given.to_owned()),
        };
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!("give {flag}: {question}")));
    }
    loop {
        anstream::eprint!("{question}: ");
        let failed = |error: io::Error| Failure::new(format!("cannot read the answer: {error}"));
        io::stderr().flush().map_err(failed)?;
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line).map_err(failed)? == 0 {
            // The terminal is still in the line of the question.
            anstream::eprintln!();
            return Err(Failure::usage(format!("give {flag}: {question}")));
        }
        let answer = line.trim();
        if !answer.is_empty() {
            return Ok(answer.to_owned());
        }
    }
}

fn chosen(flag: &str, question: &str) -> Result<ProviderKind, Failure> {
    let names: Vec<_> = ProviderKind::value_variants()
        .iter()
        .filter_map(|kind| Some(kind.to_possible_value()?.get_name().to_owned()))
        .collect();
    let answer = asked(None, flag, &format!("{question} ({})", names.join(", ")))?;
    ProviderKind::from_str(&answer, true)
        .map_err(|_| Failure::usage(format!("{flag} {answer}: it is one of {}", names.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_url_without_a_path() {
        assert_eq!(
            origin("https://app.example", "--url").unwrap(),
            ("https://app.example".into(), 443, false)
        );
        assert_eq!(
            origin("http://localhost:8080/", "--url").unwrap(),
            ("http://localhost:8080".into(), 8080, true)
        );
        let why = origin("https://app.example/a", "--url").unwrap_err().to_string();
        assert!(why.contains("--url") && why.contains("without a path"), "{why}");
        assert!(
            origin("app.example", "--upstream").unwrap_err().to_string().contains("--upstream app.example")
        );
    }

    #[test]
    fn services_have_their_configuration_below_etc() {
        for (folder, expected) in [
            ("/etc/postern", true),
            ("/etc/postern/own", true),
            ("/etcetera", false),
            ("/srv/etc", false),
            ("own", false),
        ] {
            assert_eq!(is_below_etc(Path::new(folder)), expected, "{folder}");
        }
    }
}

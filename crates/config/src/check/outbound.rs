//! Checks `[outbound]`: the proxies for the requests of the process itself, from the file or from
//! the environment.

use std::fmt;

use http_engine::outbound_proxy::{NoProxy, NoProxyEntry, OutboundProxies, Proxy};
use http_engine::tls::Protocols;

use super::super::fault::KeyPath;
use super::super::raw;
use super::Context;
use super::tls::{Client, KeyNames};

/// The proxies for the requests of the process itself, and where they are written.
#[derive(Debug, Clone, Default)]
pub struct OutboundSettings {
    /// Which proxy is used for which server.
    pub proxies: OutboundProxies,
    /// Where the proxy for `http` URLs is written.
    http_source: ProxySource,
    /// Where the proxy for `https` URLs is written.
    https_source: ProxySource,
}

/// Where a proxy is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ProxySource {
    #[default]
    File,
    Environment(&'static str),
}

/// Which proxies are used, in words. Empty: none.
impl fmt::Display for OutboundSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (http, https) = self.proxies.by_scheme();
        let one = |proxy: &Proxy, source: ProxySource| match source {
            ProxySource::File => proxy.to_string(),
            ProxySource::Environment(name) => format!("{proxy} ({name})"),
        };
        match (http, https) {
            (None, None) => return Ok(()),
            (Some(http), Some(https)) if http == https && self.http_source == self.https_source => {
                write!(f, "own requests through the proxy {}", one(https, self.https_source))?;
            }
            (http, https) => {
                let https = https.map(|proxy| format!("to https URLs {}", one(proxy, self.https_source)));
                let http = http.map(|proxy| format!("to http URLs {}", one(proxy, self.http_source)));
                let both = https.into_iter().chain(http).collect::<Vec<_>>().join(", ");
                write!(f, "own requests through proxies: {both}")?;
            }
        }
        match self.proxies.exceptions().map(ToString::to_string) {
            Some(list) if !list.is_empty() => write!(f, ", but directly to {list}"),
            _ => Ok(()),
        }
    }
}

/// Reads the proxies. After a fault there are none, and the configuration is refused.
pub(super) fn check(raw: &raw::Outbound, context: &mut Context<'_>) -> OutboundSettings {
    let path = KeyPath::top_level("outbound");
    match (raw.proxy.as_deref(), &raw.proxy_file) {
        (Some(_), Some(_)) => {
            let message = "both `proxy` and `proxy_file` are set";
            context.faults.add(&path.key("proxy_file"), message, "keep one");
            OutboundSettings::default()
        }
        (None | Some("environment"), None) => {
            refuse_exceptions(raw, &path, "the proxies are those of the environment", context);
            environment(raw, &path, context)
        }
        (Some("none"), None) => {
            refuse_exceptions(raw, &path, "there is no proxy", context);
            if raw.ca.is_some() {
                context.faults.add(&path.key("ca"), "there is no proxy", "remove `ca`");
            }
            OutboundSettings::default()
        }
        (Some(url), None) => from_file(url, raw, &path, &path.key("proxy"), context),
        (None, Some(file)) => {
            let at = path.key("proxy_file");
            let Some(text) = context.read(file, &at) else { return OutboundSettings::default() };
            from_file(&String::from_utf8_lossy(&text), raw, &path, &at, context)
        }
    }
}

fn refuse_exceptions(raw: &raw::Outbound, path: &KeyPath, why: &str, context: &mut Context<'_>) {
    if !raw.no_proxy.is_empty() {
        let hint = "write the proxy's URL into `proxy`, or remove `no_proxy`";
        context.faults.add(&path.key("no_proxy"), why, hint);
    }
}

/// The proxy of the file. Its URL is in the key `at`, or in the file that this key names.
fn from_file(
    url: &str,
    raw: &raw::Outbound,
    path: &KeyPath,
    at: &KeyPath,
    context: &mut Context<'_>,
) -> OutboundSettings {
    let mut exceptions = Vec::new();
    for (index, text) in raw.no_proxy.iter().enumerate() {
        match NoProxyEntry::parse(text) {
            Some(entry) => exceptions.push(entry),
            None => {
                let hint =
                    "write \"example.com\", \".example.com\", an address or a network such as \"10.0.0.0/8\"";
                let message = format!("{text:?} names no server");
                context.faults.add(&path.key("no_proxy").index(index), message, hint);
            }
        }
    }
    let proxy = match Proxy::parse(url) {
        Ok(proxy) if proxy.has_credentials() && raw.proxy_file.is_none() => {
            let message = "the URL has a user name or password, but this file is not secret";
            let hint = "write the URL into a separate file, and name that with `proxy_file`";
            context.faults.add(at, message, hint);
            return OutboundSettings::default();
        }
        Ok(proxy) => proxy,
        Err(fault) => {
            let hint = "such as \"http://proxy.example:3128\"; \"none\" for no proxy";
            context.faults.add(at, format!("this is no proxy: {fault}"), hint);
            return OutboundSettings::default();
        }
    };
    if raw.ca.is_some() && !proxy.is_https() {
        let message = "the proxy is not used over TLS";
        context.faults.add(&path.key("ca"), message, "remove `ca`, or write https://");
    }
    let Some(proxy) = with_tls(proxy, raw, path, context) else { return OutboundSettings::default() };
    let proxies =
        OutboundProxies::new(Some(proxy.clone()), Some(proxy), exceptions.into_iter().collect::<NoProxy>());
    OutboundSettings { proxies, ..OutboundSettings::default() }
}

/// The proxies of the environment.
fn environment(raw: &raw::Outbound, path: &KeyPath, context: &mut Context<'_>) -> OutboundSettings {
    let (encrypted, https) = variable(["HTTPS_PROXY", "https_proxy"], raw, path, context);
    let (plain, http) = variable(["HTTP_PROXY", "http_proxy"], raw, path, context);
    let exceptions = first_set(["NO_PROXY", "no_proxy"], context).map_or_else(String::new, |(_, list)| list);
    let proxies = OutboundProxies::new(http, https, NoProxy::parse(&exceptions));
    OutboundSettings { proxies, http_source: plain, https_source: encrypted }
}

/// The first of the variables that is set and not empty.
fn first_set(names: [&'static str; 2], context: &Context<'_>) -> Option<(&'static str, String)> {
    let set = |name| context.files.variable(name).filter(|value| !value.is_empty());
    names.into_iter().find_map(|name| Some((name, set(name)?)))
}

/// The proxy in a variable of the environment.
fn variable(
    names: [&'static str; 2],
    raw: &raw::Outbound,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> (ProxySource, Option<Proxy>) {
    let Some((name, value)) = first_set(names, context) else { return (ProxySource::File, None) };
    let proxy = match Proxy::parse(&value) {
        Ok(proxy) => with_tls(proxy, raw, path, context),
        Err(fault) => {
            let message = format!("the environment variable {name} is no proxy: {fault}");
            let hint = "correct or unset it, or write `proxy = \"none\"` into [outbound]";
            context.faults.add(path, message, hint);
            None
        }
    };
    (ProxySource::Environment(name), proxy)
}

/// Adds TLS to an `https` proxy. `None` when a fault was noted.
fn with_tls(proxy: Proxy, raw: &raw::Outbound, path: &KeyPath, context: &mut Context<'_>) -> Option<Proxy> {
    if !proxy.is_https() {
        return Some(proxy);
    }
    let protocols = Protocols { http1: true, http2: false };
    let client = Client { ca: raw.ca.as_deref(), identity: None, protocols, path, keys: KeyNames::DEFAULT };
    let (tls, version) = context.tls_client(&client)?;
    Some(proxy.with_tls(tls, version))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;
    use std::path::Path;

    use auth::time::Timestamp;
    use http_engine::tls::{TlsError, TlsWarning, TrustAnchors};

    use super::super::super::files::{Access, Files, NoFiles, Stamp};
    use super::*;

    /// Variables of the environment, and no files.
    struct Environment(BTreeMap<&'static str, &'static str>);

    impl Files for Environment {
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            NoFiles.read(path)
        }
        fn stamp(&self, path: &Path) -> Stamp {
            NoFiles.stamp(path)
        }
        fn access(&self, path: &Path) -> io::Result<Access> {
            NoFiles.access(path)
        }
        fn variable(&self, name: &str) -> Option<String> {
            self.0.get(name).map(|value| (*value).to_owned())
        }
        fn system_roots(&self) -> Result<(TrustAnchors, Vec<TlsWarning>), TlsError> {
            NoFiles.system_roots()
        }
    }

    /// What the settings say in words, and the faults.
    fn shown(raw: &raw::Outbound, variables: &[(&'static str, &'static str)]) -> (String, String) {
        let files = Environment(variables.iter().copied().collect());
        let mut context = Context::new(&files, Path::new("/etc"), Timestamp::from_secs(1_800_000_000));
        let settings = check(raw, &mut context);
        let report = context.faults.into_report("postern.toml", "", |_, _| 0..0);
        (settings.to_string(), report.lines().collect::<Vec<_>>().join("\n"))
    }

    fn of_environment(variables: &[(&'static str, &'static str)]) -> String {
        let (settings, faults) = shown(&raw::Outbound::default(), variables);
        assert_eq!(faults, "");
        settings
    }

    #[test]
    fn variables_count_in_the_order_that_go_has() {
        assert_eq!(of_environment(&[]), "");
        assert_eq!(
            of_environment(&[("HTTPS_PROXY", "upper:1"), ("https_proxy", "lower:1")]),
            "own requests through proxies: to https URLs http://upper:1 (HTTPS_PROXY)"
        );
        assert_eq!(
            of_environment(&[("HTTPS_PROXY", ""), ("https_proxy", "lower:1"), ("no_proxy", "a.example")]),
            "own requests through proxies: to https URLs http://lower:1 (https_proxy), but directly to a.example"
        );
        assert_eq!(
            of_environment(&[("HTTP_PROXY", "a:1"), ("HTTPS_PROXY", "b:2"), ("NO_PROXY", "x, :1, *.y")]),
            "own requests through proxies: to https URLs http://b:2 (HTTPS_PROXY), to http URLs http://a:1 \
             (HTTP_PROXY), but directly to x, .y"
        );
        // Without a proxy, exceptions have nothing to except from.
        assert_eq!(of_environment(&[("NO_PROXY", "*")]), "");
        assert_eq!(of_environment(&[("ALL_PROXY", "http://a:1")]), "", "Go does not read it");
    }

    #[test]
    fn the_file_wins_over_the_environment_and_can_turn_it_off() {
        let variables = [("HTTPS_PROXY", "http://env:1"), ("NO_PROXY", "*")];
        let proxy = |text: &str| raw::Outbound { proxy: Some(text.to_owned()), ..raw::Outbound::default() };
        let written = raw::Outbound { no_proxy: vec!["b.example".to_owned()], ..proxy("http://file:2") };
        assert_eq!(
            shown(&written, &variables).0,
            "own requests through the proxy http://file:2, but directly to b.example"
        );
        assert_eq!(shown(&proxy("none"), &variables), (String::new(), String::new()));
        assert!(shown(&proxy("environment"), &variables).0.contains("http://env:1"));
    }

    #[test]
    fn a_variable_that_is_no_proxy_is_a_fault_that_does_not_repeat_it() {
        for (value, why) in [
            ("socks5://me:hunter2@proxy", "SOCKS proxies are not supported"),
            ("ftp://me:hunter2@proxy", "neither http nor https"),
            ("http://me:hunter2@", "not the URL of a proxy"),
        ] {
            let (settings, faults) = shown(&raw::Outbound::default(), &[("https_proxy", value)]);
            assert!(settings.is_empty() && faults.contains("environment variable https_proxy"), "{faults}");
            assert!(faults.contains(why) && faults.contains("proxy = \"none\""), "{faults}");
            assert!(!faults.contains("hunter2"), "{faults}");
            let none = raw::Outbound { proxy: Some("none".to_owned()), ..raw::Outbound::default() };
            assert_eq!(shown(&none, &[("https_proxy", value)]).1, "", "the remedy works");
        }
    }

    #[test]
    fn credentials_of_the_environment_are_used_and_not_shown() {
        let files = Environment([("HTTPS_PROXY", "http://me:hunter2@proxy:1")].into());
        let mut context = Context::new(&files, Path::new("/etc"), Timestamp::from_secs(1_800_000_000));
        let settings = check(&raw::Outbound::default(), &mut context);
        let target = "https://target.example/".parse().unwrap();
        assert!(settings.proxies.for_uri(&target).unwrap().has_credentials());
        assert!(!format!("{settings} {settings:?}").contains("hunter2"));
    }
}

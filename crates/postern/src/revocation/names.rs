//! Names of processes and issuers in the protocol and for operators.

use coherence::PeerName;
use http_engine::config::ListenAddress;

/// Length limit, in bytes, of a service name and of an address in the name of a process. Longer
/// ones are cut.
const MAX_NAME_PART: usize = 20;

/// Name of this process for operators: its kind, `telemetry.service`, the address of its first
/// listener, its host name (on Kubernetes the name of the pod) and its process ID. For example
/// `gateway edge :8443 web-7f/12`.
pub fn called(kind: &str, service: &str, address: Option<&ListenAddress>) -> PeerName {
    let address = match address {
        Some(ListenAddress::Ip(address)) if address.port() == 0 => String::new(),
        Some(ListenAddress::Ip(address)) if address.ip().is_unspecified() => format!(":{}", address.port()),
        Some(ListenAddress::Ip(address)) => address.to_string(),
        Some(ListenAddress::Unix(path)) => {
            path.file_name().unwrap_or_default().to_string_lossy().into_owned()
        }
        None => String::new(),
    };
    let cut = |text: &str, most: usize| text[..text.floor_char_boundary(most.min(text.len()))].to_owned();
    let parts = [kind.to_owned(), cut(service, MAX_NAME_PART), cut(&address, MAX_NAME_PART)];
    let before: String = parts.iter().filter(|part| !part.is_empty()).flat_map(|part| [part, " "]).collect();
    let machine = rustix::system::uname();
    let number = format!("/{}", std::process::id());
    // Keep the process ID whole, because it distinguishes processes of one machine.
    let rest =
        cut(&format!("{before}{}", machine.nodename().to_string_lossy()), PeerName::MAX - number.len());
    PeerName::new(&format!("{rest}{number}")).expect("a name of one to 64 bytes")
}

/// Name of an issuer in the protocol: its URL without the scheme, cut to the longest permitted
/// name. Two issuers with the same name do not accept each other's messages.
pub(super) fn issuer_name(issuer: &str) -> PeerName {
    let rest = issuer.split_once("://").map_or(issuer, |(_, rest)| rest);
    let end = rest.floor_char_boundary(PeerName::MAX.min(rest.len()));
    // The fallback is for a URL that consists of a scheme only.
    PeerName::new(&rest[..end]).or_else(|| PeerName::new("issuer")).expect("a name of one to 64 bytes")
}

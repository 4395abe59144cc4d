//! Addresses on a page: targets of links and of forms.
//!
//! Owns: [`Href`] and [`FormTarget`]. Does not own: whether an address is registered; both are
//! created from registered ones.

/// Longest address in bytes.
const MAX_ADDRESS: usize = 2048;

/// Schemes that run or show content instead of opening a web page or an app.
const FORBIDDEN_SCHEMES: [&str; 9] =
    ["javascript", "vbscript", "data", "blob", "filesystem", "file", "about", "view-source", "mailto"];

/// Reason why an address must not be on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// It is not absolute, too long, or has characters that are not allowed in a URI (RFC 3986 §2).
    #[error("not an absolute uri of at most {MAX_ADDRESS} bytes")]
    Shape,
    /// Its scheme runs or shows content instead of opening a web page or an app.
    #[error("scheme not allowed: use https or the scheme of an app")]
    Scheme,
    /// It has no host, or user information before the host.
    #[error("the host is missing or malformed, or has user information before it")]
    Host,
}

/// A checked target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Href(Box<str>);

impl Href {
    /// Checks an absolute address of a web page or an app. Refuses `javascript:`, `data:` and
    /// similar schemes.
    ///
    /// # Errors
    /// [`AddressFault`] for any other text.
    pub fn parse(address: &str) -> Result<Self, AddressFault> {
        let (scheme, rest) = split(address)?;
        if is_web(scheme) {
            host(rest)?;
        }
        Ok(Self(address.into()))
    }

    /// The address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A link back to a client.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    /// Target of the link.
    pub href: &'a Href,
    /// Display name of the client.
    pub name: &'a str,
}

/// A source expression for `form-action` (CSP Level 3 §2.3.1).
///
/// Chrome applies `form-action` to the response's redirect and to all further redirects; Firefox
/// and Safari apply it only to the form's own address. If the response redirects to a client, the
/// policy must therefore allow the client's address. It must also allow the addresses to which the
/// client's callback redirects, which are unknown here.
///
/// So the policy allows the scheme instead of an origin. The directive protects against injected
/// forms; here escaping prevents them, because a page contains no foreign markup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormTarget(Box<str>);

impl FormTarget {
    /// The source expression for a redirect URI and its further redirects: its scheme. The scheme
    /// `http`, which only loopback addresses use, also allows https (CSP Level 3 §6.7.2.9).
    ///
    /// # Errors
    /// [`AddressFault`] when the URI must not be on a page.
    pub fn of_redirect(uri: &str) -> Result<Self, AddressFault> {
        let (scheme, rest) = split(uri)?;
        if is_web(scheme) {
            host(rest)?;
        }
        Ok(Self(format!("{}:", scheme.to_ascii_lowercase()).into()))
    }

    /// The source expression.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_web(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http")
}

/// The scheme, and the text after its colon.
fn split(address: &str) -> Result<(&str, &str), AddressFault> {
    let sound = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&b);
    if address.len() > MAX_ADDRESS || !address.bytes().all(sound) {
        return Err(AddressFault::Shape);
    }
    let (scheme, rest) = address.split_once(':').ok_or(AddressFault::Shape)?;
    let letters = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.bytes().all(letters) {
        return Err(AddressFault::Shape);
    }
    if FORBIDDEN_SCHEMES.iter().any(|dead| scheme.eq_ignore_ascii_case(dead)) {
        return Err(AddressFault::Scheme);
    }
    Ok((scheme, rest))
}

/// The authority of `//authority/…`, without user information.
fn host(rest: &str) -> Result<&str, AddressFault> {
    let rest = rest.strip_prefix("//").ok_or(AddressFault::Host)?;
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let port_is_number = |port: &str| port.parse::<u16>().is_ok();
    let sound = match authority.strip_prefix('[').and_then(|six| six.split_once(']')) {
        Some((address, port)) => {
            address.parse::<std::net::Ipv6Addr>().is_ok()
                && (port.is_empty() || port.strip_prefix(':').is_some_and(port_is_number))
        }
        None => {
            let (name, port) = authority.split_once(':').map_or((authority, None), |(n, p)| (n, Some(p)));
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
                && port.is_none_or(port_is_number)
        }
    };
    if sound { Ok(authority) } else { Err(AddressFault::Host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_may_lead_to_what_speaks_as_the_redirect_does() {
        for (uri, source) in [
            ("https://App.Example/cb?x=1", "https:"),
            ("HTTPS://app.example:8443/cb", "https:"),
            ("http://127.0.0.1:51234/", "http:"),
            ("http://[::1]:51234/", "http:"),
            ("com.example.app:/cb", "com.example.app:"),
        ] {
            assert_eq!(FormTarget::of_redirect(uri).unwrap().as_str(), source);
        }
    }

    #[test]
    fn an_address_cannot_write_into_the_policy_or_run() {
        for bad in [
            "",
            "/cb",
            "//app.example/cb",
            "https:app.example",
            "https://",
            "https://user@app.example/",
            "https://app.example;script-src *",
            "https://app.example *",
            "https://*.example/",
            "https://app.example:99999/",
            "https://app.example\r\nx: y",
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            "data:text/html,x",
            "https://app.example/\"onclick=",
            "1x:/",
        ] {
            assert!(FormTarget::of_redirect(bad).is_err(), "{bad}");
            assert!(Href::parse(bad).is_err(), "{bad}");
        }
    }
}

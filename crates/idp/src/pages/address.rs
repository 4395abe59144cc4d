//! Addresses that stand on a page: where a link leads, and where a form may lead.
//!
//! Owns: [`Href`] and [`FormTarget`]. Does not own: whether an address is registered (the client's business);
//! both are made from addresses that are.

/// Longest address in bytes.
const MAX_ADDRESS: usize = 2048;

/// Schemes that run or show something instead of leading somewhere.
const DEAD: [&str; 9] =
    ["javascript", "vbscript", "data", "blob", "filesystem", "file", "about", "view-source", "mailto"];

/// Why an address does not go on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// Not absolute, too long, or with characters that no URI has (RFC 3986 §2).
    #[error("not an absolute uri of at most {MAX_ADDRESS} bytes")]
    Shape,
    /// A scheme that runs or shows content instead of leading somewhere.
    #[error("the scheme leads nowhere: use https, or a scheme that an app has registered")]
    Scheme,
    /// No host, or user information before it.
    #[error("the host is missing or malformed, or has user information before it")]
    Host,
}

/// A checked target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Href(Box<str>);

impl Href {
    /// Checks an absolute address of a web page or an app. `javascript:`, `data:` and their like are refused.
    pub fn parse(address: &str) -> Result<Self, AddressFault> {
        let (scheme, rest) = split(address)?;
        if is_web(scheme) {
            host(rest)?;
        }
        Ok(Self(address.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A link back to a client.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    /// Where it leads.
    pub href: &'a Href,
    /// The client's name.
    pub name: &'a str,
}

/// A source expression for `form-action` (CSP Level 3 §2.3.1).
///
/// Chrome applies `form-action` to every redirect that answers a form, and to those that follow, Firefox and Safari to the
/// form's own address alone. So a form whose answer is a redirect to a client needs the client's address in the policy, or
/// the user is stuck on the page without a word; and that of whatever the client's callback leads to, which nobody here knows.
/// Therefore the scheme is admitted and no single origin. What the directive is for, a form that somebody smuggles into a page,
/// is kept out by escaping: a page holds no markup of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormTarget(Box<str>);

impl FormTarget {
    /// The source that admits a redirect URI and where it may lead: its scheme. That of plain http, which only loopback
    /// addresses have, admits https too (CSP Level 3 §6.7.2.9).
    pub fn of_redirect(uri: &str) -> Result<Self, AddressFault> {
        let (scheme, rest) = split(uri)?;
        if is_web(scheme) {
            host(rest)?;
        }
        Ok(Self(format!("{}:", scheme.to_ascii_lowercase()).into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_web(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http")
}

/// Scheme and what follows its colon.
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
    if DEAD.iter().any(|dead| scheme.eq_ignore_ascii_case(dead)) {
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

//! Transport of authorization responses.
//!
//! Owns: the three response modes (query, fragment, form post), escaping, and the issuer in each
//! response (RFC 9207). Does not own: the content of the response.

use crate::oauth::form::escape;

/// `response_mode` (OAuth 2.0 Multiple Response Type Encoding Practices §2.1, OAuth 2.0 Form Post
/// Response Mode).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseMode {
    /// In the query of the redirect URI, appended to an existing query.
    #[default]
    Query,
    /// In the fragment after `#`, which browsers do not send to servers.
    Fragment,
    /// In the body of a form that the browser posts.
    FormPost,
}

impl ResponseMode {
    /// All supported modes.
    pub const ALL: [Self; 3] = [Self::Query, Self::Fragment, Self::FormPost];

    /// The value of `response_mode`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Fragment => "fragment",
            Self::FormPost => "form_post",
        }
    }

    /// Parses a `response_mode`; the comparison is exact.
    pub fn from_wire(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}

/// Destination of the response. Client and redirect URI of the request were verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnAddress {
    pub(crate) redirect_uri: Box<str>,
    pub(crate) mode: ResponseMode,
    pub(crate) state: Option<Box<str>>,
}

/// An encoded response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorizationResponse {
    /// Redirect the browser to this URL with status 303, which does not repeat a posted form.
    Redirect(String),
    /// Let the browser post these fields.
    FormPost {
        /// URL that the form is posted to.
        action: Box<str>,
        /// Names and values, not escaped.
        fields: Vec<(&'static str, String)>,
    },
}

impl ReturnAddress {
    /// The redirect URI of the response.
    pub fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    /// Encodes a response with these fields; adds `state` and `iss`.
    pub fn answer(&self, issuer: &str, fields: &[(&'static str, &str)]) -> AuthorizationResponse {
        let state = self.state.as_deref().map(|state| ("state", state));
        let fields = fields.iter().copied().chain(state).chain([("iss", issuer)]);
        let separator = match self.mode {
            ResponseMode::FormPost => {
                let fields = fields.map(|(name, value)| (name, value.to_owned())).collect();
                return AuthorizationResponse::FormPost { action: self.redirect_uri.clone(), fields };
            }
            ResponseMode::Fragment => '#',
            ResponseMode::Query if self.redirect_uri.contains('?') => '&',
            ResponseMode::Query => '?',
        };
        let mut url = String::from(&*self.redirect_uri);
        for (at, (name, value)) in fields.enumerate() {
            url.push(if at == 0 { separator } else { '&' });
            url.push_str(name);
            url.push('=');
            escape(value, &mut url);
        }
        AuthorizationResponse::Redirect(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://login.example.com";

    fn address(redirect_uri: &str, mode: ResponseMode, state: Option<&str>) -> ReturnAddress {
        ReturnAddress { redirect_uri: redirect_uri.into(), mode, state: state.map(Into::into) }
    }

    #[test]
    fn each_mode_has_its_place() {
        let redirect = |uri, mode| match address(uri, mode, Some("s")).answer(ISSUER, &[("code", "c")]) {
            AuthorizationResponse::Redirect(url) => url,
            AuthorizationResponse::FormPost { .. } => panic!("no redirect"),
        };
        let fields = "code=c&state=s&iss=https%3A%2F%2Flogin.example.com";
        assert_eq!(redirect("https://a/cb", ResponseMode::Query), format!("https://a/cb?{fields}"));
        assert_eq!(redirect("https://a/cb?x=y", ResponseMode::Query), format!("https://a/cb?x=y&{fields}"));
        assert_eq!(
            redirect("https://a/cb?x=y", ResponseMode::Fragment),
            format!("https://a/cb?x=y#{fields}")
        );
        let posted = address("https://a/cb", ResponseMode::FormPost, None).answer(ISSUER, &[("error", "e")]);
        let fields = vec![("error", "e".to_owned()), ("iss", ISSUER.to_owned())];
        assert_eq!(posted, AuthorizationResponse::FormPost { action: "https://a/cb".into(), fields });
    }

    #[test]
    fn what_is_reflected_cannot_become_anything_else() {
        let state = "a&code=evil#x\r\nLocation: y \"><script>é+%41";
        let AuthorizationResponse::Redirect(url) =
            address("https://a/cb", ResponseMode::Query, Some(state)).answer(ISSUER, &[("code", "c")])
        else {
            panic!("no redirect")
        };
        let query = url.split_once('?').unwrap().1;
        assert!(query.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%=&".contains(&b)), "{query}");
        assert_eq!(query.matches('&').count(), 2);
        let sent = query.split('&').nth(1).unwrap().strip_prefix("state=").unwrap();
        assert_eq!(crate::oauth::form::decode(sent.as_bytes()), Err(crate::oauth::form::FormFault::Control));
        let harmless = state.replace(['\r', '\n'], "");
        let mut escaped = String::new();
        escape(&harmless, &mut escaped);
        assert_eq!(crate::oauth::form::decode(escaped.as_bytes()).as_deref(), Ok(&*harmless));
    }

    #[test]
    fn the_wire_names_go_there_and_back() {
        for mode in ResponseMode::ALL {
            assert_eq!(ResponseMode::from_wire(mode.as_str()), Some(mode));
        }
        assert_eq!(ResponseMode::from_wire("QUERY"), None);
    }
}

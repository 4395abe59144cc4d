//! Simulated browser that logs in: cookies, forms, redirects.
//!
//! Owns: what a browser does between the page that a user wants and the page that comes, for the
//! self check. It parses pages like a browser does, so that it detects a page that users could not
//! use.

use std::fmt::Write as _;

use http::Method;
use http_engine::url::Url;

use crate::client::{Client, Reply, Version};
use crate::exit::Failure;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const HTML: (&str, &str) = ("accept", "text/html");
/// Redirects that a browser follows at most.
const MAX_REDIRECTS: usize = 10;

/// A browser. Like all browsers it sends the cookies of a host to each of its ports.
pub(super) struct Browser<'c> {
    client: &'c Client,
    cookies: Vec<(String, String)>,
}

/// A page, after redirects.
pub(super) struct Page {
    /// Where it came from.
    pub(super) url: String,
    pub(super) reply: Reply,
}

impl Page {
    /// The status, and the heading of the page.
    pub(super) fn summary(&self) -> String {
        let text = String::from_utf8_lossy(&self.reply.body);
        format!("{}, {}", self.reply.status.as_u16(), heading(&text).unwrap_or("no page"))
    }
}

impl<'c> Browser<'c> {
    pub(super) fn new(client: &'c Client) -> Self {
        Self { client, cookies: Vec::new() }
    }

    /// Opens a page that needs a login, and logs in. Returns the page that comes then.
    ///
    /// # Errors
    /// When there is no login page, or no response.
    pub(super) async fn log_in(&mut self, url: &str, name: &str, password: &str) -> Result<Page, Failure> {
        let login = self.open(url).await?;
        self.submit(&login, "/login", &[("username", name), ("password", password)]).await
    }

    /// Opens a page.
    ///
    /// # Errors
    /// When there is no response.
    pub(super) async fn open(&mut self, url: &str) -> Result<Page, Failure> {
        let reply = self.send(Method::GET, url, HTML, "").await?;
        self.follow(Page { url: url.to_owned(), reply }).await
    }

    /// Status of a request that a script of a page sends.
    ///
    /// # Errors
    /// When there is no response.
    pub(super) async fn fetch(&mut self, url: &str) -> Result<u16, Failure> {
        Ok(self.send(Method::GET, url, ("accept", "application/json"), "").await?.status.as_u16())
    }

    async fn follow(&mut self, mut page: Page) -> Result<Page, Failure> {
        for _ in 0..MAX_REDIRECTS {
            let location = page.reply.headers.get("location").and_then(|value| value.to_str().ok());
            let Some(location) = location.filter(|_| page.reply.status.is_redirection()) else {
                return Ok(page);
            };
            let url = if location.starts_with('/') {
                origin(&page.url).to_owned() + location
            } else {
                location.into()
            };
            let reply = self.send(Method::GET, &url, HTML, "").await?;
            page = Page { url, reply };
        }
        Err(Failure::new(format!("{} redirects again and again", page.url)))
    }

    /// Sends the form of a page whose action is `action`, with the values of a user.
    async fn submit(&mut self, page: &Page, action: &str, filled: &[(&str, &str)]) -> Result<Page, Failure> {
        let text = String::from_utf8_lossy(&page.reply.body).into_owned();
        let found = text.split("<form ").skip(1).find(|form| form.contains(&format!("action=\"{action}\"")));
        let found = found.ok_or_else(|| {
            Failure::new(format!("{} has no form to {action}: {}", page.url, page.summary()))
        })?;
        let hidden = found
            .split("type=\"hidden\" ")
            .skip(1)
            .filter_map(|input| Some((between(input, "name=\"", "\"")?, between(input, "value=\"", "\"")?)));
        let fields: Vec<(&str, &str)> = hidden.chain(filled.iter().copied()).collect();
        let url = origin(&page.url).to_owned() + action;
        let reply = self.send(Method::POST, &url, HTML, &form(&fields)).await?;
        self.follow(Page { url, reply }).await
    }

    async fn send(
        &mut self,
        method: Method,
        url: &str,
        accept: (&str, &str),
        body: &str,
    ) -> Result<Reply, Failure> {
        let url = Url::parse(url).map_err(|fault| Failure::new(format!("{url}: {fault}")))?;
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = cookies.join("; ");
        let fields = [accept, ("cookie", cookies.as_str()), FORM];
        // A request without a body has no type of one.
        let fields = &fields[..if body.is_empty() { 2 } else { 3 }];
        let reply = self.client.send(Version::Http1, method, &url, fields, body.to_owned()).await;
        let reply = reply.map_err(Failure::new)?;
        for line in reply.headers.get_all("set-cookie").iter().filter_map(|line| line.to_str().ok()) {
            if let Some((name, value)) = line.split(';').next().and_then(|pair| pair.split_once('=')) {
                self.cookies.retain(|(kept, _)| kept != name);
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(reply)
    }
}

/// Scheme and authority of a URL.
fn origin(url: &str) -> &str {
    let path = url.find("://").and_then(|at| url[at + 3..].find('/').map(|path| at + 3 + path));
    &url[..path.unwrap_or(url.len())]
}

/// Text of the first heading.
fn heading(page: &str) -> Option<&str> {
    let tag = &page[page.find("<h1")?..];
    between(tag, ">", "</h1>")
}

fn between<'t>(text: &'t str, from: &str, to: &str) -> Option<&'t str> {
    let rest = &text[text.find(from)? + from.len()..];
    Some(&rest[..rest.find(to)?])
}

fn form(fields: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (name, value) in fields {
        if !out.is_empty() {
            out.push('&');
        }
        out.push_str(name);
        out.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_of_urls() {
        assert_eq!(origin("http://127.0.0.1:8080/orders?a=/b"), "http://127.0.0.1:8080");
        assert_eq!(origin("http://127.0.0.1:8080"), "http://127.0.0.1:8080");
    }

    #[test]
    fn headings_of_pages() {
        assert_eq!(heading("<p>x</p><h1 class=\"big\">Sign in</h1>"), Some("Sign in"));
        assert_eq!(heading("<p>x</p>"), None);
    }
}

//! A test browser: cookies, forms, redirects; no scripts.

use std::collections::BTreeMap;

use crate::{
    server::Server,
    wire::{self, Answer, FORM, encode},
};

/// One browser of one provider.
pub(crate) struct Browser<'s> {
    pub(crate) server: &'s Server,
    pub(crate) cookies: BTreeMap<String, String>,
    pub(crate) language: Option<&'static str>,
}

/// A form of a page: its target and its hidden fields.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(crate) action: String,
    pub(crate) hidden: Vec<(String, String)>,
}

impl<'s> Browser<'s> {
    pub(crate) fn new(server: &'s Server) -> Self {
        Self { server, cookies: BTreeMap::new(), language: None }
    }

    /// GETs a path, or a URL of the provider.
    pub(crate) async fn get(&mut self, target: &str) -> Answer {
        let target = self.local(target).to_owned();
        let mut request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        if let Some(language) = self.language {
            request.push_str("Accept-Language: ");
            request.push_str(language);
            request.push_str("\r\n");
        }
        request.push_str(&self.cookie_line());
        request.push_str("\r\n");
        let answer = wire::exchange(self.server.address, request.as_bytes()).await;
        self.store_cookies(answer)
    }

    /// POSTs fields to a path, or a URL of the provider.
    pub(crate) async fn post(&mut self, target: &str, fields: &[(&str, &str)]) -> Answer {
        let body: Vec<String> =
            fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        let cookies: String = self.cookie_line();
        let mut sent = vec![("Content-Type", FORM)];
        sent.extend(self.language.map(|language| ("Accept-Language", language)));
        if let Some(value) = cookies.strip_prefix("Cookie: ") {
            sent.push(("Cookie", value.trim_end()));
        }
        let target = self.local(target).to_owned();
        let answer = wire::send(self.server.address, &target, &sent, body.join("&").as_bytes()).await;
        self.store_cookies(answer)
    }

    /// Submits a form with the user's input, then follows the redirect to the next page, if there
    /// is one.
    pub(crate) async fn submit(&mut self, form: &Form, filled: &[(&str, &str)]) -> Answer {
        let answer = self.send(form, filled).await;
        // Nodes can share an issuer; the request goes to this one.
        let path = |to: &str| Some(format!("/{}", to.split_once("://")?.1.split_once('/')?.1));
        match answer.field("location").filter(|to| to.contains("?flow=")).and_then(path) {
            Some(next) => self.get(&next).await,
            None => answer,
        }
    }

    /// Submits a form with the user's input.
    pub(crate) async fn send(&mut self, form: &Form, filled: &[(&str, &str)]) -> Answer {
        let hidden = form.hidden.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        let fields: Vec<(&str, &str)> = hidden.chain(filled.iter().copied()).collect();
        self.post(&form.action, &fields).await
    }

    /// Follows a redirect to a page of the provider; returns any other response unchanged.
    pub(crate) async fn follow(&mut self, answer: Answer) -> Answer {
        let origin = format!("http://{}/", self.server.address);
        match answer.field("location").filter(|_| answer.status == 303) {
            Some(to) if to.starts_with(&origin) => {
                let to = to.to_owned();
                self.get(&to).await
            }
            _ => answer,
        }
    }

    /// The part after the provider's origin; a path is returned unchanged.
    fn local<'t>(&self, target: &'t str) -> &'t str {
        let origin = format!("http://{}", self.server.address);
        target.strip_prefix(origin.as_str()).unwrap_or(target)
    }

    fn cookie_line(&self) -> String {
        if self.cookies.is_empty() {
            return String::new();
        }
        let pairs: Vec<String> = self.cookies.iter().map(|(n, v)| format!("{n}={v}")).collect();
        format!("Cookie: {}\r\n", pairs.join("; "))
    }

    fn store_cookies(&mut self, answer: Answer) -> Answer {
        for (_, line) in answer.fields.iter().filter(|(name, _)| name == "set-cookie") {
            let pair = line.split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            if line.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        answer
    }
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The target of a redirect.
    #[track_caller]
    pub(crate) fn location(&self) -> &str {
        assert_eq!(self.status, 303, "{}", self.body.escape_ascii());
        self.field("location").unwrap()
    }

    /// The form whose action has this suffix.
    #[track_caller]
    pub(crate) fn form(&self, action: &str) -> Form {
        let forms = self.forms();
        let found = forms.iter().find(|form| form.action.ends_with(action));
        found.unwrap_or_else(|| panic!("no form to {action}: {}", self.text())).clone()
    }

    pub(crate) fn forms(&self) -> Vec<Form> {
        let mut forms = Vec::new();
        for piece in self.text().split("<form ").skip(1) {
            let piece = &piece[..piece.find("</form>").unwrap()];
            let hidden = piece
                .split("<input type=\"hidden\" ")
                .skip(1)
                .map(|input| (attribute(input, "name"), attribute(input, "value")))
                .collect();
            forms.push(Form { action: attribute(piece, "action"), hidden });
        }
        forms
    }
}

fn attribute(tag: &str, name: &str) -> String {
    let from = tag.find(&format!("{name}=\"")).unwrap() + name.len() + 2;
    let value = &tag[from..];
    unescape(&value[..value.find('"').unwrap()])
}

fn unescape(text: &str) -> String {
    let decimal = [("&#38;", "&"), ("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'")];
    decimal.iter().fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

/// The decoded fields of a query.
pub(crate) fn query(url: &str) -> BTreeMap<String, String> {
    let (_, query) = url.split_once(['?', '#']).unwrap_or((url, ""));
    let decode = |text: &str| idp::oauth::form::decode(text.as_bytes()).unwrap();
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

//! Virtual browser: one virtual user's HTTP/1.1 connection, cookie jar and parsed responses.
//!
//! Owns: requests as bytes, reconnection, and the timeout. Does not own: which requests are sent
//! ([`super::scenario`]), and where a response ends ([`crate::load`]).

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use super::html;
use super::jar::CookieJar;
use super::tally::{FailureClass, Step, TransactionFailure, TransactionTally};
use crate::load::h1::Connection;
use crate::load::{Clock, Deadline, Failure, RequestFault, Target};

/// Longest excerpt of an unexpected response in an error, in characters.
const EXCERPT_CHARS: usize = 200;

/// State that all virtual users share.
pub(crate) struct SharedState {
    pub(crate) clock: Clock,
    pub(crate) target: Target,
    /// Timeout of one request in nanoseconds.
    pub(crate) timeout: u64,
    pub(crate) tally: RefCell<TransactionTally>,
    pub(crate) opened: Cell<u64>,
    pub(crate) received: Cell<u64>,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) content: Vec<u8>,
}

impl Response {
    /// Values of all header fields with this name.
    fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(move |(had, _)| had.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Target of a redirect that is followed with GET (status 302 or 303); `None` for any other
    /// response.
    pub(crate) fn redirect(&self) -> Option<&str> {
        matches!(self.status, 302 | 303).then(|| self.fields("location").next()).flatten()
    }

    /// Content as text; invalid UTF-8 is replaced.
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.content)
    }

    /// Beginning of the content for an error message. For HTML, the text that a reader sees.
    pub(crate) fn excerpt(&self) -> String {
        let text = self.text();
        let shown = html::visible_text(&text);
        let words: Vec<&str> = shown.split_whitespace().collect();
        words.join(" ").chars().take(EXCERPT_CHARS).collect()
    }

    /// Returns the response if it has this status.
    ///
    /// # Errors
    /// The status is another one.
    pub(crate) fn expect_status(self, step: Step, status: u16) -> Result<Self, TransactionFailure> {
        if self.status == status {
            return Ok(self);
        }
        Err(TransactionFailure {
            step,
            class: FailureClass::Status,
            status: Some(self.status),
            why: format!("status {}: {}", self.status, self.excerpt()),
        })
    }
}

/// A request that a virtual user sends.
pub(crate) struct Request<'a> {
    pub(crate) step: Step,
    pub(crate) path: &'a str,
    /// Value of the `Authorization` header field.
    pub(crate) authorization: Option<&'a str>,
    /// Form content of a POST request; `None` for a GET request.
    pub(crate) form: Option<&'a str>,
    /// `true` if the browser sends the request, with its cookies. `false` for requests of the
    /// client's backend.
    pub(crate) cookies: bool,
}

/// Browser and client backend of one virtual user. They share a connection.
pub(crate) struct Browser {
    pub(crate) shared: Rc<SharedState>,
    pub(crate) jar: CookieJar,
    connection: Option<Connection>,
    deadline: Deadline,
    bytes: String,
}

impl Browser {
    pub(crate) fn new(shared: Rc<SharedState>) -> Self {
        Self {
            shared,
            jar: CookieJar::default(),
            connection: None,
            deadline: Deadline::new(),
            bytes: String::new(),
        }
    }

    /// Sends a request, waits for its response and records both.
    ///
    /// # Errors
    /// The request failed without a complete response.
    pub(crate) async fn send(&mut self, request: &Request<'_>) -> Result<Response, TransactionFailure> {
        self.write(request);
        let shared = &*self.shared;
        let started = shared.clock.now();
        let mut connecting = true;
        let work = exchange(shared, &mut self.connection, &mut connecting, self.bytes.as_bytes());
        let ending =
            self.deadline.run_until(&shared.clock, started.saturating_add(shared.timeout), work).await;
        let ending = ending.unwrap_or_else(|| {
            // Late bytes of this exchange must not be read as the next response, so the connection
            // is dropped.
            self.connection = None;
            Err(if connecting {
                Failure::new(RequestFault::Connect, "no connection within the timeout")
            } else {
                Failure::timeout()
            })
        });
        let ended = shared.clock.now();
        let mut tally = shared.tally.borrow_mut();
        tally.record_request(request.step, ended.saturating_sub(started), ended, ending.is_ok());
        drop(tally);
        let page = ending.map_err(|failure| TransactionFailure::of(request.step, &failure))?;
        if request.cookies {
            for line in page.fields("set-cookie") {
                self.jar.store(line, request.path);
            }
        }
        Ok(page)
    }

    fn write(&mut self, request: &Request<'_>) {
        let authority = &self.shared.target.authority;
        let bytes = &mut self.bytes;
        bytes.clear();
        // Writing to a string cannot fail.
        let method = if request.form.is_some() { "POST" } else { "GET" };
        let _ = write!(bytes, "{method} {} HTTP/1.1\r\nhost: {authority}\r\n", request.path);
        bytes.push_str(if request.cookies {
            "accept: text/html\r\n"
        } else {
            "accept: application/json\r\n"
        });
        bytes.push_str("user-agent: postern-load\r\n");
        if let Some(value) = request.authorization {
            let _ = write!(bytes, "authorization: {value}\r\n");
        }
        if request.cookies {
            if let Some(value) = self.jar.header(request.path) {
                let _ = write!(bytes, "cookie: {value}\r\n");
            }
            if request.form.is_some() {
                let scheme = if self.shared.target.is_tls() { "https" } else { "http" };
                let _ = write!(bytes, "origin: {scheme}://{authority}\r\n");
            }
            // Fetch metadata of a browser navigation, from another site or from the previous page.
            let site = if request.step == Step::Authorize { "none" } else { "same-origin" };
            let _ = write!(
                bytes,
                "sec-fetch-site: {site}\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n"
            );
        }
        match request.form {
            Some(form) => {
                let length = form.len();
                let _ = write!(
                    bytes,
                    "content-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\n\r\n{form}"
                );
            }
            None => bytes.push_str("\r\n"),
        }
    }
}

async fn exchange(
    shared: &SharedState,
    slot: &mut Option<Connection>,
    connecting: &mut bool,
    request: &[u8],
) -> Result<Response, Failure> {
    if let Some(idle) = slot
        && poll_fn(|cx| Poll::Ready(idle.is_stale(cx))).await
    {
        *slot = None;
    }
    let mut connection = match slot.take() {
        Some(connection) => connection,
        None => {
            let io = shared.target.open().await?;
            shared.opened.set(shared.opened.get() + 1);
            Connection::with_capture(io)
        }
    };
    *connecting = false;
    let answer = connection.exchange(request, &shared.received).await?;
    let captured = connection.take_captured();
    if answer.reusable {
        *slot = Some(connection);
    }
    let head = String::from_utf8_lossy(&captured.head).into_owned();
    Ok(Response { status: answer.status, head, content: captured.content })
}

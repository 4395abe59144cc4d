//! An HTTP client that sends exactly the given bytes, one request per connection.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case, in the order received.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of a field that occurs at most once.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(n, _)| n == name);
        let first = found.next().map(|(_, v)| v.as_str());
        assert!(found.next().is_none(), "{name} came twice");
        first
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body.escape_ascii()))
    }

    /// Everything except the date, which may change between two requests.
    pub(crate) fn without_date(mut self) -> (u16, Vec<(String, String)>, Vec<u8>) {
        self.fields.retain(|(name, _)| name != "date");
        (self.status, self.fields, self.body)
    }

    #[track_caller]
    pub(crate) fn assert_error(&self, status: u16, code: &str) {
        let json = self.json();
        assert_eq!((self.status, json["error"].as_str()), (status, Some(code)), "{json}");
        assert!(json["error_description"].is_string(), "{json}");
        assert_eq!(json.as_object().map(serde_json::Map::len), Some(2), "{json}");
        assert_eq!(self.field("cache-control"), Some("no-store"));
        assert_eq!(self.field("pragma"), Some("no-cache"));
        assert_eq!(self.field("content-type"), Some("application/json"));
        assert_eq!(self.field("www-authenticate").is_some(), status == 401, "a challenge goes with 401");
    }
}

/// Sends `request` and reads the response until the server closes.
pub(crate) async fn exchange(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    parse(&bytes)
}

/// Sends the start of a request and reads one response by its length, while the request stays
/// unfinished.
pub(crate) async fn exchange_until_answer(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut chunk).await.unwrap();
        assert_ne!(n, 0, "closed inside an answer: {}", bytes.escape_ascii());
        bytes.extend_from_slice(&chunk[..n]);
        if bytes.windows(4).any(|w| w == b"\r\n\r\n") {
            let answer = parse(&bytes);
            let length: usize = answer.field("content-length").unwrap().parse().unwrap();
            if answer.body.len() == length {
                return answer;
            }
        }
    }
}

/// Sends the start of a request, closes the sending side, and reads the response.
pub(crate) async fn exchange_half_closed(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    bytes
}

fn parse(bytes: &[u8]) -> Answer {
    let end =
        bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or_else(|| panic!("{}", bytes.escape_ascii()));
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let field =
        |line: &str| line.split_once(':').map(|(n, v)| (n.to_lowercase(), v.trim().to_owned())).unwrap();
    let answer = Answer { status, fields: lines.map(field).collect(), body: bytes[end + 4..].to_vec() };
    assert_eq!(answer.field("transfer-encoding"), None, "bodies are whole");
    answer
}

/// Sends a request without a body.
pub(crate) async fn request(address: SocketAddr, method: &str, target: &str) -> Answer {
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    exchange(address, head.as_bytes()).await
}

/// Sends a request with a body and additional fields.
pub(crate) async fn send(address: SocketAddr, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut request =
        format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n").into_bytes();
    for (name, value) in fields {
        request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    request.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    request.extend_from_slice(body);
    exchange(address, &request).await
}

/// Encodes as `application/x-www-form-urlencoded`; escapes all except letters and digits.
pub(crate) fn encode(text: &str) -> String {
    let escape =
        |b: u8| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") };
    text.bytes().map(escape).collect()
}

/// A Basic `Authorization` value, encoded by RFC 6749 §2.3.1.
pub(crate) fn basic(id: &str, secret: &str) -> String {
    raw_basic(&format!("{}:{}", encode(id), encode(secret)))
}

/// A Basic `Authorization` value of any text.
pub(crate) fn raw_basic(joined: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    format!("Basic {}", STANDARD.encode(joined))
}

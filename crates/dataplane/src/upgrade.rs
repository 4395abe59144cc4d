//! Protocol switches: a request for one, and an upstream that accepts it.

use std::io::{Read as _, Write as _};

use crate::harness::Upstream;

/// Header lines that ask for a WebSocket.
pub const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Switches protocols, then sends its input back in capitals, until `bye`.
pub fn shouting() -> Upstream {
    Upstream::answering(|_, s| {
        s.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nhello").unwrap();
        let mut chunk = [0; 1024];
        while let Ok(n) = s.read(&mut chunk) {
            if n == 0 || chunk[..n].starts_with(b"bye") {
                break;
            }
            s.write_all(&chunk[..n].to_ascii_uppercase()).unwrap();
        }
        false
    })
}

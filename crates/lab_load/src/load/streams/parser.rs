//! Event parser: counts the events in the content of a stream, in any portions.
//!
//! Owns: where an event ends. Does not own: when it came.

use super::StreamForm;

/// Longest gRPC message, in bytes, that is believed: a larger length is another protocol.
const MAX_MESSAGE: u32 = 64 << 20;

/// Position in the content of a stream.
pub(super) enum EventParser {
    ServerSentEvents(SseParser),
    Lines {
        /// Whether bytes follow the last newline.
        has_begun: bool,
    },
    Grpc(GrpcParser),
}

/// Position in a stream of server-sent events (WHATWG HTML, section 9.2.6).
#[derive(Default)]
pub(super) struct SseParser {
    /// First bytes of the current line, as many as tell a `data` field.
    line: Vec<u8>,
    /// Whether the event so far has a `data` field: one without is not dispatched.
    has_data: bool,
    /// Whether the last byte was a CR, so that a LF after it ends no further line.
    after_cr: bool,
}

/// Position in a stream of length-prefixed messages (gRPC over HTTP/2).
#[derive(Default)]
pub(super) struct GrpcParser {
    /// Bytes of the prefix so far: a flag and a length of four bytes.
    prefix: Vec<u8>,
    /// Bytes of the message still to come, after a complete prefix.
    left: Option<u32>,
}

impl EventParser {
    pub(super) fn new(form: StreamForm) -> Self {
        match form {
            StreamForm::ServerSentEvents => Self::ServerSentEvents(SseParser::default()),
            StreamForm::Lines => Self::Lines { has_begun: false },
            StreamForm::Grpc => Self::Grpc(GrpcParser::default()),
        }
    }

    /// Reads further content. Returns the number of events that end in it.
    ///
    /// # Errors
    /// What is wrong with the content.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<u64, &'static str> {
        match self {
            Self::ServerSentEvents(parser) => {
                Ok(bytes.iter().filter(|byte| parser.byte(**byte)).count() as u64)
            }
            Self::Lines { has_begun } => {
                if let Some(last) = bytes.last() {
                    *has_begun = *last != b'\n';
                }
                Ok(bytes.split(|byte| *byte == b'\n').count() as u64 - 1)
            }
            Self::Grpc(parser) => parser.push(bytes),
        }
    }

    /// Number of events that end with the content, if that ends regularly. The last line needs no
    /// newline.
    pub(super) fn end(&self) -> u64 {
        match self {
            Self::Lines { has_begun } => u64::from(*has_begun),
            Self::ServerSentEvents(_) | Self::Grpc(_) => 0,
        }
    }

    /// Whether the content may end here. Server-sent events and lines may end anywhere: an event
    /// without its end does not count, and the end of the content is that of the last line.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::ServerSentEvents(_) | Self::Lines { .. } => true,
            Self::Grpc(parser) => parser.left.is_none() && parser.prefix.is_empty(),
        }
    }
}

impl SseParser {
    /// Reads a byte. Returns `true` if it ends an event.
    fn byte(&mut self, byte: u8) -> bool {
        let after_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
        match byte {
            b'\n' if after_cr => false,
            b'\n' | b'\r' => {
                let line = std::mem::take(&mut self.line);
                match &line[..] {
                    [] => std::mem::take(&mut self.has_data),
                    [b'd', b'a', b't', b'a'] | [b'd', b'a', b't', b'a', b':'] => {
                        self.has_data = true;
                        false
                    }
                    _ => false,
                }
            }
            _ => {
                if self.line.len() < 5 {
                    self.line.push(byte);
                }
                false
            }
        }
    }
}

impl GrpcParser {
    fn push(&mut self, mut bytes: &[u8]) -> Result<u64, &'static str> {
        let mut events = 0;
        while !bytes.is_empty() {
            let left = match self.left {
                Some(left) => left,
                None => {
                    self.prefix.push(bytes[0]);
                    bytes = &bytes[1..];
                    let [flag, length @ ..] = &self.prefix[..] else { continue };
                    if *flag > 1 {
                        return Err("a gRPC message begins with neither 0 nor 1");
                    }
                    let Ok(length) = <[u8; 4]>::try_from(length) else { continue };
                    let length = u32::from_be_bytes(length);
                    if length > MAX_MESSAGE {
                        return Err("a gRPC message is longer than 64 MiB");
                    }
                    self.prefix.clear();
                    length
                }
            };
            let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            bytes = &bytes[taken..];
            let left = left - u32::try_from(taken).unwrap_or(left);
            self.left = (left > 0).then_some(left);
            events += u64::from(left == 0);
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events in `bytes`, fed in portions of every size.
    fn events(form: StreamForm, bytes: &[u8]) -> u64 {
        let count = |portion: usize| {
            let mut parser = EventParser::new(form);
            bytes.chunks(portion).map(|part| parser.push(part).unwrap()).sum::<u64>()
        };
        let whole = count(bytes.len());
        for portion in 1..bytes.len() {
            assert_eq!(count(portion), whole, "in portions of {portion}");
        }
        whole
    }

    #[test]
    fn an_event_ends_with_an_empty_line_and_needs_data() {
        let sse = |text: &str| events(StreamForm::ServerSentEvents, text.as_bytes());
        assert_eq!(sse("data: a\n\ndata: b\n\n"), 2);
        assert_eq!(sse("data: a\r\n\r\ndata: b\r\n\r\n"), 2);
        assert_eq!(sse("data: a\r\rdata: b\r\r"), 2);
        assert_eq!(sse("id: 1\ndata: a\ndata: b\n\n: comment\n\nid: 2\n\n"), 1);
        assert_eq!(sse("data\n\ndata:\n\ndatabase: x\n\n"), 2);
        assert_eq!(sse("data: not complete\n"), 0);
    }

    #[test]
    fn lines_count() {
        assert_eq!(events(StreamForm::Lines, b"{}\n{}\n{"), 2);
    }

    #[test]
    fn the_last_line_ends_with_the_content() {
        let at_end = |portions: &[&[u8]]| {
            let mut parser = EventParser::new(StreamForm::Lines);
            for part in portions {
                parser.push(part).unwrap();
            }
            parser.end()
        };
        assert_eq!(at_end(&[b"{}\n{"]), 1);
        assert_eq!(at_end(&[b"{}\n", b"{", b"}", b""]), 1);
        assert_eq!(at_end(&[b"{}\n{}\n"]), 0);
        assert_eq!(at_end(&[b"{}", b"\n", b""]), 0);
        assert_eq!(at_end(&[]), 0);
        let mut parser = EventParser::new(StreamForm::ServerSentEvents);
        assert_eq!((parser.push(b"data: not complete\n"), parser.end()), (Ok(0), 0));
    }

    #[test]
    fn messages_have_lengths() {
        let messages = b"\0\0\0\0\x03abc\0\0\0\0\0\x01\0\0\0\x01z";
        assert_eq!(events(StreamForm::Grpc, messages), 3);
        let mut parser = EventParser::new(StreamForm::Grpc);
        assert_eq!(parser.push(&messages[..7]), Ok(0));
        assert!(!parser.is_complete());
        assert_eq!(parser.push(&messages[7..8]), Ok(1));
        assert!(parser.is_complete());
        assert!(EventParser::new(StreamForm::Grpc).push(b"<html>").is_err());
        assert!(EventParser::new(StreamForm::Grpc).push(b"\0\xff\0\0\0").is_err());
    }
}

//! Read body: collects a small request body for responses that the gateway generates.

use std::task::{Context, Poll};

use crate::http_stream::{Fill, HttpStream};

/// Why a body was not collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadBodyError {
    /// It is larger than allowed.
    TooLarge,
    /// Its coding is invalid, or the sender has closed the connection.
    Broken,
}

/// Reads a body to its end, up to `most` bytes in total.
pub fn poll_collect(
    leg: &mut impl HttpStream,
    cx: &mut Context<'_>,
    body: &mut Vec<u8>,
    most: usize,
) -> Poll<Result<(), ReadBodyError>> {
    loop {
        let n = match std::task::ready!(leg.poll_fill(cx)) {
            Ok(Fill::End(_)) => return Poll::Ready(Ok(())),
            Ok(Fill::Data(data)) if body.len() + data.len() > most => {
                return Poll::Ready(Err(ReadBodyError::TooLarge));
            }
            Ok(Fill::Data(data)) => {
                body.extend_from_slice(data);
                data.len()
            }
            Err(_) => return Poll::Ready(Err(ReadBodyError::Broken)),
        };
        leg.consume(n);
    }
}

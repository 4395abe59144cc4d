//! A small body as a whole, for what is answered here.

use std::task::{Context, Poll};

use crate::http_stream::{Fill, HttpStream};

/// Why a body was not collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadBodyError {
    /// It is larger than it may be.
    TooLarge,
    /// It is outside its coding, or its sender is gone.
    Broken,
}

/// Reads a body to its end, if that is near.
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

//! A small body as a whole, for what is answered here.

use std::task::{Context, Poll};

use crate::answer::Refusal;
use crate::leg::{Fill, Leg};

/// Reads a body to its end, if that is near.
pub(crate) fn poll_collect(
    leg: &mut impl Leg,
    cx: &mut Context<'_>,
    body: &mut Vec<u8>,
    most: usize,
) -> Poll<Result<(), Refusal>> {
    loop {
        let n = match std::task::ready!(leg.poll_fill(cx)) {
            Ok(Fill::End(_)) => return Poll::Ready(Ok(())),
            Ok(Fill::Data(data)) if body.len() + data.len() > most => {
                return Poll::Ready(Err(Refusal::BodyTooLarge));
            }
            Ok(Fill::Data(data)) => {
                body.extend_from_slice(data);
                data.len()
            }
            Err(_) => return Poll::Ready(Err(Refusal::Body)),
        };
        leg.consume(n);
    }
}

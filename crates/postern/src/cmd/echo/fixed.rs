//! Fixed response: as little work per request as HTTP/1.1 permits.
//!
//! Each connection has one loop: one receive, one parse per request in the buffer, one send for all
//! responses. Bodies are read and dropped. This is the backend of the benchmarks, so each
//! microsecond spent here distorts the measurement.

use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::message::{self, Head};

/// Buffer size of one receive, in bytes. A head must fit.
const BUFFER: usize = 64 * 1024;

/// The response to every request.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    whole: Vec<u8>,
    /// Bytes of `whole` before the body.
    head: usize,
    delay: Duration,
    /// Start of the first period, length and period of stalls.
    stall: Option<(Instant, Duration, Duration)>,
}

impl Answer {
    /// A response with a text of `body_bytes` bytes, sent after `delay`.
    pub(super) fn new(body_bytes: usize, delay: Duration) -> Self {
        const TEXT: &[u8] =
            b"the quick brown fox jumps over the lazy dog, and the lazy dog does not mind it at all\n";
        let mut whole =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {body_bytes}\r\n\r\n")
                .into_bytes();
        let head = whole.len();
        whole.extend(TEXT.iter().cycle().take(body_bytes));
        Self { whole, head, delay, stall: None }
    }

    /// The same response, with a stall of `length` at the end of each period `every` from now on.
    pub(super) fn with_stall(self, (length, every): (Duration, Duration)) -> Self {
        let stall = (!length.is_zero()).then(|| (Instant::now(), length, every));
        Self { stall, ..self }
    }

    /// How long a response that is ready at `now` must wait: for its delay, or for the end of a
    /// stall.
    fn wait(&self, now: Instant) -> Duration {
        let Some((from, length, every)) = self.stall else { return self.delay };
        let since = now.saturating_duration_since(from).as_nanos() % every.as_nanos().max(1);
        let left = every.as_nanos() - since;
        let stalled = if since >= every.saturating_sub(length).as_nanos() { left } else { 0 };
        self.delay.max(Duration::from_nanos(u64::try_from(stalled).unwrap_or(u64::MAX)))
    }
}

/// Serves one connection until it ends.
pub(super) async fn connection<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    answer: &Answer,
) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut out = Vec::with_capacity(answer.whole.len());
    let (mut filled, mut open) = (0, None::<Head>);
    loop {
        let received = stream.read(&mut buffer[filled..]).await?;
        if received == 0 {
            return Ok(());
        }
        filled += received;
        let round = ReceivedRequests { answer, out: &mut out };
        let (used, outcome) = round.requests(&buffer[..filled], &mut open);
        if !out.is_empty() {
            if !answer.delay.is_zero() || answer.stall.is_some() {
                tokio::time::sleep(answer.wait(Instant::now())).await;
            }
            stream.write_all(&out).await?;
            out.clear();
        }
        if outcome == Outcome::Close || (used == 0 && filled == BUFFER) {
            return stream.shutdown().await;
        }
        buffer.copy_within(used..filled, 0);
        filled -= used;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    More,
    Close,
}

/// The requests of one receive.
struct ReceivedRequests<'a> {
    answer: &'a Answer,
    out: &'a mut Vec<u8>,
}

impl ReceivedRequests<'_> {
    /// Answers every request that ends in `bytes`. `open` is the request whose body is incomplete.
    /// Returns the number of bytes consumed.
    fn requests(self, bytes: &[u8], open: &mut Option<Head>) -> (usize, Outcome) {
        let mut used = 0;
        while used < bytes.len() {
            let mut head = match open.take() {
                Some(head) => head,
                None => match message::head(&bytes[used..]) {
                    Ok(Some(head)) => {
                        used += head.length;
                        if head.expects && !head.body.is_done() {
                            self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                        }
                        head
                    }
                    Ok(None) => return (used, Outcome::More),
                    Err(_) => return self.refuse(used),
                },
            };
            if !head.body.is_done() {
                match head.body.take(&bytes[used..], |_| ()) {
                    Ok(taken) => used += taken,
                    Err(_) => return self.refuse(used),
                }
                if !head.body.is_done() {
                    *open = Some(head);
                    return (used, Outcome::More);
                }
            }
            let end = if head.bodiless { self.answer.head } else { self.answer.whole.len() };
            self.out.extend_from_slice(&self.answer.whole[..end]);
            if head.close {
                return (used, Outcome::Close);
            }
        }
        (used, Outcome::More)
    }

    fn refuse(self, used: usize) -> (usize, Outcome) {
        self.out
            .extend_from_slice(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        (used, Outcome::Close)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Response to `input`, sent in one piece and byte by byte.
    fn answers(input: &[u8]) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = Answer::new(3, Duration::ZERO);
        let run = |step: usize| {
            runtime.block_on(async {
                let (mut client, server) = tokio::io::duplex(1 << 16);
                let feed = async {
                    for part in input.chunks(step) {
                        // The server may have closed already. Some inputs make it do so.
                        if client.write_all(part).await.is_err() {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                    let _ = client.shutdown().await;
                    let mut out = String::new();
                    client.read_to_string(&mut out).await.unwrap();
                    out
                };
                tokio::join!(connection(server, &answer), feed).1
            })
        };
        let whole = run(input.len());
        assert_eq!(run(1), whole);
        whole
    }

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\n";

    #[test]
    fn a_stall_holds_answers_until_it_is_over() {
        let second = Duration::from_secs(1);
        let answer = Answer::new(3, second / 100).with_stall((second, 10 * second));
        let (from, ..) = answer.stall.unwrap();
        for (at, wait) in [(0.0, 0.01), (8.9, 0.01), (9.0, 1.0), (9.75, 0.25), (10.0, 0.01), (19.5, 0.5)] {
            let waits = answer.wait(from + Duration::from_secs_f64(at)).as_secs_f64();
            assert!((waits - wait).abs() < 1e-6, "{at}: {waits}");
        }
        assert_eq!(Answer::new(3, second).with_stall((Duration::ZERO, second)).wait(from), second);
    }

    #[test]
    fn pipelined_requests_are_answered_in_one_go() {
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
        let all = format!("{get}{post}{chunked}{get}");
        assert_eq!(answers(all.as_bytes()), format!("{OK}the").repeat(4));
    }

    #[test]
    fn head_has_no_body_and_close_closes() {
        assert_eq!(
            answers(b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
            OK
        );
    }

    #[test]
    fn expectation_is_answered_before_the_body() {
        let request = b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(answers(request), format!("HTTP/1.1 100 Continue\r\n\r\n{OK}the"));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(answers(b"\0\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(
            answers(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
                .starts_with("HTTP/1.1 400 ")
        );
    }
}

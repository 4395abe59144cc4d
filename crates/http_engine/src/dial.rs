//! Dial: connects to a host that may have several addresses, some of them unreachable.
//!
//! Owns: the order in which addresses are tried, and when the next one is tried (a simple form of
//! RFC 8305), and how a connection notices that its peer has vanished. Does not own: the overall
//! time limit, TLS, the protocol on the connection.
//!
//! An unreachable address gives no answer, and waiting for it would leave no time for the others.
//! So the next address is tried as soon as the last one has failed, or has not answered within
//! `MOMENT`. The first connection that succeeds is used.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// How long to wait for an address before the next is tried in parallel, as RFC 8305 §5 recommends.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// How connections find out that their peer has vanished without a word: after 20 s without bytes,
/// three unanswered questions end them. Tunnels and streams may be silent without a limit.
pub(crate) fn keepalive() -> TcpKeepalive {
    const INTERVAL: Duration = Duration::from_secs(20);
    TcpKeepalive::new().with_time(INTERVAL).with_interval(INTERVAL).with_retries(3)
}

/// Connects to the address of the host that answers first.
///
/// # Errors
/// The name cannot be resolved or has no address, or all addresses failed; the error is that of the
/// last failure.
pub async fn dial((host, port): (&str, u16)) -> io::Result<TcpStream> {
    dial_addresses(lookup_host((host, port)).await?.collect()).await
}

/// Connects to the address that answers first.
///
/// # Errors
/// There is no address, or all failed; the error is that of the last failure.
pub(crate) async fn dial_addresses(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let stream = connect_first(alternate_families(addresses), TcpStream::connect).await?;
    SockRef::from(&stream).set_tcp_keepalive(&keepalive())?;
    Ok(stream)
}

/// Orders addresses so that the two families alternate, starting with the one that the system
/// prefers. Often a whole family is unreachable.
fn alternate_families(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let preferred = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut one, mut other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == preferred);
    let pairs = one.len().min(other.len());
    let (one_rest, other_rest) = (one.split_off(pairs), other.split_off(pairs));
    let paired = one.into_iter().zip(other).flat_map(|(one, other)| [one, other]);
    paired.chain(one_rest).chain(other_rest).collect()
}

async fn connect_first<A, T, F>(addresses: Vec<A>, connect: impl Fn(A) -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let mut waiting = addresses.into_iter();
    let mut trying = Vec::new();
    let mut refused = None;
    loop {
        if let Some(address) = waiting.next() {
            trying.push(Box::pin(connect(address)));
        } else if trying.is_empty() {
            let nowhere = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            return Err(refused.unwrap_or_else(nowhere));
        }
        let ended = if waiting.len() == 0 {
            first_completed(&mut trying).await
        } else {
            match timeout(ATTEMPT_DELAY, first_completed(&mut trying)).await {
                Ok(ended) => ended,
                Err(_) => continue,
            }
        };
        match ended {
            Ok(connection) => return Ok(connection),
            Err(error) => refused = Some(error),
        }
    }
}

/// Waits for the first future to complete, and removes it.
async fn first_completed<F: Future>(trying: &mut Vec<Pin<Box<F>>>) -> F::Output {
    poll_fn(|cx| {
        for at in 0..trying.len() {
            if let Poll::Ready(end) = trying[at].as_mut().poll(cx) {
                drop(trying.remove(at));
                return Poll::Ready(end);
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    /// How an address behaves in the test.
    #[derive(Clone, Copy)]
    enum Manner {
        Answers(u64),
        Refuses(u64),
        Dead,
    }
    use Manner::{Answers, Dead, Refuses};

    /// The address that answered, or the last error, and the elapsed milliseconds.
    async fn raced(manners: &[Manner]) -> (Result<usize, String>, u128) {
        let began = Instant::now();
        let addresses = manners.iter().copied().enumerate().collect();
        let connected = connect_first(addresses, |(at, manner)| async move {
            match manner {
                Answers(after) => {
                    sleep(Duration::from_millis(after)).await;
                    Ok(at)
                }
                Refuses(after) => {
                    sleep(Duration::from_millis(after)).await;
                    Err(io::Error::other(at.to_string()))
                }
                Dead => std::future::pending().await,
            }
        });
        let connected = timeout(Duration::from_secs(3), connected).await;
        let connected = connected.unwrap_or_else(|_| Err(io::Error::other("late")));
        (connected.map_err(|error| error.to_string()), began.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_dead_costs_a_moment() {
        assert_eq!(raced(&[Answers(10), Answers(1)]).await, (Ok(0), 10));
        assert_eq!(raced(&[Dead, Answers(10)]).await, (Ok(1), 260));
        assert_eq!(raced(&[Dead, Dead, Dead, Dead, Answers(10)]).await, (Ok(4), 1010));
        assert_eq!(raced(&[Dead, Dead]).await, (Err("late".into()), 3000));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_slow_goes_on_while_the_next_is_tried() {
        assert_eq!(raced(&[Answers(900), Dead, Dead, Answers(400)]).await, (Ok(0), 900));
        assert_eq!(raced(&[Answers(900), Answers(100)]).await, (Ok(1), 350));
    }

    #[tokio::test(start_paused = true)]
    async fn who_refuses_gives_way_at_once() {
        assert_eq!(raced(&[Refuses(0), Answers(10)]).await, (Ok(1), 10));
        assert_eq!(raced(&[Dead, Refuses(50), Answers(10)]).await, (Ok(2), 310));
        assert_eq!(raced(&[Refuses(1), Refuses(2), Refuses(3)]).await, (Err("2".into()), 6));
        assert_eq!(raced(&[Refuses(700), Refuses(1)]).await, (Err("0".into()), 700));
        assert_eq!(raced(&[]).await, (Err("the name has no address".into()), 0));
    }

    #[tokio::test]
    async fn both_ends_of_a_connection_notice_that_the_other_has_vanished() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = crate::listen::bind_tcp(any, crate::listen::Claim::Exclusive).unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialled = dial(("127.0.0.1", port)).await.unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        for socket in [SockRef::from(&dialled), SockRef::from(&accepted)] {
            assert!(socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(20));
        }
    }

    #[test]
    fn the_families_take_turns() {
        let of = |text: &str| text.split(' ').map(|a| a.parse().unwrap()).collect::<Vec<SocketAddr>>();
        for (resolved, tried) in [
            ("[::1]:1 [::2]:1 [::3]:1 1.0.0.1:1 1.0.0.2:1", "[::1]:1 1.0.0.1:1 [::2]:1 1.0.0.2:1 [::3]:1"),
            ("1.0.0.1:1 [::1]:1 [::2]:1", "1.0.0.1:1 [::1]:1 [::2]:1"),
            ("1.0.0.1:1 1.0.0.2:1", "1.0.0.1:1 1.0.0.2:1"),
        ] {
            assert_eq!(alternate_families(of(resolved)), of(tried), "{resolved}");
        }
        assert!(alternate_families(Vec::new()).is_empty());
    }

    #[tokio::test]
    async fn a_name_and_an_address_are_reached() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost"] {
            dial((host, port)).await.unwrap();
        }
        assert_eq!(dial(("127.0.0.1", 1)).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}

//! Tests with the decoder of the `h2` crate: it reads the same from a connection whose repeated strings
//! were decoded in front of it, and ends for the same reason.

use std::cell::Cell;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::http2::huffman::tests::string_literal;
use crate::http2::server_socket::ServerSocket;
use crate::io::Stream;

/// What a server reads: requests with their fields, and the reason for which the connection ended.
type Received = (Vec<Vec<(String, Vec<u8>, bool)>>, Option<h2::Reason>);

/// Receives until the connection fails, or all was sent and nothing more comes of it. A connection that
/// its client closes would lose what was not accepted yet.
async fn serve(io: impl AsyncRead + AsyncWrite + Unpin, all_sent: &Cell<bool>) -> Received {
    let mut requests = Vec::new();
    let mut connection = match h2::server::handshake(io).await {
        Ok(connection) => connection,
        Err(error) => return (requests, error.reason()),
    };
    loop {
        let next = tokio::select! {
            biased;
            next = connection.accept() => next,
            () = settled(all_sent) => None,
        };
        match next {
            None => return (requests, None),
            Some(Ok((request, _))) => {
                let uri = ("uri".to_owned(), request.uri().to_string().into_bytes(), false);
                let fields = request.headers().iter();
                let fields = fields
                    .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec(), value.is_sensitive()));
                requests.push(std::iter::once(uri).chain(fields).collect());
            }
            Some(Err(error)) => return (requests, error.reason()),
        }
    }
}

/// Waits until what was sent had many chances to be read.
async fn settled(all_sent: &Cell<bool>) {
    let mut turns = 0;
    while turns < 50 {
        tokio::task::yield_now().await;
        turns += u32::from(all_sent.get());
    }
}

/// What is received from a client that sends this, without the detour and with it. Then, whether the
/// detour remembers something.
async fn both(sent: &[u8]) -> (Received, Received, bool) {
    let pair = || UnixStream::pair().unwrap();
    let ((mut plain_client, plain), (mut client, io)) = (pair(), pair());
    let socket = ServerSocket::new(Stream::Unix(io));
    let all_sent = Cell::new(false);
    let sending = async {
        // A server that has ended accepts no more.
        let _ = tokio::join!(plain_client.write_all(sent), client.write_all(sent));
        all_sent.set(true);
    };
    let serving = async { tokio::join!(serve(plain, &all_sent), serve(socket.clone(), &all_sent)) };
    let ((direct, detour), ()) = tokio::join!(serving, sending);
    (direct, detour, !socket.remembers_nothing())
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// A header block of a request: some fields in each representation (RFC 7541 §6), with values that
/// repeat within a connection, and some that do not.
fn block(random: &mut Random, values: &[Vec<u8>]) -> Vec<u8> {
    // `GET`, `http`, `/`, and an authority.
    let mut out = vec![0x82, 0x86, 0x84, 0x01];
    out.extend(string_literal(b"app.test", random.below(2) == 0));
    if random.below(8) == 0 {
        // A size of the table, which is only valid at the start of a block.
        out.splice(0..0, [[0x3f, 0x01], [0x20, 0x20]][random.below(2)]);
    }
    for _ in 0..random.below(7) {
        let text = if random.below(5) == 0 {
            vec![b'a' + u8::try_from(random.below(26)).unwrap(); random.below(600)]
        } else {
            values[random.below(values.len())].clone()
        };
        let value = string_literal(&text, random.below(5) != 0);
        if random.below(60) == 0 {
            // An entry of the table that is built on the way, if it has as many.
            out.push([0xbe, 0xbf, 0xc0][random.below(3)]);
            continue;
        }
        let start: &[u8] = match random.below(6) {
            0 => &[0x57],       // `authorization`, indexed
            1 => &[0x0f, 0x08], // not indexed
            2 => &[0x1f, 0x08], // never indexed
            3 => &[0x60],       // `cookie`, indexed
            4 => &[&[0x40][..], &string_literal(b"x-new", true)].concat(),
            _ => &[&[0x10][..], &string_literal(b"x-never", false)].concat(),
        };
        out.extend_from_slice(start);
        out.extend(value);
    }
    out
}

/// The bytes of a connection with some requests.
fn connection(random: &mut Random) -> Vec<u8> {
    let values: Vec<Vec<u8>> = (0..3)
        .map(|at| {
            let length = [20, 90, 130, 300, 900, 3000][random.below(6)];
            (0..length).map(|n| b"eyJhbGciOi.-_09~ \t\x01"[(n * (at + 7)) % (15 + random.below(2))]).collect()
        })
        .collect();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream in 0..12_u32 {
        let mut block = block(random, &values);
        if random.below(40) == 0 {
            let at = random.below(block.len());
            block[at] ^= 1 << random.below(8);
        }
        let mut flags = 0x5;
        if random.below(5) == 0 {
            // With a priority.
            flags |= 0x20;
            block.splice(0..0, [0, 0, 0, 0, 16]);
        }
        let [_, length @ ..] = u32::try_from(block.len()).unwrap().to_be_bytes();
        bytes.extend([&length[..], &[1, flags], &(2 * stream + 1).to_be_bytes(), &block].concat());
    }
    if random.below(10) == 0 {
        bytes.truncate(24 + random.below(bytes.len() - 24));
    }
    bytes
}

#[tokio::test]
async fn the_decoder_reads_the_same_with_and_without_the_detour() {
    let mut random = Random(1);
    let (mut whole, mut failed, mut remembered) = (0, 0, 0);
    for number in 0..1500 {
        let sent = connection(&mut random);
        let (direct, detour, remembers) = both(&sent).await;
        assert_eq!(detour, direct, "connection {number}: {sent:x?}");
        whole += usize::from(direct.0.len() == 12);
        failed += usize::from(direct.1.is_some());
        remembered += usize::from(remembers);
    }
    assert!(whole > 300 && failed > 100 && remembered > 300, "{whole}, {failed}, {remembered}");
}

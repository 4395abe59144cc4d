//! Name server for tests: answers with addresses that the test sets, over UDP and TCP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot go on fails"
)]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::resolver::Resolver;

/// Longest answer over UDP without EDNS (RFC 1035 section 4.2.1).
const MAX_UDP: usize = 512;

/// A name server on a port of the loopback address.
#[derive(Debug, Clone)]
pub struct NameServer {
    port: u16,
    zone: Arc<Mutex<Zone>>,
}

/// What the server answers.
#[derive(Debug, Default)]
struct Zone {
    /// Addresses and time to live in seconds, by name without the final dot.
    names: HashMap<String, (Vec<IpAddr>, u32)>,
    queries: Vec<String>,
    broken: bool,
}

impl NameServer {
    /// Starts a server that knows no name.
    pub fn start() -> Self {
        let zone = Arc::<Mutex<Zone>>::default();
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").expect("loopback");
            let port = udp.local_addr().expect("address").port();
            if let Ok(tcp) = TcpListener::bind(("127.0.0.1", port)) {
                break (udp, tcp);
            }
        };
        let server = Self { port: udp.local_addr().expect("address").port(), zone };
        let (over_udp, over_tcp) = (server.clone(), server.clone());
        std::thread::spawn(move || {
            let mut query = [0; 4096];
            while let Ok((length, from)) = udp.recv_from(&mut query) {
                let mut answer = over_udp.answer(&query[..length]);
                if answer.len() > MAX_UDP {
                    // Truncated, without any record.
                    answer.truncate(question_end(&query[..length]));
                    answer[2] |= 0b10;
                    answer[6..12].fill(0);
                }
                let _ = udp.send_to(&answer, from);
            }
        });
        std::thread::spawn(move || {
            for mut socket in tcp.incoming().flatten() {
                let mut length = [0; 2];
                while socket.read_exact(&mut length).is_ok() {
                    let mut query = vec![0; u16::from_be_bytes(length).into()];
                    socket.read_exact(&mut query).expect("a query");
                    let answer = over_tcp.answer(&query);
                    let length = u16::try_from(answer.len()).expect("short").to_be_bytes();
                    if socket.write_all(&[&length, answer.as_slice()].concat()).is_err() {
                        break;
                    }
                }
            }
        });
        server
    }

    /// Sets the addresses of a name. Without addresses the name exists all the same.
    pub fn set(&self, name: &str, addresses: &[&str], ttl: u32) {
        let addresses = addresses.iter().map(|address| address.parse().expect("address")).collect();
        self.zone.lock().unwrap().names.insert(name.into(), (addresses, ttl));
    }

    /// Whether the server fails (SERVFAIL) from now on.
    pub fn set_broken(&self, broken: bool) {
        self.zone.lock().unwrap().broken = broken;
    }

    /// Number of queries for the IPv4 addresses of a name so far.
    pub fn queries(&self, name: &str) -> usize {
        self.zone.lock().unwrap().queries.iter().filter(|query| *query == name).count()
    }

    /// A resolver that asks this server, with further lines in `resolv.conf` and with this hosts
    /// file. The files are written to `dir`.
    pub fn resolver(&self, dir: &Path, options: &str, hosts: &str) -> Resolver {
        let (resolv_conf, hosts_file) = (dir.join("resolv.conf"), dir.join("hosts"));
        std::fs::write(&resolv_conf, format!("nameserver 127.0.0.1\n{options}\n")).expect("resolv.conf");
        std::fs::write(&hosts_file, hosts).expect("hosts");
        Resolver::from_files(resolv_conf, hosts_file, self.port)
    }

    fn answer(&self, query: &[u8]) -> Vec<u8> {
        let end = question_end(query);
        let mut labels = Vec::new();
        let mut at = 12;
        while query[at] > 0 {
            let length = usize::from(query[at]);
            labels.push(String::from_utf8_lossy(&query[at + 1..=at + length]).to_lowercase());
            at += 1 + length;
        }
        let name = labels.join(".");
        let kind = u16::from_be_bytes([query[end - 4], query[end - 3]]);
        let mut zone = self.zone.lock().unwrap();
        if kind == 1 {
            zone.queries.push(name.clone());
        }
        let known = zone.names.get(&name);
        let records: Vec<_> = match known {
            Some((addresses, ttl)) if !zone.broken => {
                let family = addresses.iter().filter(|a| kind == if a.is_ipv4() { 1 } else { 28 });
                family.map(|address| (*address, *ttl)).collect()
            }
            _ => Vec::new(),
        };
        // Response, recursion desired and available; SERVFAIL is 2, NXDOMAIN is 3.
        let code = if zone.broken { 2 } else { u8::from(known.is_none()) * 3 };
        let mut answer = query[..end].to_vec();
        answer[2..4].copy_from_slice(&[0x81, 0x80 | code]);
        answer[6..8].copy_from_slice(&u16::try_from(records.len()).expect("few").to_be_bytes());
        answer[8..12].fill(0);
        for (address, ttl) in records {
            // The name is that of the question; the class is the internet.
            answer.extend_from_slice(&[0xC0, 0x0C]);
            answer.extend_from_slice(&kind.to_be_bytes());
            answer.extend_from_slice(&[0, 1]);
            answer.extend_from_slice(&ttl.to_be_bytes());
            let octets = match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            answer.extend_from_slice(&u16::try_from(octets.len()).expect("short").to_be_bytes());
            answer.extend_from_slice(&octets);
        }
        answer
    }
}

/// Where the question of a message ends.
fn question_end(query: &[u8]) -> usize {
    let name = query[12..].iter().position(|byte| *byte == 0).expect("a name");
    12 + name + 1 + 4
}

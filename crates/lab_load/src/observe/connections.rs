//! Accepted connections: counts the TCP connections that a program has accepted, from outside.
//!
//! A connection is identified by its client address and port. Connections that were opened and
//! closed between two reads are also seen, while one of their ends is in `TIME_WAIT` (one minute).
//! Unix sockets are not seen.
//!
//! For each read the kernel walks its whole hash table, however few connections there are. This
//! takes some milliseconds of a core, which delays a load that is sent from that core. Therefore
//! two counters are read first, which cost a hundredth of it.
//!
//! Owns: reading the kernel's tables of TCP connections when they have changed. Does not own: when
//! to check.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

/// Largest number of client addresses that are remembered per port. Above it, connections that are
/// forgotten may be counted again.
const MAX_KNOWN_CLIENTS: usize = 200_000;
/// Longest time without reading the tables, even if no connection was accepted. It is shorter than
/// the minute of `TIME_WAIT`, so that a closed connection is forgotten before its port is reused.
/// It also bounds the delay until a new listener is noticed.
const FORCED_READ_INTERVAL: Duration = Duration::from_secs(10);

/// Counts accepted connections at a set of ports.
#[derive(Debug, Default)]
pub struct AcceptedConnections {
    ports: BTreeMap<u16, Port>,
    /// Kernel counters at the last read of the tables, and its time.
    last_read: Option<(TcpCounters, Instant)>,
}

/// Kernel counters of TCP connections in this network namespace (RFC 4022, `tcpPassiveOpens` and
/// `tcpCurrEstab`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TcpCounters {
    accepted: u64,
    open: u64,
}

impl TcpCounters {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/net/snmp").ok()?)
    }

    /// Parses a line of names and the line of numbers after it.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
        let (names, numbers) = (lines.next()?, lines.next()?);
        let pairs = || names.split_ascii_whitespace().zip(numbers.split_ascii_whitespace());
        let of = |name| pairs().find(|(called, _)| *called == name)?.1.parse().ok();
        Some(Self { accepted: of("PassiveOpens")?, open: of("CurrEstab")? })
    }
}

#[derive(Debug, Default)]
struct Port {
    count: u64,
    /// `true` once a listening socket was seen. Without one, such as with a Unix socket, a count of
    /// 0 would be wrong.
    listens: bool,
    /// Clients at the last read. A client that disappears and appears again is a new connection.
    known_clients: BTreeSet<(Box<str>, u16)>,
}

impl AcceptedConnections {
    /// Creates a counter of the connections at these ports.
    pub fn at(ports: impl IntoIterator<Item = u16>) -> Self {
        let ports = ports.into_iter().map(|port| (port, Port::default())).collect();
        Self { ports, last_read: None }
    }

    /// Reads the tables if necessary, and counts new connections.
    pub fn update(&mut self) {
        if self.ports.is_empty() || !self.is_due(TcpCounters::read(), Instant::now()) {
            return;
        }
        let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
        let tables: Vec<String> = tables.iter().filter_map(|table| fs::read_to_string(table).ok()).collect();
        self.count_rows(&tables);
    }

    /// Whether the tables may have changed. If the counters cannot be read, the tables are always
    /// read.
    fn is_due(&mut self, counted: Option<TcpCounters>, now: Instant) -> bool {
        let spared = self
            .last_read
            .is_some_and(|(before, at)| Some(before) == counted && now < at + FORCED_READ_INTERVAL);
        if !spared {
            // The counters are read before the tables. A connection in between is looked for again
            // at the next check, so none is missed.
            self.last_read = counted.map(|counted| (counted, now));
        }
        !spared
    }

    fn count_rows(&mut self, tables: &[String]) {
        let mut seen: BTreeMap<u16, BTreeSet<(Box<str>, u16)>> = BTreeMap::new();
        for (local, remote) in tables.iter().flat_map(|table| table.lines().skip(1).filter_map(parse_row)) {
            if remote.1 == 0
                && let Some(port) = self.ports.get_mut(&local.1)
            {
                port.listens = true;
            }
            // For a local connection both ends are in the table.
            for ((_, port), (address, client)) in [(local, remote), (remote, local)] {
                if client != 0 && self.ports.contains_key(&port) {
                    seen.entry(port).or_default().insert((address.into(), client));
                }
            }
        }
        for (number, port) in &mut self.ports {
            let mut now = seen.remove(number).unwrap_or_default();
            port.count += now.iter().filter(|end| !port.known_clients.contains(*end)).count() as u64;
            while now.len() > MAX_KNOWN_CLIENTS {
                now.pop_first();
            }
            port.known_clients = now;
        }
    }

    /// Connections so far at these ports; `None` if none of them is watched and has a listener.
    pub fn count(&self, ports: &[u16]) -> Option<u64> {
        let listening = ports.iter().filter_map(|port| self.ports.get(port)).filter(|port| port.listens);
        let counts: Vec<u64> = listening.map(|port| port.count).collect();
        (!counts.is_empty()).then(|| counts.iter().sum())
    }
}

type End<'a> = (&'a str, u16);

/// The two ends of a row. A listening socket has client port 0.
fn parse_row(line: &str) -> Option<(End<'_>, End<'_>)> {
    let mut columns = line.split_ascii_whitespace().skip(1);
    let end = |column: &'_ str| -> Option<(usize, u16)> {
        let at = column.rfind(':')?;
        Some((at, u16::from_str_radix(&column[at + 1..], 16).ok()?))
    };
    let (local, remote) = (columns.next()?, columns.next()?);
    let ((local_at, local_port), (remote_at, remote_port)) = (end(local)?, end(remote)?);
    Some(((&local[..local_at], local_port), (&remote[..remote_at], remote_port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[&str]) -> Vec<String> {
        let rows: Vec<String> =
            rows.iter().map(|row| format!("   0: {row} 01 00000000:00000000\n")).collect();
        let rows = rows.concat();
        vec![format!("  sl  local_address rem_address   st\n{rows}")]
    }

    #[test]
    fn each_connection_counts_once_whichever_end_is_seen() {
        let mut accepted = AcceptedConnections::at([80, 81]);
        let (one, back) = ("0100007F:0050 0100007F:9000", "0100007F:9000 0100007F:0050");
        accepted.count_rows(&table(&["0100007F:0050 00000000:0000", one, back]));
        assert_eq!(accepted.count(&[81]), None, "nobody listens there");
        accepted.count_rows(&table(&["0100007F:0051 00000000:0000", one, back]));
        assert_eq!(accepted.count(&[80]), Some(1), "both ends of one, and nobody's listening socket");
        accepted.count_rows(&table(&[back, "0100007F:0050 0100007F:9001", "0100007F:1234 0100007F:5678"]));
        assert_eq!(
            (accepted.count(&[80, 81]), accepted.count(&[81]), accepted.count(&[82])),
            (Some(2), Some(0), None)
        );
        accepted.count_rows(&table(&[]));
        accepted.count_rows(&table(&[one]));
        assert_eq!(accepted.count(&[80]), Some(3), "the same numbers again are another connection");
    }

    #[test]
    fn tables_are_read_when_somebody_came_or_went() {
        let counted = |accepted, open| Some(TcpCounters { accepted, open });
        let mut ports = AcceptedConnections::at([80]);
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(ports.is_due(counted(5, 3), start), "the first time");
        assert!(!ports.is_due(counted(5, 3), after(1)));
        assert!(ports.is_due(counted(6, 3), after(2)), "one came and another went");
        assert!(ports.is_due(counted(6, 2), after(3)), "one went, and may come back with the same numbers");
        assert!(!ports.is_due(counted(6, 2), after(12)));
        assert!(ports.is_due(counted(6, 2), after(13)), "from time to time");
        assert!(ports.is_due(None, after(14)) && ports.is_due(None, after(14)), "nothing is known");
        assert!(ports.is_due(counted(6, 2), after(14)));
    }

    #[test]
    fn counters_are_found_by_their_names() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: MaxConn ActiveOpens PassiveOpens CurrEstab\nTcp: -1 18 2 4\n";
        assert_eq!(TcpCounters::parse(text), Some(TcpCounters { accepted: 2, open: 4 }));
        assert_eq!(TcpCounters::parse("Tcp: MaxConn\nTcp: -1\n"), None);
        assert_eq!(TcpCounters::parse("Tcp: PassiveOpens CurrEstab\n"), None);
        assert!(TcpCounters::read().is_some(), "this kernel has them");
    }

    #[test]
    fn connections_of_this_process_are_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut accepted = AcceptedConnections::at([port]);
        accepted.update();
        // A former client on this port may still be in `TIME_WAIT`.
        let before = accepted.count(&[port]).unwrap();
        let connections: Vec<_> =
            (0..3).map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        accepted.update();
        drop(connections);
        accepted.update();
        assert_eq!(accepted.count(&[port]), Some(before + 3));
    }
}

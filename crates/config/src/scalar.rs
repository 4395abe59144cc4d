//! Scalar types: strings of the configuration file that have their own grammar, such as durations,
//! sizes, networks and names.
//!
//! A value of each type is always valid. The file holds it as a string. The schema gives it a
//! `format` and a `pattern` (for editors). A wrong value gets a one-sentence explanation.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;

/// Duration: `"500ms"`, `"30s"`, `"5m"`, `"2h"`, `"1d"`, or parts from large to small: `"1m30s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timespan(pub Duration);

/// Number of bytes: `"512B"`, `"32KiB"`, `"1MiB"`, `"2GiB"`. Units are powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Upper limit, or the word `"unlimited"` (`None`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound<T>(pub Option<T>);

/// Network: `"10.0.0.0/8"`, `"fd00::/8"`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network(pub IpNet);

/// IP address and port: `"127.0.0.1:8080"`, `"[::]:8443"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(pub SocketAddr);

/// Listen address: an [`Address`], or the path of a Unix socket such as
/// `"unix:/run/postern/web.sock"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointAddress {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// The path of a Unix socket, as the file writes it.
    Unix(PathBuf),
}

/// Permission bits of a file, in octal: `"660"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(pub u32);

/// Name of a listener, issuer, upstream, route or policy. It has at most 64 letters, digits, `.`,
/// `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub String);

/// Field name (RFC 9110 section 5.1) in any case, without the colon.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldName(pub String);

/// Request method (RFC 9110 section 9.1), in upper case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Method(pub String);

/// Time of day: `"08:00"`, to `"24:00"`. In minutes after midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClockTime(pub u16);

/// Time zone without daylight saving time: `"UTC"`, or an offset from it such as `"+01:00"`. In
/// minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZoneOffset(pub i16);

/// Number of worker threads, or `"auto"` (`None`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workers(pub Option<u16>);

/// String value of the configuration file that has its own grammar.
pub(super) trait Word: Sized {
    /// Value of `format` in the schema.
    const FORMAT: &'static str;
    /// Value of `pattern` in the schema. It never rejects a text that [`Word::read`] accepts.
    const PATTERN: &'static str;
    /// Description of a valid value, with an example. Completes "expected …".
    const EXPECTED: &'static str;
    /// Parses the text.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the text. The message is empty when `EXPECTED` already says
    /// everything.
    fn read(text: &str) -> Result<Self, String>;
}

/// What is wrong with a text, and how to correct it (may be empty).
pub(super) type ScalarFault = (String, String);

/// Checks a text against the `format` of the schema. A text with an unknown format passes.
pub(super) fn check(format: &str, text: &str) -> Result<(), ScalarFault> {
    type Check = fn(&str) -> Result<(), ScalarFault>;
    const WORDS: &[(&str, Check)] = &[
        (Timespan::FORMAT, explain::<Timespan>),
        (Bound::<Timespan>::FORMAT, explain::<Bound<Timespan>>),
        (ByteSize::FORMAT, explain::<ByteSize>),
        (Bound::<ByteSize>::FORMAT, explain::<Bound<ByteSize>>),
        (Network::FORMAT, explain::<Network>),
        (Address::FORMAT, explain::<Address>),
        (EndpointAddress::FORMAT, explain::<EndpointAddress>),
        (Mode::FORMAT, explain::<Mode>),
        (Name::FORMAT, explain::<Name>),
        (FieldName::FORMAT, explain::<FieldName>),
        (Method::FORMAT, explain::<Method>),
        (ClockTime::FORMAT, explain::<ClockTime>),
        (ZoneOffset::FORMAT, explain::<ZoneOffset>),
    ];
    WORDS.iter().find(|(f, _)| *f == format).map_or(Ok(()), |(_, check)| check(text))
}

/// Description of a valid value for a `format` of the schema. Completes "expected …".
pub(super) fn expected(format: &str) -> Option<&'static str> {
    const WORDS: &[(&str, &str)] = &[
        (Timespan::FORMAT, Timespan::EXPECTED),
        (Bound::<Timespan>::FORMAT, Bound::<Timespan>::EXPECTED),
        (ByteSize::FORMAT, ByteSize::EXPECTED),
        (Bound::<ByteSize>::FORMAT, Bound::<ByteSize>::EXPECTED),
        (Network::FORMAT, Network::EXPECTED),
        (Address::FORMAT, Address::EXPECTED),
        (EndpointAddress::FORMAT, EndpointAddress::EXPECTED),
        (Mode::FORMAT, Mode::EXPECTED),
        (Name::FORMAT, Name::EXPECTED),
        (FieldName::FORMAT, FieldName::EXPECTED),
        (Method::FORMAT, Method::EXPECTED),
        (ClockTime::FORMAT, ClockTime::EXPECTED),
        (ZoneOffset::FORMAT, ZoneOffset::EXPECTED),
    ];
    WORDS.iter().find(|(f, _)| *f == format).map(|(_, e)| *e)
}

fn explain<W: Word>(text: &str) -> Result<(), ScalarFault> {
    W::read(text).map(drop).map_err(|why| (format!("{text:?} is not {}", W::EXPECTED), why))
}

/// Implements serde and the schema for a [`Word`], from its grammar and its `Display`.
macro_rules! word {
    ($type:ty, $name:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
                <$type as Word>::read(&text).map_err(serde::de::Error::custom)
            }
        }
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "format": <$type as Word>::FORMAT,
                    "pattern": <$type as Word>::PATTERN,
                })
            }
        }
    };
}

word!(Timespan, "Duration");
word!(ByteSize, "Size");
word!(Bound<Timespan>, "DurationOrUnlimited");
word!(Bound<ByteSize>, "SizeOrUnlimited");
word!(Network, "Network");
word!(Address, "Address");
word!(EndpointAddress, "ListenAddress");
word!(Mode, "FileMode");
word!(Name, "Name");
word!(FieldName, "FieldName");
word!(Method, "Method");
word!(ClockTime, "ClockTime");
word!(ZoneOffset, "ZoneOffset");

const TIME_UNITS: &[(&str, u64)] =
    &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl Word for Timespan {
    const FORMAT: &'static str = "duration";
    const PATTERN: &'static str = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$";
    const EXPECTED: &'static str = "a duration such as \"30s\", \"500ms\" or \"1m30s\"";

    fn read(text: &str) -> Result<Self, String> {
        let (mut rest, mut millis, mut finest) = (text, 0u64, 0);
        while !rest.is_empty() || finest == 0 {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, tail) = rest.split_at(digits);
            let letters = tail.len() - tail.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
            let (unit, tail) = tail.split_at(letters);
            let place = TIME_UNITS.iter().position(|(name, _)| *name == unit);
            let place = match (number, place) {
                ("", _) => return Err(String::new()),
                (_, None) if unit.is_empty() => return Err("the unit is missing (ms, s, m, h, d)".into()),
                (_, None) => return Err(format!("unknown unit `{unit}` (ms, s, m, h, d)")),
                (_, Some(place)) if place < finest => return Err("larger units come first, each once".into()),
                (_, Some(place)) => place,
            };
            let part = number.parse::<u64>().ok().and_then(|n| n.checked_mul(TIME_UNITS[place].1));
            millis = part.and_then(|p| millis.checked_add(p)).ok_or("it is too long")?;
            (rest, finest) = (tail, place + 1);
        }
        Ok(Self(Duration::from_millis(millis)))
    }
}

impl fmt::Display for Timespan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if millis == 0 {
            return f.write_str("0s");
        }
        for (unit, size) in TIME_UNITS {
            if millis >= *size {
                write!(f, "{}{unit}", millis / size)?;
                millis %= size;
            }
        }
        Ok(())
    }
}

const SIZE_UNITS: &[(&str, u64)] = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Word for ByteSize {
    const FORMAT: &'static str = "size";
    const PATTERN: &'static str = "^[0-9]+(B|KiB|MiB|GiB)$";
    const EXPECTED: &'static str = "a size such as \"32KiB\" or \"1MiB\"";

    fn read(text: &str) -> Result<Self, String> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let number: u64 = match number.parse() {
            Ok(n) => n,
            Err(_) if number.is_empty() => return Err(String::new()),
            Err(_) => return Err("it is too large".into()),
        };
        match SIZE_UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, size)) => number.checked_mul(*size).map(Self).ok_or_else(|| "it is too large".into()),
            None if unit.is_empty() => Err("the unit is missing (B, KiB, MiB, GiB)".into()),
            None => Err(format!("unknown unit `{unit}` (B, KiB, MiB, GiB)")),
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) =
            SIZE_UNITS.iter().find(|(_, s)| self.0 >= *s && self.0.is_multiple_of(*s)).unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / size)
    }
}

impl Word for Bound<Timespan> {
    const FORMAT: &'static str = "duration-or-unlimited";
    const PATTERN: &'static str = "^(unlimited|([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$";
    const EXPECTED: &'static str = "a duration such as \"60s\", or \"unlimited\"";

    fn read(text: &str) -> Result<Self, String> {
        if text == "unlimited" { Ok(Self(None)) } else { Timespan::read(text).map(|t| Self(Some(t))) }
    }
}

impl Word for Bound<ByteSize> {
    const FORMAT: &'static str = "size-or-unlimited";
    const PATTERN: &'static str = "^(unlimited|[0-9]+(B|KiB|MiB|GiB))$";
    const EXPECTED: &'static str = "a size such as \"64MiB\", or \"unlimited\"";

    fn read(text: &str) -> Result<Self, String> {
        if text == "unlimited" { Ok(Self(None)) } else { ByteSize::read(text).map(|t| Self(Some(t))) }
    }
}

impl<T: fmt::Display> fmt::Display for Bound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(bound) => bound.fmt(f),
            None => f.write_str("unlimited"),
        }
    }
}

impl Word for Network {
    const FORMAT: &'static str = "network";
    const PATTERN: &'static str = "^[0-9a-fA-F.:]+(/[0-9]{1,3})?$";
    const EXPECTED: &'static str = "a network such as \"10.0.0.0/8\" or \"fd00::/8\", or one address";

    fn read(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<std::net::IpAddr>() {
            return Ok(Self(address.into()));
        }
        let net = IpNet::from_str(text).map_err(|_| String::new())?;
        if net.trunc() != net {
            return Err(format!("host bits are set, write {}", net.trunc()));
        }
        Ok(Self(net))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Word for Address {
    const FORMAT: &'static str = "address";
    const PATTERN: &'static str = "^.+:[0-9]{1,5}$";
    const EXPECTED: &'static str = "an IP address and port such as \"127.0.0.1:8080\" or \"[::]:8443\"";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| {
            if text.starts_with(':') {
                format!("for all interfaces write \"0.0.0.0{text}\" or \"[::]{text}\"")
            } else if let Some(port) = text.strip_prefix("localhost:") {
                format!("host names are not resolved here, write \"127.0.0.1:{port}\"")
            } else {
                String::new()
            }
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Word for EndpointAddress {
    const FORMAT: &'static str = "listen-address";
    const PATTERN: &'static str = "^(.+:[0-9]{1,5}|unix:.+)$";
    const EXPECTED: &'static str =
        "an IP address and port such as \"127.0.0.1:8080\", or a socket such as \"unix:/run/web.sock\"";

    fn read(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix("unix:") else {
            return Address::read(text).map(|address| Self::Ip(address.0));
        };
        // Other programs write the URL of a Unix socket as `unix:///path`.
        let path = path.strip_prefix("//").unwrap_or(path);
        match path.as_bytes() {
            [] => Err("the path is missing".into()),
            [b'@' | 0, ..] => Err("an abstract socket would be open to every user of the machine".into()),
            path if path.contains(&0) => Err("there is a NUL in the path".into()),
            _ => Ok(Self::Unix(path.into())),
        }
    }
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Word for Mode {
    const FORMAT: &'static str = "file-mode";
    const PATTERN: &'static str = "^0?[0-7]{3}$";
    const EXPECTED: &'static str = "permission bits in octal such as \"660\"";

    fn read(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix('0').filter(|rest| rest.len() == 3).unwrap_or(text);
        if digits.len() != 3 || !digits.bytes().all(|b| matches!(b, b'0'..=b'7')) {
            return Err("three digits from 0 to 7: owner, group and others".into());
        }
        u32::from_str_radix(digits, 8).map(Self).map_err(|error| error.to_string())
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03o}", self.0)
    }
}

impl Word for Name {
    const FORMAT: &'static str = "name";
    const PATTERN: &'static str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
    const EXPECTED: &'static str = "a name";

    fn read(text: &str) -> Result<Self, String> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match text.chars().next() {
            None => Err("it is empty".into()),
            Some(first) if !first.is_ascii_alphanumeric() => {
                Err("it must begin with a letter or digit".into())
            }
            Some(_) if text.len() > 64 => Err("it is longer than 64 characters".into()),
            Some(_) => match text.chars().find(|c| !good(*c)) {
                Some(bad) => Err(format!("{bad:?} is not allowed (letters, digits, . _ -)")),
                None => Ok(Self(text.into())),
            },
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether the text is a `token`: one or more `tchar` (RFC 9110 section 5.6.2).
pub(super) fn is_token(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(good)
}

impl Word for FieldName {
    const FORMAT: &'static str = "field-name";
    const PATTERN: &'static str = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";
    const EXPECTED: &'static str = "a header name such as \"X-Tenant\"";

    fn read(text: &str) -> Result<Self, String> {
        if is_token(text) { Ok(Self(text.into())) } else { Err(String::new()) }
    }
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Word for Method {
    const FORMAT: &'static str = "method";
    const PATTERN: &'static str = "^[A-Z0-9!#$%&'+.^_`|~-]+$";
    const EXPECTED: &'static str = "a request method such as \"GET\"";

    fn read(text: &str) -> Result<Self, String> {
        if text.bytes().any(|b| b.is_ascii_lowercase()) {
            return Err(format!("methods are in upper case, write {:?}", text.to_ascii_uppercase()));
        }
        if text.contains('*') {
            return Err("a star is taken literally; remove `methods` to match every method".into());
        }
        if is_token(text) { Ok(Self(text.into())) } else { Err(String::new()) }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Minutes of `HH:MM` with two digits each.
fn minutes(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let two = |digits: &str| {
        let good = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit());
        good.then(|| digits.parse::<u16>().ok()).flatten()
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (minutes < 60).then_some(hours * 60 + minutes)
}

impl Word for ClockTime {
    const FORMAT: &'static str = "clock-time";
    const PATTERN: &'static str = "^([01][0-9]|2[0-4]):[0-5][0-9]$";
    const EXPECTED: &'static str = "a time of day such as \"08:00\"";

    fn read(text: &str) -> Result<Self, String> {
        match minutes(text) {
            Some(minutes) if minutes <= 24 * 60 => Ok(Self(minutes)),
            Some(_) => Err("a day ends at 24:00".into()),
            None => Err("write hours and minutes with two digits each, from 00:00 to 24:00".into()),
        }
    }
}

impl fmt::Display for ClockTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

impl Word for ZoneOffset {
    const FORMAT: &'static str = "zone-offset";
    const PATTERN: &'static str = "^(UTC|[+-][01][0-9]:[0-5][0-9])$";
    const EXPECTED: &'static str = "\"UTC\" or an offset from it such as \"+01:00\"";

    fn read(text: &str) -> Result<Self, String> {
        if text == "UTC" {
            return Ok(Self(0));
        }
        let (sign, offset) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(offset), _) => (1, offset),
            (_, Some(offset)) => (-1, offset),
            _ if text.contains('/') => {
                return Err("names of time zones are not known here, because their rules change".into());
            }
            _ => return Err(String::new()),
        };
        match minutes(offset).and_then(|minutes| i16::try_from(minutes).ok()) {
            Some(minutes) if minutes <= 14 * 60 => Ok(Self(sign * minutes)),
            Some(_) => Err("no time zone is more than 14:00 from UTC".into()),
            None => Err("write hours and minutes with two digits each".into()),
        }
    }
}

impl fmt::Display for ZoneOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("UTC"),
            offset => {
                let sign = if offset < 0 { '-' } else { '+' };
                write!(f, "{sign}{}", ClockTime(offset.unsigned_abs()))
            }
        }
    }
}

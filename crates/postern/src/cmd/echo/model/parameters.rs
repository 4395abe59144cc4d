//! Parameters of streams: when events are due, and how large they are.

use std::time::Duration;

use config::parse_duration;

/// Largest number of events of a stream.
const MAX_EVENTS: u64 = 1_000_000;
/// Largest event in bytes. Below every usual flow-control window of HTTP/2.
const MAX_SIZE: usize = 16_384;
/// Longest time before an event.
const MAX_WAIT: Duration = Duration::from_hours(1);

/// A parameter that cannot be used: its name, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parameter `{name}`: {reason}")]
pub(super) struct InvalidParameter {
    name: String,
    reason: String,
}

/// Shape of a stream of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamShape {
    /// Time before the first event.
    pub(super) first: Duration,
    /// Time between two events.
    pub(super) every: Duration,
    /// Number of events.
    pub(super) events: u64,
    /// Content of an event in bytes.
    pub(super) size: usize,
}

/// What a WebSocket sends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PushShape {
    /// Time between two messages; `None` to send none.
    pub(super) every: Option<Duration>,
    /// Content of a message in bytes.
    pub(super) size: usize,
}

impl StreamShape {
    /// Reads the shape from the target of a request; a parameter that is missing has its default.
    pub(super) fn of_target(target: &str) -> Result<Self, InvalidParameter> {
        let mut shape =
            Self { first: Duration::from_millis(50), every: Duration::from_millis(10), events: 50, size: 64 };
        for_each(target, |name, value| {
            match name {
                "first" => shape.first = wait(name, value)?,
                "every" => shape.every = wait(name, value)?,
                "events" => shape.events = number(name, value, MAX_EVENTS)?,
                "size" => shape.size = size(name, value)?,
                _ => return Err(unknown(name, "first, every, events, size")),
            }
            Ok(())
        })?;
        Ok(shape)
    }
}

impl PushShape {
    /// Reads the shape from the target of a WebSocket's handshake.
    pub(super) fn of_target(target: &str) -> Result<Self, InvalidParameter> {
        let mut shape = Self { every: None, size: 64 };
        for_each(target, |name, value| {
            match name {
                "push" => match wait(name, value)? {
                    Duration::ZERO => return Err(invalid(name, "must be above 0".to_owned())),
                    every => shape.every = Some(every),
                },
                "size" => shape.size = size(name, value)?,
                _ => return Err(unknown(name, "push, size")),
            }
            Ok(())
        })?;
        Ok(shape)
    }
}

fn for_each(
    target: &str,
    mut each: impl FnMut(&str, &str) -> Result<(), InvalidParameter>,
) -> Result<(), InvalidParameter> {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let mut seen = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if seen.contains(&name) {
            return Err(invalid(name, "is there twice".to_owned()));
        }
        seen.push(name);
        each(name, value)?;
    }
    Ok(())
}

fn invalid(name: &str, reason: String) -> InvalidParameter {
    InvalidParameter { name: name.to_owned(), reason }
}

fn unknown(name: &str, known: &str) -> InvalidParameter {
    invalid(name, format!("is unknown; there are {known}"))
}

fn wait(name: &str, value: &str) -> Result<Duration, InvalidParameter> {
    let wait = parse_duration(value)
        .map_err(|_| invalid(name, format!("`{value}` is not a duration such as 10ms or 2s")))?;
    if wait > MAX_WAIT { Err(invalid(name, format!("`{value}` is longer than 1h"))) } else { Ok(wait) }
}

fn number(name: &str, value: &str, most: u64) -> Result<u64, InvalidParameter> {
    let number = value.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| invalid(name, format!("`{value}` is not a number from 1 to {most}")))
}

fn size(name: &str, value: &str) -> Result<usize, InvalidParameter> {
    let most = MAX_SIZE;
    let size = value.parse().ok().filter(|size| (1..=most).contains(size));
    size.ok_or_else(|| invalid(name, format!("`{value}` is not a number of bytes from 1 to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_defaults_and_names() {
        let ms = Duration::from_millis;
        let default = StreamShape { first: ms(50), every: ms(10), events: 50, size: 64 };
        assert_eq!(StreamShape::of_target("/stream"), Ok(default.clone()));
        assert_eq!(
            StreamShape::of_target("/v1/stream?events=3&first=1s&every=0s&size=9"),
            Ok(StreamShape { first: ms(1000), every: ms(0), events: 3, size: 9 })
        );
        assert_eq!(PushShape::of_target("/x?push=20ms"), Ok(PushShape { every: Some(ms(20)), size: 64 }));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (query, words) in [
            ("every=10x", "parameter `every`: `10x`"),
            ("first=2h", "parameter `first`: `2h` is longer"),
            ("events=0", "parameter `events`: `0`"),
            ("events=", "parameter `events`: ``"),
            ("size=99999", "parameter `size`: `99999`"),
            ("size=1&size=2", "parameter `size`: is there twice"),
            ("speed=1", "parameter `speed`: is unknown; there are first,"),
        ] {
            let error = StreamShape::of_target(&format!("/stream?{query}")).unwrap_err().to_string();
            assert!(error.starts_with(words), "{query}: {error}");
        }
        let error = PushShape::of_target("/?push=0s").unwrap_err().to_string();
        assert_eq!(error, "parameter `push`: must be above 0");
    }
}

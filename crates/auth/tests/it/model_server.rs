//! Model of a server that reads a path: any order of the steps that servers are known to take, on
//! raw bytes. It shares no code with `auth::request`, whose readings are held against it. Used by
//! the fuzz target `paths` too.

/// Decodes every escape once, as leniently as any server might.
pub(crate) fn decode(text: &[u8]) -> Vec<u8> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if let (b'%', [high, low, ..]) = (first, behind)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            out.push(high << 4 | low);
            rest = &behind[2..];
        } else {
            out.push(first);
        }
    }
    out
}

/// A step that some server takes when it reads a path.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ServerStep {
    /// Decodes every escape. If the path is split already: in each segment.
    Decode,
    /// Decodes every escape but those of the slash, which stay as they are.
    DecodeButSlash,
    /// Splits the path into segments, and decodes each.
    DecodeSegments,
    /// Takes a backslash for a slash.
    Backslash,
    /// Ends the path at `?` or `#`.
    Cut,
    /// Removes parameters.
    Parameters,
    /// Merges slashes.
    Merge,
    /// Resolves dot segments.
    Dots,
}

impl ServerStep {
    /// Every step.
    pub(crate) const ALL: [Self; 8] = [
        Self::Decode,
        Self::DecodeButSlash,
        Self::DecodeSegments,
        Self::Backslash,
        Self::Cut,
        Self::Parameters,
        Self::Merge,
        Self::Dots,
    ];
}

/// What a percent sign stands for in a path that a server has read up to here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Percent {
    /// It begins an escape.
    Escape,
    /// It begins an escape of the slash, otherwise it is a percent sign.
    EscapeOfSlash,
    /// It is a percent sign.
    Itself,
    /// It is a percent sign; slashes within segments are [`SLASH_IN_SEGMENT`].
    ItselfInSegments,
}

/// What a server reads, in normal spelling: a slash separates segments, unless it is escaped.
/// `None`: the server refuses the path, because it leads above the root.
pub(crate) fn read_path(server: &[ServerStep], path: &str) -> Option<String> {
    let mut text = path.as_bytes().to_vec();
    let mut percent = Percent::Escape;
    for step in server {
        match step {
            ServerStep::Decode if percent != Percent::ItselfInSegments => {
                text = decode(&text);
                percent = Percent::Itself;
            }
            ServerStep::DecodeButSlash if percent != Percent::ItselfInSegments => {
                text = decode_but_slash(&text);
                percent = Percent::EscapeOfSlash;
            }
            ServerStep::Decode | ServerStep::DecodeButSlash | ServerStep::DecodeSegments => {
                let segments = text.split(|b| *b == b'/').map(decode);
                let segments = segments.map(|segment| {
                    segment.into_iter().map(|b| if b == b'/' { SLASH_IN_SEGMENT } else { b }).collect()
                });
                text = segments.collect::<Vec<Vec<u8>>>().join(&b'/');
                percent = Percent::ItselfInSegments;
            }
            ServerStep::Backslash => text.iter_mut().filter(|b| **b == b'\\').for_each(|b| *b = b'/'),
            ServerStep::Cut => {
                let end = text.iter().position(|b| matches!(b, b'?' | b'#')).unwrap_or(text.len());
                text.truncate(end);
            }
            ServerStep::Parameters => {
                let segments = text.split(|b| *b == b'/');
                let names = segments.map(|segment| segment.split(|b| *b == b';').next().unwrap_or_default());
                text = names.collect::<Vec<_>>().join(&b'/');
            }
            ServerStep::Merge => text.dedup_by(|a, b| *a == b'/' && *b == b'/'),
            ServerStep::Dots => {
                let mut kept: Vec<&[u8]> = Vec::new();
                for segment in text.split(|b| *b == b'/').skip(1) {
                    match segment {
                        b"." => {}
                        b".." => drop(kept.pop()?),
                        segment => kept.push(segment),
                    }
                }
                if matches!(text.rsplit(|b| *b == b'/').next(), Some(b"." | b"..")) {
                    kept.push(b"");
                }
                text = [&b"/"[..], &kept.join(&b'/')].concat();
            }
        }
    }
    Some(spell(&text, percent))
}

/// Decodes every escape but those of the slash.
fn decode_but_slash(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let length = if first == b'%' && rest.len() >= 3 { 3 } else { 1 };
        let decoded = decode(&rest[..length]);
        match &decoded[..] {
            b"/" if length == 3 => out.extend(b"%2F"),
            [_] => out.extend(&decoded),
            // No escape.
            _ => {
                out.push(first);
                rest = &rest[1..];
                continue;
            }
        }
        rest = &rest[length..];
    }
    out
}

/// Stands for a slash that separates nothing; it is in no target.
const SLASH_IN_SEGMENT: u8 = 0x01;

/// The normal spelling of what a server read.
fn spell(text: &[u8], percent: Percent) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let escape = rest.get(..3).filter(|_| first == b'%').map(decode).filter(|decoded| decoded.len() == 1);
        let escape = escape.map(|decoded| decoded[0]).filter(|byte| match percent {
            Percent::Escape => true,
            Percent::EscapeOfSlash => *byte == b'/',
            Percent::Itself | Percent::ItselfInSegments => false,
        });
        let byte = escape.unwrap_or(first);
        let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let plain = b"/;!$&'()*+,=:@".contains(&byte);
        match byte {
            SLASH_IN_SEGMENT => out.push_str("%2F"),
            byte if unreserved || (plain && escape.is_none()) => out.push(char::from(byte)),
            byte => out.extend(["%", &format!("{byte:02X}")]),
        }
        rest = &rest[if escape.is_some() { 3 } else { 1 }..];
    }
    out
}

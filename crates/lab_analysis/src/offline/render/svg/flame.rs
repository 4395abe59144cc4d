//! Flame graph: calls below each other, each as wide as its share of the time.
//!
//! The outermost call is at the top, so the graph is read from top to bottom, also on a phone. The
//! page's script widens the part below a call that is clicked.

use std::fmt::Write as _;

use super::{COLOURS, WIDTH, open};
use crate::offline::render::escape::escape;
use crate::units::index;

const ROW: f64 = 17.0;
/// About the width of a letter of the fixed-width font.
const LETTER: f64 = 6.7;
/// Narrowest call that is drawn.
pub(crate) const MIN_SHARE: f64 = 0.0012;
/// Change of a share that has the full colour.
const FULL_CHANGE: f64 = 0.1;
/// Opacity of the full colour: names stay readable on it, in light and in dark.
const FULL_COLOUR: f64 = 0.55;

/// A call in a flame graph.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FlameCall {
    /// Name of the function.
    pub(crate) name: String,
    /// Number of calls around it.
    pub(crate) depth: u32,
    /// Where it begins, as a share of the width.
    pub(crate) from: f64,
    /// Its share of the time.
    pub(crate) share: f64,
    /// Its figures, for the text that appears when it is pointed at.
    pub(crate) text: String,
    /// Change of its share against another profile; `None` in a graph of one profile.
    pub(crate) change: Option<f64>,
}

/// Draws a flame graph.
pub(super) fn draw(calls: &[FlameCall], title: &str) -> String {
    let depth = calls.iter().map(|call| call.depth).max().unwrap_or(0);
    let height = ROW * (f64::from(depth) + 1.0) + 2.0;
    let head = open((WIDTH, height), title);
    let mut svg = head.replacen("<svg ", &format!("<svg data-flame=\"{WIDTH}\" "), 1);
    for call in calls {
        let (x, y, width) = (call.from * WIDTH, ROW * f64::from(call.depth) + 1.0, call.share * WIDTH);
        let fill = match call.change {
            None => format!("class=\"f{}\"", colour(&call.name)),
            Some(change) => {
                let class = if change > 0.0 { "grew" } else { "shrank" };
                let strength = (change.abs() / FULL_CHANGE).min(1.0) * FULL_COLOUR;
                format!("class=\"{class}\" style=\"--strength:{strength:.2}\"")
            }
        };
        let _ = write!(
            svg,
            "<g class=\"call\"><title>{}\n{}</title><rect {fill} x=\"{x:.2}\" y=\"{y:.0}\" width=\"{width:.2}\" height=\"{:.0}\"/>",
            escape(&call.name),
            escape(&call.text),
            ROW - 1.0
        );
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.0}\">{}</text></g>",
            x + 3.0,
            y + 12.0,
            escape(&shortened(&call.name, width))
        );
    }
    svg.push_str("</svg>");
    svg
}

/// The end of a name that has room: it says most. Empty where nothing readable has.
fn shortened(name: &str, width: f64) -> String {
    let room = index(((width - 6.0) / LETTER).max(0.0));
    let length = name.chars().count();
    match room {
        _ if length <= room => name.to_owned(),
        0..4 => String::new(),
        _ => std::iter::once('…').chain(name.chars().skip(length + 1 - room)).collect(),
    }
}

/// Colour of a call: calls of one library have the same, those of the kernel and unknown ones their
/// own.
fn colour(name: &str) -> usize {
    if name.ends_with("_[k]") {
        return 7;
    }
    if name.starts_with('[') {
        return 4;
    }
    // The library of a Rust or C++ name; a type in angle brackets has its own.
    let inner = name.trim_start_matches(['<', '&']);
    let inner = inner.strip_prefix("mut ").unwrap_or(inner);
    let library = inner.split([':', '<', ' ', '*']).next().unwrap_or(inner);
    match library {
        "core" | "std" | "alloc" | "tokio" | "mio" | "hyper" | "h2" => 5,
        // A name without a library, such as a function in C.
        plain if !name.contains("::") && plain == inner => 2,
        library => {
            let sum = library.bytes().fold(0_usize, |sum, byte| (sum * 31 + usize::from(byte)) % 1009);
            [0, 1, 3, 6][sum % 4] % COLOURS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, from: f64, share: f64, change: Option<f64>) -> FlameCall {
        FlameCall { name: name.to_owned(), depth: 1, from, share, text: "25.0 %".to_owned(), change }
    }

    #[test]
    fn a_call_is_as_wide_as_its_share_and_names_itself() {
        let svg = draw(&[call("<a>::run", 0.25, 0.5, None)], "t");
        assert!(svg.contains("x=\"250.00\" y=\"18\" width=\"500.00\""), "{svg}");
        assert!(svg.contains("<title>&lt;a&gt;::run\n25.0 %</title>"), "{svg}");
        assert!(svg.starts_with("<svg data-flame=\"1000\" viewBox=\"0 0 1000 36\""), "{svg}");
    }

    #[test]
    fn a_name_keeps_its_end() {
        assert_eq!(shortened("tokio::park", 60.0), "…o::park");
        assert_eq!(shortened("park", 60.0), "park");
        assert_eq!(shortened("tokio::park", 20.0), "");
    }

    #[test]
    fn growth_and_decline_have_their_own_colour_and_no_change_has_none() {
        let of = |change| draw(&[call("f", 0.0, 1.0, Some(change))], "t");
        assert!(of(0.2).contains("class=\"grew\" style=\"--strength:0.55\""));
        assert!(of(-0.04).contains("class=\"shrank\" style=\"--strength:0.22\""), "{}", of(-0.04));
        assert!(of(0.0).contains("--strength:0.00"));
    }

    #[test]
    fn libraries_have_one_colour_each() {
        assert_eq!(colour("tokio::park"), colour("<std::io::Error as core::fmt::Debug>::fmt"));
        assert_eq!(colour("gateway::serve"), colour("<&mut gateway::relay::Relay>::run"));
        assert_eq!([colour("futex_wait_[k]"), colour("[libc.so.6]"), colour("epoll_wait")], [7, 4, 2]);
    }
}

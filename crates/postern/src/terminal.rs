//! The few styles a terminal sees. Streams of `anstream` strip them where nobody looks.

use anstyle::{AnsiColor, Style};

/// What refuses.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// What may not be meant.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// What went well.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What to do next.
pub const HINT: Style = AnsiColor::Cyan.on_default().bold();
/// What matters.
pub const BOLD: Style = Style::new().bold();
/// What does not.
pub const DIM: Style = Style::new().dimmed();

//! Terminal output: styles, and configuration findings in these styles. The streams of `anstream`
//! remove styles when the output is not a terminal.

use std::fmt;

use anstyle::{AnsiColor, Style};
use config::{Report, Severity};

/// Style of errors that refuse something.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Style of warnings.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Style of success.
pub const SUCCESS: Style = AnsiColor::Green.on_default().bold();
/// Style of hints about the next step.
pub const HINT: Style = AnsiColor::Cyan.on_default().bold();
/// Style of important text.
pub const BOLD: Style = Style::new().bold();
/// Style of less important text.
pub const DIM: Style = Style::new().dimmed();

/// Findings of a configuration, each with the line of the file that it concerns.
pub struct Findings<'a>(pub &'a Report);

impl fmt::Display for Findings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for excerpt in self.0.excerpts() {
            let fault = excerpt.fault;
            let (style, word) = match fault.severity {
                Severity::Fault => (ERROR, "error"),
                Severity::Warning => (WARNING, "warning"),
            };
            write!(f, "{style}{word}{style:#}{BOLD}: ")?;
            if !fault.path.is_root() {
                write!(f, "{}: ", fault.path)?;
            }
            writeln!(f, "{}{BOLD:#}", fault.message)?;
            let margin = excerpt.line.map_or(1, |line| line.number.to_string().len());
            writeln!(f, "{:margin$}{DIM}-->{DIM:#} {}", "", excerpt.location)?;
            if let Some(line) = excerpt.line {
                let (number, pad, marks) = (line.number, line.column - 1, "^".repeat(line.width));
                writeln!(f, "{:margin$} {DIM}|{DIM:#}", "")?;
                writeln!(f, "{DIM}{number:margin$} |{DIM:#} {}", line.text)?;
                writeln!(f, "{:margin$} {DIM}|{DIM:#} {:pad$}{style}{marks}{style:#}", "", "")?;
            }
            if let Some(hint) = &fault.hint {
                writeln!(f, "{:margin$} {DIM}={DIM:#} {HINT}help{HINT:#}: {hint}", "")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

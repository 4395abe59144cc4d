//! Faults of a configuration and their positions.
//!
//! Owns: the list of faults and warnings, the path of a key (`route[2].policy.allow[0].groups`),
//! and both output formats: excerpts of the file for a terminal, and one line per fault for logs.

use std::fmt;
use std::ops::Range;

/// Path of a value in the file: keys and indices from the root table.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyPath(Vec<Step>);

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

impl KeyPath {
    /// Whether this is the path of the whole file.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path of a top-level key.
    pub(super) fn top_level(key: &str) -> Self {
        Self(vec![Step::Key(key.into())])
    }

    /// This path, extended by a key.
    #[must_use]
    pub(super) fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.into()))
    }

    /// This path, extended by an index that starts at 0.
    #[must_use]
    pub(super) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    /// This path, extended by a path in text form: `allow[0].claims.realm.roles`. Names of claims
    /// and query parameters may contain dots, so all text after `claims.` or `query.` is one key.
    #[must_use]
    pub(super) fn join(&self, text: &str) -> Self {
        let (mut path, mut rest) = (self.clone(), text);
        while !rest.is_empty() {
            let (part, tail) = rest.split_once('.').unwrap_or((rest, ""));
            let (key, indices) = part.split_at(part.find('[').unwrap_or(part.len()));
            path = if key.is_empty() { path } else { path.key(key) };
            for index in indices.split(['[', ']']).filter_map(|index| index.parse().ok()) {
                path = path.index(index);
            }
            rest = tail;
            if matches!(key, "claims" | "query") && !rest.is_empty() {
                return path.key(rest);
            }
        }
        path
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// The last step, if it is a key.
    pub(super) fn last_key(&self) -> Option<&str> {
        match self.0.last() {
            Some(Step::Key(key)) => Some(key),
            _ => None,
        }
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.0
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare =
            |k: &str| !k.is_empty() && k.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => {
                    f.write_str(if position == 0 { "" } else { "." })?;
                    if bare(key) { f.write_str(key)? } else { write!(f, "{key:?}")? }
                }
            }
        }
        Ok(())
    }
}

/// Severity of a fault: whether it refuses the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration is refused.
    Fault,
    /// The configuration is applied, but may not do what its author intends.
    Warning,
}

/// A fault or a warning of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Whether this is a fault or a warning.
    pub severity: Severity,
    /// Path of the value that is wrong.
    pub path: KeyPath,
    /// What is wrong, in lower case and without a full stop.
    pub message: String,
    /// How to correct it.
    pub hint: Option<String>,
    /// Bytes of the file that are wrong, once they are known.
    pub span: Option<Range<usize>>,
    highlight: HighlightTarget,
}

/// One line: the path, what is wrong, and how to correct it.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.0.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// Which bytes of a path are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HighlightTarget {
    /// The key, because it should not be there.
    Key,
    /// The value, because the key is right.
    Value,
}

/// Collects faults and warnings, so that all of them are reported together.
#[derive(Debug, Default)]
pub(super) struct Faults {
    list: Vec<Fault>,
}

impl Faults {
    /// Notes a fault of a value.
    pub(super) fn add(&mut self, path: &KeyPath, message: impl Into<String>, hint: impl Into<String>) {
        self.push(Severity::Fault, HighlightTarget::Value, path, (message.into(), hint.into()));
    }

    /// Notes a fault of a key.
    pub(super) fn add_key(&mut self, path: &KeyPath, message: impl Into<String>, hint: impl Into<String>) {
        self.push(Severity::Fault, HighlightTarget::Key, path, (message.into(), hint.into()));
    }

    /// Notes a warning about a value.
    pub(super) fn warn(&mut self, path: &KeyPath, message: impl Into<String>, hint: impl Into<String>) {
        self.push(Severity::Warning, HighlightTarget::Value, path, (message.into(), hint.into()));
    }

    fn push(
        &mut self,
        severity: Severity,
        aim: HighlightTarget,
        path: &KeyPath,
        (message, hint): (String, String),
    ) {
        let hint = Some(hint).filter(|h| !h.is_empty());
        let fault = Fault { severity, path: path.clone(), message, hint, span: None, highlight: aim };
        if !self.list.contains(&fault) {
            self.list.push(fault);
        }
    }

    /// Notes a fault whose bytes in the file are already known.
    pub(super) fn add_at(&mut self, span: Option<Range<usize>>, message: String) {
        let (severity, path) = (Severity::Fault, KeyPath::default());
        self.list.push(Fault {
            severity,
            path,
            message,
            hint: None,
            span,
            highlight: HighlightTarget::Value,
        });
    }

    /// Whether any fault prevents the configuration from being applied.
    pub(super) fn has_faults(&self) -> bool {
        self.list.iter().any(|f| f.severity == Severity::Fault)
    }

    /// All faults, without warnings.
    pub(super) fn into_faults(self) -> Vec<Fault> {
        self.list.into_iter().filter(|fault| fault.severity == Severity::Fault).collect()
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.list.append(&mut other.list);
    }

    /// Builds the report, in the order of the file. `locate` finds the bytes of a path.
    pub(super) fn into_report(
        mut self,
        name: &str,
        text: &str,
        locate: impl Fn(&KeyPath, HighlightTarget) -> Range<usize>,
    ) -> Report {
        for fault in &mut self.list {
            if fault.span.is_none() {
                fault.span = Some(locate(&fault.path, fault.highlight));
            }
        }
        self.list.sort_by_key(|f| (f.span.as_ref().map_or(usize::MAX, |s| s.start), f.severity));
        Report { name: name.into(), text: text.into(), faults: self.list }
    }
}

/// All faults and warnings of one file, in the order of the file.
#[derive(Debug, Clone)]
pub struct Report {
    name: String,
    text: String,
    faults: Vec<Fault>,
}

impl Report {
    /// A report for a file that cannot be read at all.
    pub(super) fn unreadable(name: &str, message: String) -> Self {
        let (severity, path) = (Severity::Fault, KeyPath::default());
        let fault =
            Fault { severity, path, message, hint: None, span: None, highlight: HighlightTarget::Value };
        Self { name: name.into(), text: String::new(), faults: vec![fault] }
    }

    /// Faults and warnings, in the order of the file.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Whether the configuration is refused.
    pub fn has_faults(&self) -> bool {
        self.count(Severity::Fault) > 0
    }

    /// Number of findings with this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.faults.iter().filter(|f| f.severity == severity).count()
    }

    /// One line per finding, without the text of the file. Meant for logs.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.faults.iter().map(|fault| format!("{}: {fault}", self.location(fault)))
    }

    fn location(&self, fault: &Fault) -> String {
        match self.position(fault) {
            Some((line, column)) => format!("{}:{line}:{column}", self.name),
            None => self.name.clone(),
        }
    }

    /// Line and column of a fault, both counted from 1. Columns are characters.
    fn position(&self, fault: &Fault) -> Option<(usize, usize)> {
        let start = fault.span.as_ref().filter(|s| s.end > 0)?.start;
        let before = self.text.get(..start)?;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Some((before.matches('\n').count() + 1, before[line_start..].chars().count() + 1))
    }

    /// The findings with the lines of the file that they concern. Meant for terminals.
    pub fn excerpts(&self) -> impl Iterator<Item = Excerpt<'_>> {
        self.faults.iter().map(|fault| Excerpt {
            fault,
            location: self.location(fault),
            line: self.position(fault).map(|(number, column)| {
                let text = self.text.lines().nth(number - 1).unwrap_or("").trim_end();
                let rest = text.chars().count() + 1 - column.min(text.chars().count() + 1);
                let span = fault.span.clone().and_then(|span| self.text.get(span));
                let wide = span.map_or(1, |t| t.chars().take_while(|c| *c != '\n').count());
                ExcerptLine { number, text, column, width: wide.min(rest).max(1) }
            }),
        })
    }
}

/// A finding and its position in the file.
#[derive(Debug)]
pub struct Excerpt<'a> {
    /// The fault or warning.
    pub fault: &'a Fault,
    /// File, line and column of the finding.
    pub location: String,
    /// The line of the file. `None`: the finding has no line.
    pub line: Option<ExcerptLine<'a>>,
}

/// A line of the file and the characters to mark in it.
#[derive(Debug, Clone, Copy)]
pub struct ExcerptLine<'a> {
    /// Line number, counted from 1.
    pub number: usize,
    /// The line without trailing white space.
    pub text: &'a str,
    /// Column of the first marked character, counted from 1.
    pub column: usize,
    /// Number of marked characters, at least one.
    pub width: usize,
}

/// Writes one line per finding, like [`Report::lines`].
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The known word that is nearest to a misspelled one. `None`: no word is near enough.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |w: &str| w.to_ascii_lowercase().replace('-', "_");
    let word = plain(word);
    let far = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|k| (strsim::osa_distance(&word, &plain(k)), k))
        .filter(|(distance, k)| *distance <= far || (word.len() > 3 && plain(k).starts_with(&word)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

/// Joins words into a list: `` `a`, `b` or `c` ``.
pub(super) fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|w| format!("`{w}`")).collect();
    match words.as_slice() {
        [] => "nothing".into(),
        [one] => one.clone(),
        [start @ .., last] => format!("{} or {last}", start.join(", ")),
    }
}

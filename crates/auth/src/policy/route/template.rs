//! Path templates: `/v1/{ns}/models/{id}`, `/files/{path...}`.

use std::cmp::Reverse;

use crate::policy::PolicyProblem;
use crate::request::canonical_path;

/// Numbers of literal segments, tails and captures.
pub(super) type TemplateRank = (Reverse<usize>, usize, Reverse<usize>);

/// A parsed path template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    pub(super) segments: Box<[Segment]>,
}

/// One segment of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment {
    /// This text, in normal form.
    Literal(Box<str>),
    /// Any segment that is not empty.
    Capture(Box<str>),
    /// The rest of the path, slashes included; always the last segment.
    Tail(Box<str>),
}

impl Template {
    /// Parses a template; the error has every fault.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<PolicyProblem>> {
        let mut faults = Vec::new();
        let mut segments: Vec<Segment> = Vec::new();
        // The literal parts are checked as a path, with a plain segment in place of each capture.
        let mut skeleton = String::with_capacity(text.len());
        let Some(rest) = text.strip_prefix('/') else {
            let fault = crate::request::Malformed::TargetForm;
            return Err(vec![PolicyProblem::Path { path: text.into(), fault }]);
        };
        let count = rest.split('/').count();
        for (i, segment) in rest.split('/').enumerate() {
            skeleton.push('/');
            match Segment::parse(segment) {
                Err(problem) => faults.push(problem),
                Ok(Segment::Tail(name)) if i + 1 < count => {
                    faults.push(PolicyProblem::TemplateTail(name.into()));
                }
                Ok(Segment::Literal(text)) => {
                    skeleton.push_str(&text);
                    segments.push(Segment::Literal(text));
                    continue;
                }
                Ok(capture) => {
                    if let Some(name) = capture.name()
                        && segments.iter().any(|s| s.name() == Some(name))
                    {
                        faults.push(PolicyProblem::TemplateName(name.into()));
                    }
                    segments.push(capture);
                }
            }
            skeleton.push('x');
        }
        match canonical_path(&skeleton) {
            Err(fault) => faults.push(PolicyProblem::Path { path: text.into(), fault }),
            Ok((normal, true)) => faults.push(PolicyProblem::several_readings(text, &normal)),
            Ok((normal, false)) => {
                for (segment, normal) in segments.iter_mut().zip(normal.split('/').skip(1)) {
                    if let Segment::Literal(text) = segment {
                        *text = normal.into();
                    }
                }
            }
        }
        if faults.is_empty() && segments.iter().all(|s| s.name().is_none()) {
            faults.push(PolicyProblem::TemplateLiteral(text.into()));
        }
        if faults.is_empty() { Ok(Self { segments: segments.into() }) } else { Err(faults) }
    }

    /// Sorts templates that match the same path: smaller is more specific.
    pub(super) fn rank(&self) -> TemplateRank {
        let count = |kind: fn(&Segment) -> bool| self.segments.iter().filter(|s| kind(s)).count();
        let literals = count(|s| matches!(s, Segment::Literal(text) if !text.is_empty()));
        let captures = count(|s| matches!(s, Segment::Capture(_)));
        let tails = count(|s| matches!(s, Segment::Tail(_)));
        (Reverse(literals), tails, Reverse(captures))
    }

    /// Equal for templates that match the same paths.
    pub(super) fn shape(&self) -> String {
        let mut shape = String::new();
        for segment in &self.segments {
            shape.push('/');
            shape.push_str(match segment {
                Segment::Literal(text) => text,
                Segment::Capture(_) => "{}",
                Segment::Tail(_) => "{...}",
            });
        }
        shape
    }

    /// The captures of a path; empty when the template does not match it.
    pub(super) fn captures<'t>(&'t self, path: &'t str) -> Captures<'t> {
        captures(&self.segments, path)
    }
}

fn captures<'t>(segments: &'t [Segment], path: &'t str) -> Captures<'t> {
    let rest = path.strip_prefix('/').filter(|rest| matches(segments, rest));
    rest.map_or_else(Captures::none, |_| Captures { segments, rest })
}

/// Whether a path, given without its first slash, matches.
fn matches(segments: &[Segment], path: &str) -> bool {
    let mut rest = Some(path);
    for segment in segments {
        let Some(left) = rest else { return false };
        let (text, behind) = split_first(left);
        match segment {
            Segment::Literal(literal) if **literal != *text => return false,
            Segment::Capture(_) if text.is_empty() => return false,
            Segment::Tail(_) => return true,
            _ => rest = behind,
        }
    }
    rest.is_none()
}

impl Segment {
    fn parse(text: &str) -> Result<Self, PolicyProblem> {
        let Some(name) = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) else {
            if text.contains(['{', '}']) {
                return Err(PolicyProblem::TemplateSegment(text.into()));
            }
            return Ok(Self::Literal(text.into()));
        };
        let (name, tail) = name.strip_suffix("...").map_or((name, false), |name| (name, true));
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(word) {
            return Err(PolicyProblem::TemplateSegment(text.into()));
        }
        Ok(if tail { Self::Tail(name.into()) } else { Self::Capture(name.into()) })
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Literal(_) => None,
            Self::Capture(name) | Self::Tail(name) => Some(name),
        }
    }
}

/// The first segment, and what follows its slash; `None` when there is no slash.
pub(super) fn split_first(path: &str) -> (&str, Option<&str>) {
    // Segments are short: a plain loop ends before a vectorised search has started.
    let end = path.bytes().position(|byte| byte == b'/');
    end.map_or((path, None), |end| (&path[..end], Some(&path[end + 1..])))
}

/// What a template captured: names with the text of the path in its normal (escaped) form, in
/// order. It reads the path during iteration, and allocates nothing.
#[derive(Debug, Clone)]
pub struct Captures<'t> {
    segments: &'t [Segment],
    rest: Option<&'t str>,
}

impl<'t> Captures<'t> {
    pub(crate) const fn none() -> Self {
        Self { segments: &[], rest: None }
    }

    /// What the same template captures of another path; empty when it does not match that.
    pub(crate) fn in_path<'p>(&self, path: &'p str) -> Captures<'p>
    where
        't: 'p,
    {
        captures(self.segments, path)
    }

    /// The text captured under a name.
    pub fn get(&self, name: &str) -> Option<&'t str> {
        self.clone().find(|(captured, _)| *captured == name).map(|(_, text)| text)
    }
}

impl<'t> Iterator for Captures<'t> {
    type Item = (&'t str, &'t str);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (segment, segments) = self.segments.split_first()?;
            self.segments = segments;
            let path = self.rest?;
            let (text, behind) = split_first(path);
            self.rest = behind;
            match segment {
                Segment::Literal(_) => {}
                Segment::Capture(name) => return Some((name, text)),
                Segment::Tail(name) => return Some((name, path)),
            }
        }
    }
}

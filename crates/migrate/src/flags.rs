//! Flags: reads a command line as Go programs do.
//!
//! Owns: the syntaxes of Go's packages `flag` and `pflag`. Does not own: which flags there are, and
//! what they mean (each program's module).

use crate::input_fault::InputFault;
use crate::settings::Given;

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagKind {
    /// Nothing, or `=true` or `=false`.
    Switch,
    /// A text. The last one counts.
    Text,
    /// A list: with commas, and repeatable.
    List,
    /// A list: one value for each use, in which a comma is a part of the value.
    Repeated,
}

/// A flag of a program.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What it takes.
    pub kind: FlagKind,
    /// Its key in the program's own file; empty: it has none.
    pub key: &'static str,
}

impl Flag {
    /// A flag of this kind.
    pub const fn new(name: &'static str, kind: FlagKind) -> Self {
        Self { name, kind, key: "" }
    }

    /// The same with a key in the program's own file.
    pub const fn keyed(name: &'static str, kind: FlagKind, key: &'static str) -> Self {
        Self { name, kind, key }
    }
}

impl Flag {
    /// The values in a text from this place: those of a list are separated by commas.
    pub fn values(&self, text: &str, origin: &str) -> Vec<(&'static str, Given)> {
        let given = |value: &str| (self.name, Given::new(value, origin));
        match self.kind {
            FlagKind::List => {
                text.split(',').map(str::trim).filter(|value| !value.is_empty()).map(given).collect()
            }
            _ => vec![given(text)],
        }
    }
}

/// How a program reads its command line.
#[derive(Debug, Clone, Copy)]
pub struct Syntax {
    /// The program, for messages.
    pub program: &'static str,
    /// Its flags, in one table or several.
    pub tables: &'static [&'static [Flag]],
    /// Letters that stand for flags.
    pub letters: &'static [(char, &'static str)],
    /// Whether `-name` is the same as `--name` (Go's package `flag`).
    pub single_dash: bool,
    /// Whether `_` in a name is the same as `-` (component-base of Kubernetes).
    pub underscores: bool,
}

impl Syntax {
    /// Its flags.
    pub fn flags(&self) -> impl Iterator<Item = &'static Flag> + use<> {
        self.tables.iter().copied().flatten()
    }

    /// Reads arguments. Each value of a list is an item of its own.
    ///
    /// # Errors
    /// An argument that the program would refuse.
    pub fn read(&self, arguments: &[String]) -> Result<Vec<(&'static str, Given)>, InputFault> {
        let mut given = Vec::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (flag, written, attached) = self.flag(argument)?;
            let value = match (flag.kind, attached) {
                (_, Some(value)) => value.to_owned(),
                (FlagKind::Switch, None) => "true".to_owned(),
                (_, None) => {
                    rest.next().ok_or_else(|| InputFault::NoValue { flag: written.clone() })?.clone()
                }
            };
            given.extend(flag.values(&value, &written));
        }
        Ok(given)
    }

    /// The flag of an argument, as it is written, and the value behind `=`.
    fn flag<'a>(&self, argument: &'a str) -> Result<(Flag, String, Option<&'a str>), InputFault> {
        let not_a_flag = || InputFault::NotAFlag { argument: argument.to_owned() };
        let (body, is_long) = match (argument.strip_prefix("--"), argument.strip_prefix('-')) {
            (Some(""), _) | (_, Some("") | None) => return Err(not_a_flag()),
            (Some(body), _) => (body, true),
            (None, Some(body)) => (body, self.single_dash),
        };
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        let unknown = || InputFault::UnknownFlag {
            program: self.program,
            flag: argument.split('=').next().unwrap_or_default().to_owned(),
        };
        if !is_long {
            // `-v4` is `-v 4`.
            let letter = name.chars().next().ok_or_else(not_a_flag)?;
            let (_, long) = self.letters.iter().find(|(known, _)| *known == letter).ok_or_else(unknown)?;
            let flag = self.known(long).ok_or_else(unknown)?;
            let attached = value.or_else(|| Some(&name[letter.len_utf8()..]).filter(|rest| !rest.is_empty()));
            return Ok((flag, format!("-{letter}"), attached));
        }
        let flag = self.known(name).ok_or_else(unknown)?;
        Ok((flag, format!("--{name}"), value))
    }

    /// Reads variables of the environment, whose names are a prefix and the key in capitals. Others are
    /// passed over.
    pub fn environment(&self, prefix: &str, variables: &[(String, String)]) -> Vec<(&'static str, Given)> {
        let read = |(name, value): &(String, String)| {
            let key = name.strip_prefix(prefix)?.to_lowercase();
            let flag = self.flags().find(|flag| !flag.key.is_empty() && flag.key == key)?;
            Some(flag.values(value, name))
        };
        variables.iter().filter_map(read).flatten().collect()
    }

    /// Reads a TOML file with the keys of the flags.
    ///
    /// # Errors
    /// If it is no TOML, or has a key that no flag has.
    pub fn file(&self, name: &str, text: &str) -> Result<Vec<(&'static str, Given)>, InputFault> {
        let fault = |why: String| InputFault::File { name: name.to_owned(), why };
        let file: toml::Table = text.parse().map_err(|error: toml::de::Error| fault(error.to_string()))?;
        let mut given = Vec::new();
        for (key, value) in &file {
            let flag = self.flags().find(|flag| !flag.key.is_empty() && flag.key == key);
            let flag = flag.ok_or_else(|| fault(format!("{} has no key `{key}`", self.program)))?;
            let origin = format!("{key} of {name}");
            let text = |value: &toml::Value| match value {
                toml::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            match value {
                toml::Value::Array(items) => {
                    given.extend(items.iter().map(|item| (flag.name, Given::new(text(item), &*origin))));
                }
                other => given.push((flag.name, Given::new(text(other), &*origin))),
            }
        }
        Ok(given)
    }

    fn known(&self, name: &str) -> Option<Flag> {
        let name = if self.underscores { name.replace('_', "-") } else { name.to_owned() };
        self.flags().copied().find(|flag| flag.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNTAX: Syntax = Syntax {
        program: "example",
        tables: &[&[
            Flag::new("on", FlagKind::Switch),
            Flag::new("one-name", FlagKind::Text),
            Flag::new("list", FlagKind::List),
            Flag::new("repeated", FlagKind::Repeated),
            Flag::new("v", FlagKind::Text),
        ]],
        letters: &[('v', "v")],
        single_dash: false,
        underscores: true,
    };

    fn read(arguments: &[&str], syntax: &Syntax) -> Result<Vec<(String, String)>, InputFault> {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let given = syntax.read(&arguments)?;
        Ok(given.into_iter().map(|(name, given)| (name.to_owned(), given.value)).collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn flags_are_read_as_go_reads_them() {
        for (arguments, expected) in [
            (&["--on"][..], pairs(&[("on", "true")])),
            (&["--on=false"], pairs(&[("on", "false")])),
            (&["--one-name", "--on"], pairs(&[("one-name", "--on")])),
            (&["--one_name=a=b"], pairs(&[("one-name", "a=b")])),
            (&["--list=a, b,", "--list", "c"], pairs(&[("list", "a"), ("list", "b"), ("list", "c")])),
            (&["--repeated=a,b"], pairs(&[("repeated", "a,b")])),
            (&["-v4"], pairs(&[("v", "4")])),
            (&["-v", "4", "-v=5"], pairs(&[("v", "4"), ("v", "5")])),
        ] {
            assert_eq!(read(arguments, &SYNTAX), Ok(expected), "{arguments:?}");
        }
    }

    #[test]
    fn what_the_program_would_refuse_is_a_fault() {
        for (arguments, fault) in [
            (
                &["--onn"][..],
                "example has no flag --onn; check its spelling, and that the arguments are of example",
            ),
            (&["-on"], "example has no flag -on; check its spelling, and that the arguments are of example"),
            (&["--one-name"], "--one-name has no value"),
            (&["serve"], "\"serve\" is no flag; the program takes flags only"),
            (&["--"], "\"--\" is no flag; the program takes flags only"),
        ] {
            assert_eq!(read(arguments, &SYNTAX).unwrap_err().to_string(), fault);
        }
        let single = Syntax { single_dash: true, letters: &[], ..SYNTAX };
        assert_eq!(read(&["-one-name", "x"], &single), Ok(pairs(&[("one-name", "x")])));
    }
}

//! Catalog: the messages of one crate in every language.
//!
//! Owns: reading them from the built-in texts or from the operator's file. Does not own: the keys,
//! the set of languages ([`super::language`]).

use crate::language::{Language, LanguageFault, Languages};
use crate::messages::{Words, parse};

/// The messages of one crate in every language.
#[derive(Debug, Clone)]
pub struct Catalog<W> {
    /// In the order of the languages.
    all: Vec<W>,
}

impl<W: Words> Catalog<W> {
    /// Reads the messages of every language: from the operator's file where there is one, otherwise
    /// from `builtin`, which has the text of each built-in language by its tag.
    ///
    /// # Errors
    /// Every [`LanguageFault`] that was found.
    pub fn read(languages: &Languages, builtin: &[(&str, &str)]) -> Result<Self, Vec<LanguageFault>> {
        let (mut all, mut faults) = (Vec::new(), Vec::new());
        for language in languages.all() {
            let read = match language.file() {
                Some(file) => W::read(file),
                None => parse(builtin_text(builtin, language.tag())).and_then(|table| W::read(&table)),
            };
            match read {
                Ok(words) => all.push(words),
                Err(found) => {
                    let of = |fault| LanguageFault::Words { tag: language.tag().into(), fault };
                    faults.extend(found.into_iter().map(of));
                }
            }
        }
        if faults.is_empty() { Ok(Self { all }) } else { Err(faults) }
    }

    /// The messages of a language of the same set.
    pub fn of(&self, language: &Language) -> &W {
        &self.all[language.index()]
    }
}

fn builtin_text<'t>(builtin: &[(&str, &'t str)], tag: &str) -> &'t str {
    builtin.iter().find(|(known, _)| *known == tag).map_or("", |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::LANGUAGE_GROUP;

    #[test]
    fn an_operators_own_language_joins_the_others_and_a_broken_one_names_the_key() {
        crate::words! {
            consent: ConsentWords { allow, deny }
        }
        let builtin = [
            ("en", "[consent]\nallow = \"Allow\"\ndeny = \"Deny\"\n"),
            ("de", "[consent]\nallow = \"Erlauben\"\ndeny = \"Ablehnen\"\n"),
        ];
        let file = format!("{LANGUAGE_GROUP}{}", builtin[0].1);
        let read = |languages: &Languages| Catalog::<Words>::read(languages, &builtin);
        let mut languages = Languages::default();
        languages.add("pt-BR", &file.replace("Allow", "Permitir")).unwrap();
        assert_eq!(languages.choose(Some("pt-br"), None).tag(), "pt-BR");
        assert_eq!(languages.tags().collect::<Vec<_>>(), ["en", "de", "pt-BR"]);
        let texts = read(&languages).unwrap();
        let of = |tag| texts.of(languages.choose(Some(tag), None));
        assert_eq!(of("pt-BR").consent.allow.as_str(), "Permitir");
        assert_eq!((of("de").consent.allow.as_str(), of("en").consent.deny.as_str()), ("Erlauben", "Deny"));

        let torn = file.replace("allow = \"Allow\"", "alow = \"Allow\"");
        languages.add("fr", &format!("{torn}[footer]\nx = 1\n")).unwrap();
        let faults: Vec<_> = read(&languages).unwrap_err().iter().map(ToString::to_string).collect();
        assert!(
            faults.contains(&"words of language fr: key consent.allow is missing".to_owned()),
            "{faults:?}"
        );
        assert!(faults.iter().any(|f| f.contains("key consent.alow is unknown")), "{faults:?}");
        let unknown = languages.unknown_groups(&["consent"]);
        assert!(unknown[0].to_string().contains("language fr: key footer is unknown"), "{unknown:?}");
        assert!(matches!(languages.add("no tag", &file).unwrap_err()[..], [LanguageFault::Tag(_)]));
    }
}

//! Checks `[pages]`: brand and languages of everything that people see.

use std::path::Path;
use std::sync::Arc;

use gateway::error_page::{self, ErrorPages};
use pages::templates::{self, Templates};
use pages::text::is_unprintable;
use pages::{Brand, BrandConfig, BrandFault, LanguageFault, Languages, Shell};

use super::super::fault::KeyPath;
use super::super::raw;
use super::{Context, rules};

/// Longest `denied_detail` in characters.
const MAX_DETAIL: usize = 500;

/// Groups of messages that a file of a language may have.
fn known_groups() -> Vec<&'static str> {
    [error_page::GROUPS, login::pages::GROUPS, idp::pages::messages::GROUPS].concat()
}

/// All messages of the pages in English, as a file for `[pages.languages]`.
pub fn messages() -> String {
    let builtin = [error_page::BUILTIN, login::pages::BUILTIN, idp::pages::messages::BUILTIN];
    let english = builtin.iter().flatten().filter(|(tag, _)| *tag == "en").map(|(_, text)| *text);
    let head = "# Texts of the pages. Translate the right-hand sides and keep every key. Words in {braces} are filled in.\n\n";
    [head, pages::language::LANGUAGE_GROUP].into_iter().chain(english.flat_map(|text| ["\n", text])).collect()
}

/// The shell of all pages. Faults are noted; then the faulty part is that of the default.
pub(super) fn shell(raw: &raw::Pages, context: &mut Context<'_>) -> Arc<Shell> {
    let path = KeyPath::top_level("pages");
    let brand = brand(&raw.brand, &path.key("brand"), context);
    let mut languages = Languages::default();
    for (tag, file) in &raw.languages {
        let at = path.key("languages").key(tag);
        let Some(read) = context.read(file, &at) else { continue };
        match String::from_utf8(read) {
            Ok(text) => {
                let faults = languages.add(tag, &text).err().unwrap_or_default();
                add_faults(&faults, context);
            }
            Err(_) => context.faults.add(&at, format!("{} is not UTF-8", file.display()), "save it as UTF-8"),
        }
    }
    add_faults(&languages.unknown_groups(&known_groups()), context);
    let shell = Shell::new(brand, languages);
    let templates = raw.templates.as_deref().and_then(|folder| templates(folder, &path, context));
    Arc::new(match templates {
        Some(templates) => shell.with_templates(templates),
        None => shell,
    })
}

/// The templates in a folder. `None`: a fault was noted.
fn templates(folder: &Path, path: &KeyPath, context: &mut Context<'_>) -> Option<Templates> {
    let at = path.key("templates");
    let mut files = Vec::new();
    for name in templates::FILES {
        let file = folder.join(name);
        match context.reader.read_if_present(&file) {
            Ok(None) => {}
            Ok(Some(bytes)) => match String::from_utf8(bytes) {
                Ok(text) => files.push((name, text)),
                Err(_) => {
                    context.faults.add(&at, format!("{} is not UTF-8", file.display()), "save it as UTF-8");
                }
            },
            Err(message) => context.faults.add(&at, message, "check that this user may read it"),
        }
    }
    if files.is_empty() {
        let message = format!("the folder {} has none of {}", folder.display(), templates::FILES.join(", "));
        let hint = "add one of them; relative paths are resolved against the folder of this file";
        context.faults.add(&at, message, hint);
        return None;
    }
    let parsed = Templates::parse(files);
    for fault in parsed.as_ref().err().into_iter().flatten() {
        let text = format!("{}/{fault}", folder.display());
        rules::add_problem(&at, &text, &mut context.faults);
    }
    parsed.ok()
}

fn brand(raw: &raw::Brand, path: &KeyPath, context: &mut Context<'_>) -> Brand {
    let raw::Brand { name, logo, colour } = raw.clone();
    Brand::check(&BrandConfig { name, logo, colour }).unwrap_or_else(|faults| {
        for fault in faults {
            let key = match fault {
                BrandFault::Name => "name",
                BrandFault::Colour(_) => "colour",
                BrandFault::Logo | BrandFault::LogoBase64 | BrandFault::LogoTooLarge => "logo",
            };
            rules::add_problem(&path.key(key), &fault.to_string(), &mut context.faults);
        }
        Brand::default()
    })
}

/// The gateway's error pages. `None`: a fault was noted.
pub(super) fn error_pages(shell: &Arc<Shell>, context: &mut Context<'_>) -> Option<Arc<ErrorPages>> {
    ErrorPages::new(shell.clone()).map(Arc::new).map_err(|faults| add_faults(&faults, context)).ok()
}

/// The text of a route for those whom its policy forbids it.
pub(super) fn denied_detail(raw: &raw::Route, path: &KeyPath, context: &mut Context<'_>) -> Option<Box<str>> {
    let text = raw.denied_detail.as_deref()?;
    let at = path.key("denied_detail");
    if raw.public {
        context.faults.add(
            &at,
            "a public route is forbidden to nobody",
            "remove `denied_detail` or `public`",
        );
    }
    let length = text.trim().chars().count();
    if length == 0 || length > MAX_DETAIL {
        let message = format!("the text has {length} characters");
        context.faults.add(&at, message, format!("write 1 to {MAX_DETAIL} characters, or remove it"));
    }
    if text.chars().any(is_unprintable) {
        let message = "the text has control characters or marks of writing direction";
        context.faults.add(&at, message, "write plain text in one line");
    }
    Some(text.trim().into())
}

/// Notes faults of languages at the keys that name their files.
pub(super) fn add_faults(faults: &[LanguageFault], context: &mut Context<'_>) {
    for fault in faults {
        let path = KeyPath::top_level("pages").key("languages").key(fault.tag());
        // The message of a parser may have several lines.
        let text = fault.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        rules::add_problem(&path, &text, &mut context.faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_messages_are_a_sound_file() {
        let mut languages = Languages::default();
        languages.add("fr", &messages()).unwrap();
        assert_eq!(languages.unknown_groups(&known_groups()), []);
        let shell = Arc::new(Shell::new(Brand::default(), languages));
        ErrorPages::new(shell.clone()).unwrap();
        login::pages::LoginPages::new(shell.clone()).unwrap();
        idp::pages::Pages::new(shell).unwrap();
    }
}

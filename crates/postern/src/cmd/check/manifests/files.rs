//! Files of manifests: reading them, folders of them and standard input, and the objects in them.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::finding::{Finding, Place};
use super::node::Node;
use crate::exit::Failure;

/// An object as it is written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) place: Place,
    pub(super) node: Node,
}

/// Reads everything. What cannot be read as YAML is a finding, and the rest is read nevertheless.
///
/// # Errors
/// Returns a failure if a file or folder cannot be opened.
pub(super) fn read(paths: &[PathBuf], findings: &mut Vec<Finding>) -> Result<Vec<Written>, Failure> {
    let mut objects = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Failure::new(format!("standard input cannot be read: {error}")))?;
            objects.extend(documents("standard input", &text, findings));
            continue;
        }
        let failed =
            |error: std::io::Error| Failure::new(format!("-f {}: cannot be read: {error}", path.display()));
        let files = if fs::metadata(path).map_err(failed)?.is_dir() {
            let mut found = Vec::new();
            walk(path, &mut found).map_err(failed)?;
            if found.is_empty() {
                let message = format!("the folder {} has no .yaml, .yml or .json file", path.display());
                findings.push(Finding::error(message));
            }
            found
        } else {
            vec![path.clone()]
        };
        for file in files {
            let failed = |error: std::io::Error| {
                Failure::new(format!("-f {}: cannot be read: {error}", file.display()))
            };
            let text = fs::read_to_string(&file).map_err(failed)?;
            objects.extend(documents(&file.display().to_string(), &text, findings));
        }
    }
    Ok(objects)
}

/// The manifests below a folder, in the order of their names, without hidden files and folders.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries: Result<Vec<_>, _> = fs::read_dir(folder)?.collect();
    let mut paths: Vec<PathBuf> = entries?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // A kustomization lists manifests and is none, as for `kubectl apply -f`.
        if name.starts_with('.') || ["kustomization.yaml", "kustomization.yml"].contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            walk(&path, found)?;
        } else if path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|one| end == *one)) {
            found.push(path);
        }
    }
    Ok(())
}

/// The objects of a file, of which each document has one, or a list of them.
fn documents(file: &str, text: &str, findings: &mut Vec<Finding>) -> Vec<Written> {
    let nodes: Vec<Node> = match serde_saphyr::from_multiple(text) {
        Ok(nodes) => nodes,
        Err(error) => {
            let message = error.without_snippet().to_string();
            let message = message.lines().next().unwrap_or_default().to_owned();
            let line = error.location().map_or(1, |location| location.line());
            let place = place_in(file, text, line);
            let finding = Finding::error(format!("it is not YAML: {message}")).at(Some(&place));
            findings.push(finding.help("no object of this file is checked; mend it, or leave it out"));
            return Vec::new();
        }
    };
    let mut objects = Vec::new();
    for node in nodes {
        let items = node.get("items").and_then(Node::elements);
        let is_list = node.text("kind").is_some_and(|kind| kind.ends_with("List"));
        let nodes = match items.filter(|_| is_list) {
            Some(items) => items.to_vec(),
            None => vec![node],
        };
        objects.extend(nodes.into_iter().map(|node| {
            let place = place_in(file, text, node.line);
            Written { place, node }
        }));
    }
    objects
}

/// A line of a file, with the number of its document.
fn place_in(file: &str, text: &str, line: u64) -> Place {
    let before = text.lines().take(line.saturating_sub(1).try_into().unwrap_or(usize::MAX));
    let is_marker = |line: &str| line == "---" || line.starts_with("--- ");
    let (mut document, mut has_content) = (1, false);
    for line in before {
        if is_marker(line) {
            // A marker before the first document begins it.
            document += usize::from(has_content);
            has_content = true;
        } else {
            has_content |= !line.trim().is_empty() && !line.starts_with(['#', '%']);
        }
    }
    Place { file: file.to_owned(), line, document }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_lists_and_faults_have_places() {
        let mut findings = Vec::new();
        let text = "# a comment\n---\nkind: A\n---\n---\nkind: BList\nitems:\n- kind: B\n- kind: C\n";
        let found = documents("f.yaml", text, &mut findings);
        let places: Vec<_> =
            found.iter().map(|one| (one.place.line, one.place.document, one.node.text("kind"))).collect();
        assert_eq!(places, [(3, 1, Some("A")), (8, 3, Some("B")), (9, 3, Some("C"))]);
        assert!(findings.is_empty());
        assert!(documents("g.yaml", "a: 1\n---\nb: [", &mut findings).is_empty());
        let place = findings[0].place.as_ref().unwrap();
        assert_eq!((&*place.file, place.document), ("g.yaml", 2));
    }
}

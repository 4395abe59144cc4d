//! Commands for a user to copy into a shell: how to call this program, and the quotes of a path.

use std::ffi::OsStr;
use std::path::Path;
use std::{env, fs};

/// Name of the program.
const NAME: &str = "postern";

/// How to call this program from the current folder: by its name if the shell finds it in `PATH`.
pub fn program() -> String {
    let Ok(path) = env::current_exe() else { return NAME.into() };
    call(&path, env::current_dir().ok().as_deref(), env::var_os("PATH").as_deref())
}

fn call(program: &Path, folder: Option<&Path>, search: Option<&OsStr>) -> String {
    let mut found = search.into_iter().flat_map(env::split_paths).map(|folder| folder.join(NAME));
    if found.find(|path| path.is_file()).and_then(|path| fs::canonicalize(path).ok()).as_deref()
        == Some(program)
    {
        return NAME.into();
    }
    let near = folder.and_then(|folder| program.strip_prefix(folder).ok()).unwrap_or(program);
    let path = near.display().to_string();
    // A shell looks a name without a slash up in PATH.
    quote(&if path.contains('/') { path } else { format!("./{path}") })
}

/// Quotes a path for a shell.
pub fn quote(path: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+@".contains(c);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_as_a_shell_needs_it() {
        assert_eq!(quote("target/release/postern"), "target/release/postern");
        assert_eq!(quote("/opt/my tools/postern"), "'/opt/my tools/postern'");
        assert_eq!(quote("it's/postern"), r"'it'\''s/postern'");
    }

    #[test]
    fn the_program_is_called_as_the_shell_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let here = fs::canonicalize(folder.path()).unwrap();
        let (bin, program) = (here.join("bin"), here.join("bin/postern"));
        fs::create_dir(&bin).unwrap();
        fs::write(&program, "").unwrap();
        let other = here.join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("postern"), "").unwrap();
        let search = |folders: &[&Path]| env::join_paths(folders).unwrap();

        assert_eq!(call(&program, Some(&here), None), "bin/postern");
        assert_eq!(call(&program, Some(&bin), Some(&search(&[]))), "./postern");
        assert_eq!(call(&program, Some(Path::new("/elsewhere")), None), program.display().to_string());
        assert_eq!(call(&program, Some(&here), Some(&search(&[&bin]))), "postern");
        let another_first = search(&[&other, &bin]);
        assert_eq!(
            call(&program, Some(&here), Some(&another_first)),
            "bin/postern",
            "another is found first"
        );
    }
}

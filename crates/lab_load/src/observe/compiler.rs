//! Compiler: reads from an executable which compiler produced it.
//!
//! Owns: the parser of the section `.comment` of a 64-bit little-endian ELF file (System V ABI,
//! chapter 4), where compilers write their names. Does not own: the meaning of a difference between
//! two programs.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Largest part of a section that is read, in bytes.
const MAX_SECTION_BYTES: u64 = 1 << 20;
/// Sizes of the ELF file header and of a section header, in bytes.
const FILE_HEADER: usize = 64;
const SECTION_HEADER: usize = 64;
/// Prefixes of compiler names, most specific first: a Rust program also contains objects of a C
/// compiler.
const COMPILERS: [&str; 3] = ["rustc version", "clang version", "GCC:"];

/// Name and version of the compiler; `None` if the file has none or cannot be parsed.
pub fn of_program(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let mut read = |at: u64, length: u64| -> Option<Vec<u8>> {
        file.seek(SeekFrom::Start(at)).ok()?;
        let mut bytes = Vec::new();
        file.by_ref().take(length.min(MAX_SECTION_BYTES)).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    };
    let header = read(0, FILE_HEADER as u64)?;
    // ELF magic, 64-bit, little-endian.
    if !header.starts_with(&[0x7F, b'E', b'L', b'F', 2, 1]) {
        return None;
    }
    let (sections, size) = (read_le(&header, 40, 8)?, read_le(&header, 58, 2)?);
    let (many, names) = (read_le(&header, 60, 2)?, read_le(&header, 62, 2)?);
    if size != SECTION_HEADER as u64 {
        return None;
    }
    let table = read(sections, many * size)?;
    let section = |index: u64| -> Option<(u64, u64, u64)> {
        let at = usize::try_from(index).ok()?.checked_mul(SECTION_HEADER)?;
        Some((read_le(&table, at, 4)?, read_le(&table, at + 24, 8)?, read_le(&table, at + 32, 8)?))
    };
    let (_, at, length) = section(names)?;
    let names = read(at, length)?;
    let is_comment = |(name, ..): &(u64, u64, u64)| {
        let name = usize::try_from(*name).ok().and_then(|at| names.get(at..));
        name.is_some_and(|name| name.starts_with(b".comment\0"))
    };
    let (_, at, length) = (0..many).filter_map(section).find(is_comment)?;
    let comment = String::from_utf8_lossy(&read(at, length)?).into_owned();
    let line_of = |compiler: &str| comment.split('\0').find(|line| line.starts_with(compiler));
    let line = COMPILERS.iter().find_map(|compiler| line_of(compiler))?;
    Some(line.chars().filter(|letter| !letter.is_control()).take(120).collect())
}

/// Little-endian number of `length` bytes at offset `at`.
fn read_le(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(length)?)?;
    Some(field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_was_made_by_rustc() {
        let version = of_program(&std::env::current_exe().unwrap()).unwrap();
        assert!(version.starts_with("rustc version 1."), "{version}");
    }

    #[test]
    fn what_is_no_program_was_made_by_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        for content in [&b""[..], b"#!/bin/sh\n", b"\x7FELF\x02\x01", &[0xFF; 4096]] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(of_program(&path), None);
        }
        // A section table that lies outside the file.
        let mut bytes = [0_u8; 64];
        bytes[..6].copy_from_slice(&[0x7F, b'E', b'L', b'F', 2, 1]);
        bytes[40..48].fill(0xFF);
        (bytes[58], bytes[60], bytes[62]) = (64, 9, 3);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(of_program(&path), None);
        assert_eq!(of_program(Path::new("/nowhere")), None);
    }
}

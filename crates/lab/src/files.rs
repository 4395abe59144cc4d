//! Files: reads and writes records, reports, tables and baselines.
//!
//! Owns: the largest file that is read, atomic writing, and the errors of the file system.
//! Does not own: what a file contains, which is read from bytes and written as text by its own
//! module.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lab_analysis::offline::audit::{AuditError, Tables};
use lab_analysis::offline::gate::{Baseline, GateError};
use lab_analysis::offline::render::{Sheet, html};
use lab_analysis::offline::report::{data, sheet};
use lab_analysis::record::{Record, RecordError};

/// Largest file that is read, bytes. A record of 64 variants, or of hundreds of rounds, with every
/// part present is far smaller.
pub const MOST_BYTES: u64 = 512 << 20;

/// Most reports of a folder.
pub const MOST_REPORTS: usize = 2000;

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file system returned an error.
    #[error("cannot {action} `{path}`: {error}")]
    Io {
        /// What was tried: `read`, `write` or `write into`.
        action: &'static str,
        /// Path of the file.
        path: String,
        /// The error of the file system.
        error: io::Error,
    },
    /// The file has more than [`MOST_BYTES`].
    #[error("`{path}` is larger than {} MiB, the maximum size of a record", MOST_BYTES >> 20)]
    TooLarge {
        /// Path of the file.
        path: String,
    },
    /// A folder has more than [`MOST_REPORTS`].
    #[error("there are more than {MOST_REPORTS} reports up to `{folder}`: give a smaller folder")]
    TooMany {
        /// The folder with the last one.
        folder: String,
    },
    /// A folder has no report.
    #[error(
        "there is no report.json below `{folder}`: give the folder that `lab run --out` wrote into, or one above it"
    )]
    NoReports {
        /// The folder.
        folder: String,
    },
    /// The content is not a record, or the record contradicts itself.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The content is not a baseline.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The content has no tables to audit.
    #[error(transparent)]
    Audit(#[from] AuditError),
}

impl FileError {
    fn io(action: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Io { action, path: path.display().to_string(), error }
    }
}

/// Content of a file of at most [`MOST_BYTES`].
pub fn read_bounded(path: &Path) -> Result<Vec<u8>, FileError> {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut content));
    read.map_err(|error| FileError::io("read", path, error))?;
    if content.len() as u64 > MOST_BYTES {
        return Err(FileError::TooLarge { path: path.display().to_string() });
    }
    Ok(content)
}

/// Paths of all files named `report.json` below a folder, in order. Links to folders are not
/// followed, so that no report is found twice.
///
/// # Errors
/// A folder cannot be read, there is no such file, or there are more than [`MOST_REPORTS`].
pub fn reports_below(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let (mut found, mut waiting) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = waiting.pop() {
        let failed = |error| FileError::io("read", &folder, error);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                waiting.push(entry.path());
            } else if entry.file_name() == "report.json" && entry.path().is_file() {
                found.push(entry.path());
            }
        }
        if found.len() > MOST_REPORTS {
            return Err(FileError::TooMany { folder: folder.display().to_string() });
        }
    }
    if found.is_empty() {
        return Err(FileError::NoReports { folder: folder.display().to_string() });
    }
    found.sort();
    Ok(found)
}

/// Reads a record.
pub fn read_record(path: &Path) -> Result<Record, FileError> {
    Ok(Record::parse(&read_bounded(path)?, &path.display().to_string())?)
}

/// Reads published tables.
pub fn read_tables(path: &Path) -> Result<Tables, FileError> {
    Ok(Tables::parse(&read_bounded(path)?, &path.display().to_string())?)
}

/// Reads a baseline.
pub fn read_baseline(path: &Path) -> Result<Baseline, FileError> {
    Ok(Baseline::parse(&read_bounded(path)?, &path.display().to_string())?)
}

/// Writes a record atomically: on failure the former file remains.
pub fn write_record(record: &Record, path: &Path) -> Result<(), FileError> {
    let json = record.to_json().map_err(|contradiction| RecordError::Contradiction {
        path: path.display().to_string(),
        contradiction,
    })?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = || -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".record-")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(folder)?;
        file.write_all(json.as_bytes())?;
        file.persist(path).map_err(|refused| refused.error)?;
        Ok(())
    };
    written().map_err(|error| FileError::io("write", path, error))
}

/// Writes a baseline.
pub fn write_baseline(baseline: &Baseline, path: &Path) -> Result<(), FileError> {
    write_text(path, &baseline.to_json())
}

/// Checks that a report can be written into a folder, and creates the folder when it is missing. A
/// long run calls this before it starts.
pub fn check_writable(folder: &Path) -> Result<(), FileError> {
    let failed = |error| FileError::io("write into", folder, error);
    fs::create_dir_all(folder).map_err(failed)?;
    tempfile::Builder::new().prefix(".report-").tempfile_in(folder).map(drop).map_err(failed)
}

/// Writes `report.json`, files with the same data as CSV, `report.md` and `report.html` into a
/// folder, which is created when it is missing. When the record cannot be written, the former file
/// remains. Returns the paths; the page is the last.
pub fn write_report(record: &Record, folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    create(folder)?;
    let json = folder.join("report.json");
    write_record(record, &json)?;
    let sheet = sheet(record);
    let mut files = vec![("report.md", sheet.markdown())];
    files.extend(data(record).into_iter().map(|file| (file.name, file.content)));
    files.push(("report.html", html(&sheet)));
    let mut paths = vec![json];
    for (name, content) in files {
        let path = folder.join(name);
        write_text(&path, &content)?;
        paths.push(path);
    }
    Ok(paths)
}

/// Writes a sheet as `NAME.md` and `NAME.html` into a folder, which is created when it is missing.
pub fn write_sheet(sheet: &Sheet, folder: &Path, name: &str) -> Result<[PathBuf; 2], FileError> {
    create(folder)?;
    let paths = ["md", "html"].map(|form| folder.join(format!("{name}.{form}")));
    write_text(&paths[0], &sheet.markdown())?;
    write_text(&paths[1], &html(sheet))?;
    Ok(paths)
}

fn create(folder: &Path) -> Result<(), FileError> {
    fs::create_dir_all(folder).map_err(|error| FileError::io("write", folder, error))
}

fn write_text(path: &Path, text: &str) -> Result<(), FileError> {
    fs::write(path, text).map_err(|error| FileError::io("write", path, error))
}

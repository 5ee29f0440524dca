// SPDX-License-Identifier: Apache-2.0
//! Standard output and files of rows.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::CliError;

/// Prints `text` and a line end on standard output; a reader that has left is no error.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Write {
            to: "standard output".to_owned(),
            reason: error.to_string(),
        }),
        _ => Ok(()),
    }
}

/// Prints `value` as one JSON object.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    print(&json(value)?)
}

/// `value` as one JSON object.
///
/// # Errors
/// A value that JSON cannot hold.
pub(crate) fn json(value: &impl Serialize) -> Result<String, CliError> {
    serde_json::to_string(value).map_err(|error| CliError::Write {
        to: "JSON".to_owned(),
        reason: error.to_string(),
    })
}

/// A CSV file; its header is the field names of the first row.
#[derive(Debug)]
pub(crate) struct CsvFile {
    path: PathBuf,
    rows: csv::Writer<BufWriter<File>>,
}

impl CsvFile {
    /// Creates or empties the file.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub(crate) fn create(path: &Path) -> Result<Self, CliError> {
        Ok(Self {
            path: path.to_path_buf(),
            rows: csv::Writer::from_writer(BufWriter::new(create(path)?)),
        })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn row(&mut self, row: &impl Serialize) -> Result<(), CliError> {
        let written = self.rows.serialize(row);
        written.map_err(|error| self.failed(&error))
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn finish(mut self) -> Result<(), CliError> {
        let flushed = self.rows.flush();
        flushed.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &dyn std::error::Error) -> CliError {
        CliError::Write {
            to: self.path.display().to_string(),
            reason: error.to_string(),
        }
    }
}

/// A text file that is opened before a long run and written after it.
#[derive(Debug)]
pub(crate) struct TextFile {
    path: PathBuf,
    file: File,
}

impl TextFile {
    /// Creates or empties the file.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub(crate) fn create(path: &Path) -> Result<Self, CliError> {
        Ok(Self {
            path: path.to_path_buf(),
            file: create(path)?,
        })
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(mut self, text: &str) -> Result<(), CliError> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| CliError::Write {
            to: self.path.display().to_string(),
            reason: error.to_string(),
        })
    }
}

fn create(path: &Path) -> Result<File, CliError> {
    File::create(path).map_err(|source| CliError::Create {
        path: path.to_path_buf(),
        source,
    })
}

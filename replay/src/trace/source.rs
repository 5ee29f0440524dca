// SPDX-License-Identifier: Apache-2.0
//! Opening a trace: a bundled one, a file, standard input, bytes; packed or not.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use super::error::TraceProblem;
use super::zstd::{Unpacked, is_packed};
use crate::config::TraceSource;

const BUFFER: usize = 256 << 10;

/// Opens `source` and unpacks it if it is packed.
pub(super) fn open(source: &TraceSource) -> Result<Box<dyn BufRead>, TraceProblem> {
    match source {
        TraceSource::Bundled(trace) => unpack(Cursor::new(trace.packed())),
        TraceSource::File(path) => unpack(file(path)?),
        TraceSource::Stdin => unpack(io::stdin()),
    }
}

fn file(path: &Path) -> Result<File, TraceProblem> {
    let file = File::open(path).map_err(|error| io_problem(&error))?;
    let metadata = file.metadata().map_err(|error| io_problem(&error))?;
    if metadata.is_dir() {
        return Err(TraceProblem::Folder);
    }
    Ok(file)
}

fn io_problem(error: &io::Error) -> TraceProblem {
    TraceProblem::Io {
        reason: error.to_string(),
    }
}

/// Reads `input` through a buffer, and unpacks it if it begins like a packed trace.
pub(super) fn unpack(input: impl Read + 'static) -> Result<Box<dyn BufRead>, TraceProblem> {
    let mut start = Vec::new();
    let mut input = BufReader::with_capacity(BUFFER, input);
    // A pipe may give fewer than four bytes at first.
    (&mut input)
        .take(4)
        .read_to_end(&mut start)
        .map_err(|error| io_problem(&error))?;
    let packed = is_packed(&start);
    let whole = Cursor::new(start).chain(input);
    Ok(if packed {
        Box::new(BufReader::with_capacity(BUFFER, Unpacked::new(whole)))
    } else {
        Box::new(whole)
    })
}

// SPDX-License-Identifier: Apache-2.0
//! Lines of a trace: numbered, bounded, checked to be text.

use std::io::{BufRead, Read};

use super::error::TraceProblem;
use super::zstd;

/// Longest line: 2^31 tokens in Mooncake blocks are 4 million ids of up to 15 bytes.
const MAX_LINE: usize = 64 << 20;

/// Numbered lines of a trace.
pub(super) struct Lines {
    input: Box<dyn BufRead>,
    buffer: Vec<u8>,
    number: u64,
}

impl Lines {
    /// The lines of `input`.
    pub(super) fn new(input: Box<dyn BufRead>) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            number: 0,
        }
    }

    /// Number of the line that was read last, from 1; 0 before the first.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// The next line that is not blank, without the space around it; none at the end.
    pub(super) fn next_line(&mut self) -> Result<Option<&str>, TraceProblem> {
        loop {
            self.buffer.clear();
            let limit = u64::try_from(MAX_LINE + 1).unwrap_or(u64::MAX);
            let read = (&mut self.input)
                .take(limit)
                .read_until(b'\n', &mut self.buffer)
                .map_err(|error| zstd::problem(&error))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.buffer.len() > MAX_LINE {
                return Err(TraceProblem::LineTooLong { max: MAX_LINE });
            }
            if !self.buffer.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        str::from_utf8(&self.buffer)
            .map(|line| Some(line.trim_start_matches('\u{feff}').trim()))
            .map_err(|_| TraceProblem::NotText)
    }
}

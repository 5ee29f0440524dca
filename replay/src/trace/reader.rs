// SPDX-License-Identifier: Apache-2.0
//! The reader of every format: an iterator of requests.

use core::fmt;
use std::io::{BufRead, Cursor};

use super::agentic::{self, SessionClock};
use super::azure;
use super::chain::ChainCheck;
use super::error::{TraceError, TraceProblem};
use super::format::{Format, json_problem};
use super::lines::Lines;
use super::mooncake;
use super::request::Request;
use super::source;
use crate::config::TraceSource;

/// Requests of a trace, in file order. It ends at the first error.
pub struct TraceReader {
    name: String,
    lines: Lines,
    parser: Parser,
    /// The first record, which told the format.
    first: Option<Request>,
    read: u64,
    ended: bool,
}

impl fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceReader")
            .field("name", &self.name)
            .field("format", &self.parser.format)
            .field("line", &self.lines.number())
            .finish_non_exhaustive()
    }
}

impl TraceReader {
    /// Opens a trace and tells its format from its first record.
    ///
    /// # Errors
    /// A trace that cannot be opened or unpacked, that is empty, or whose first record is bad.
    pub fn open(source: &TraceSource) -> Result<Self, TraceError> {
        let name = source.to_string();
        match source::open(source) {
            Ok(input) => Self::new(name, input),
            Err(problem) => Err(TraceError {
                trace: name,
                line: None,
                problem,
            }),
        }
    }

    /// Reads a trace from memory, packed or not; `name` stands in messages.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, TraceError> {
        match source::unpack(Cursor::new(bytes)) {
            Ok(input) => Self::new(name.to_owned(), input),
            Err(problem) => Err(TraceError {
                trace: name.to_owned(),
                line: None,
                problem,
            }),
        }
    }

    fn new(name: String, input: Box<dyn BufRead>) -> Result<Self, TraceError> {
        let mut lines = Lines::new(input);
        match Parser::start(&mut lines) {
            Ok((parser, first)) => Ok(Self {
                name,
                lines,
                parser,
                first: Some(first),
                read: 0,
                ended: false,
            }),
            Err(problem) => Err(error(&name, &lines, problem)),
        }
    }

    /// The trace's format.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.parser.format
    }

    /// The trace's name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts the requests of a trace that can be read twice, without reading them; none of
    /// standard input.
    ///
    /// # Errors
    /// A trace that cannot be opened or unpacked.
    pub fn count(source: &TraceSource) -> Result<Option<u64>, TraceError> {
        if matches!(source, TraceSource::Stdin) {
            return Ok(None);
        }
        let name = source.to_string();
        let mut lines = match source::open(source) {
            Ok(input) => Lines::new(input),
            Err(problem) => {
                return Err(TraceError {
                    trace: name,
                    line: None,
                    problem,
                });
            }
        };
        let mut count = 0;
        loop {
            match lines.next_line() {
                Ok(Some(line)) => count += u64::from(count > 0 || !azure::is_header(line)),
                Ok(None) => return Ok(Some(count)),
                Err(problem) => return Err(error(&name, &lines, problem)),
            }
        }
    }

    fn next_request(&mut self) -> Result<Option<Request>, TraceProblem> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some(line) = self.lines.next_line()? else {
            return Ok(None);
        };
        self.parser.request(self.read, line).map(Some)
    }
}

impl Iterator for TraceReader {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_request().transpose();
        match next {
            Some(Ok(request)) => {
                self.read += 1;
                Some(Ok(request))
            }
            Some(Err(problem)) => {
                self.ended = true;
                Some(Err(error(&self.name, &self.lines, problem)))
            }
            None => {
                self.ended = true;
                None
            }
        }
    }
}

fn error(name: &str, lines: &Lines, problem: TraceProblem) -> TraceError {
    let whole = matches!(problem, TraceProblem::Empty | TraceProblem::Packing { .. });
    TraceError {
        trace: name.to_owned(),
        line: (!whole && lines.number() > 0).then_some(lines.number()),
        problem,
    }
}

/// Turns lines of one format into requests and checks them against each other.
struct Parser {
    format: Format,
    clock: SessionClock,
    azure: azure::Parser,
    chain: ChainCheck,
}

impl Parser {
    /// Tells the format from the first record; returns the record too.
    fn start(lines: &mut Lines) -> Result<(Self, Request), TraceProblem> {
        let line = lines.next_line()?.ok_or(TraceProblem::Empty)?;
        let mut parser = Self {
            format: Format::detect(line)?,
            clock: SessionClock::default(),
            azure: azure::Parser::default(),
            chain: ChainCheck::default(),
        };
        let request = if parser.format == Format::Azure {
            let line = lines.next_line()?.ok_or(TraceProblem::Empty)?;
            parser.request(0, line)?
        } else {
            parser.request(0, line)?
        };
        Ok((parser, request))
    }

    fn request(&mut self, index: u64, line: &str) -> Result<Request, TraceProblem> {
        let format = self.format;
        let bad = |error| json_problem(format.name(), &error);
        let request = match format {
            Format::Azure => self.azure.request(index, line)?,
            Format::Mooncake => {
                let record: mooncake::Record = serde_json::from_str(line).map_err(bad)?;
                record.request(index)?
            }
            Format::Agentic | Format::AgenticSessions | Format::TextBlocks => {
                let record: agentic::Record = serde_json::from_str(line).map_err(bad)?;
                record.request(index, format, &mut self.clock)?
            }
        };
        self.chain.request(request.blocks.runs())?;
        Ok(request)
    }
}

/// Totals of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSummary {
    /// Requests.
    pub requests: u64,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// Block ids.
    pub blocks: u64,
}

impl TraceSummary {
    /// Reads a trace to its end.
    ///
    /// # Errors
    /// The first error of the trace.
    pub fn of(reader: TraceReader) -> Result<Self, TraceError> {
        reader
            .into_iter()
            .try_fold(Self::default(), |sum, request| {
                let request = request?;
                Ok(Self {
                    requests: sum.requests + 1,
                    input_tokens: sum.input_tokens + request.input_tokens,
                    output_tokens: sum.output_tokens + request.output_tokens,
                    blocks: sum.blocks + request.blocks.count(),
                })
            })
    }
}

/// Reads a whole trace from memory, packed or not: the entry of the fuzzer.
///
/// # Errors
/// The first error of the trace; it never panics.
pub fn parse_bytes(bytes: &[u8]) -> Result<TraceSummary, TraceError> {
    TraceSummary::of(TraceReader::from_bytes("bytes", bytes.to_vec())?)
}

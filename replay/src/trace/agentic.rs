// SPDX-License-Identifier: Apache-2.0
//! Lines of the agentic traces: blocks of 64 tokens in runs; a partial last block has no id.

use serde::Deserialize;

use super::error::TraceProblem;
use super::format::Format;
use super::number::{Whole, check_blocks, seconds};
use super::request::{Blocks, Request, Run};

const BLOCK_TOKENS: u32 = 64;
/// Bits of an id that is local to its session; the session's number stands above them.
const LOCAL_BITS: u32 = 32;
/// Bits of a session's number.
const SESSION_BITS: u32 = 31;

/// A line as it stands.
#[derive(Deserialize)]
pub(super) struct Record {
    t: f64,
    conv: Whole,
    #[serde(rename = "in")]
    input: Whole,
    #[serde(rename = "out")]
    output: Whole,
    runs: Vec<(Whole, Whole)>,
}

/// Puts sessions with clocks of their own behind each other.
#[derive(Debug, Default)]
pub(super) struct SessionClock {
    session: Option<u64>,
    start: f64,
    latest: f64,
}

impl SessionClock {
    /// The arrival on a clock of the whole trace: a session begins when the one before it in the
    /// file has sent its last request.
    fn arrival(&mut self, session: u64, seconds: f64) -> f64 {
        if self.session.is_some_and(|current| current != session) {
            self.start = self.latest;
        }
        self.session = Some(session);
        let arrival = self.start + seconds;
        self.latest = self.latest.max(arrival);
        arrival
    }
}

impl Record {
    /// The request of this line, in `format`, one of the three agentic ones.
    pub(super) fn request(
        self,
        index: u64,
        format: Format,
        clock: &mut SessionClock,
    ) -> Result<Request, TraceProblem> {
        let input_tokens = self.input.tokens("in")?;
        let output_tokens = self.output.tokens("out")?;
        let session = self.conv.below_bits("conv", SESSION_BITS)?;
        let offset = match format {
            Format::AgenticSessions => session << LOCAL_BITS,
            _ => 0,
        };
        let mut blocks = Blocks::new(BLOCK_TOKENS);
        for (first, count) in self.runs {
            push_run(&mut blocks, first, count, offset)?;
        }
        let least = match format {
            // Lengths are rounded up from bytes, so that the last block may lack its last byte.
            Format::TextBlocks => input_tokens.saturating_sub(1),
            _ => input_tokens,
        } / u64::from(BLOCK_TOKENS);
        check_blocks(blocks.count(), input_tokens, BLOCK_TOKENS, least)?;
        let t = seconds("t", self.t, 1.0)?;
        let arrival = match format {
            Format::AgenticSessions | Format::TextBlocks => clock.arrival(session, t),
            _ => t,
        };
        Ok(Request {
            index,
            arrival,
            input_tokens,
            output_tokens,
            session: Some(session),
            blocks,
        })
    }
}

fn push_run(
    blocks: &mut Blocks,
    first: Whole,
    count: Whole,
    offset: u64,
) -> Result<(), TraceProblem> {
    let first = first.below_bits("block id", LOCAL_BITS)?;
    let count = count.below_bits("run length", LOCAL_BITS)?;
    let last = first + count;
    if count == 0 || last >= 1 << LOCAL_BITS {
        return Err(TraceProblem::OutOfRange {
            field: "run length",
            value: count.to_string(),
            range: format!("1 to {} from id {first}", (1u64 << LOCAL_BITS) - 1 - first),
        });
    }
    blocks.push(Run {
        first: first + offset,
        count,
    });
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! Lines of the Mooncake traces: blocks of 512 tokens, an id for each, the last one perhaps partial.

use core::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::error::TraceProblem;
use super::number::{Whole, check_blocks, seconds};
use super::request::{Blocks, Request, Run};

const BLOCK_TOKENS: u32 = 512;
/// Bits of an id.
const ID_BITS: u32 = 62;

/// A line as it stands.
#[derive(Deserialize)]
pub(super) struct Record {
    timestamp: f64,
    input_length: Whole,
    output_length: Whole,
    hash_ids: Ids,
}

/// Block ids, coded into runs while they are read.
struct Ids(Blocks);

impl<'de> Deserialize<'de> for Ids {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdsVisitor;
        impl<'de> Visitor<'de> for IdsVisitor {
            type Value = Ids;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of block ids")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Ids, A::Error> {
                let mut blocks = Blocks::new(BLOCK_TOKENS);
                while let Some(id) = seq.next_element::<Whole>()? {
                    let first = id
                        .below_bits("block id", ID_BITS)
                        .map_err(A::Error::custom)?;
                    blocks.push(Run { first, count: 1 });
                }
                Ok(Ids(blocks))
            }
        }
        deserializer.deserialize_seq(IdsVisitor)
    }
}

impl Record {
    /// The request of this line.
    pub(super) fn request(self, index: u64) -> Result<Request, TraceProblem> {
        let input_tokens = self.input_length.tokens("input_length")?;
        let Ids(blocks) = self.hash_ids;
        let least = input_tokens.div_ceil(u64::from(BLOCK_TOKENS));
        check_blocks(blocks.count(), input_tokens, BLOCK_TOKENS, least)?;
        Ok(Request {
            index,
            arrival: seconds("timestamp", self.timestamp, 1000.0)?,
            input_tokens,
            output_tokens: self.output_length.tokens("output_length")?,
            session: None,
            blocks,
        })
    }
}

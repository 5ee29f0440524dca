// SPDX-License-Identifier: Apache-2.0
//! The traces inside the program; the file `NOTICE` of the repository says whose they are.

use crate::names::named;

named! {
    /// A trace inside the program.
    pub enum Bundled("bundled trace") {
        /// A chat service, one hour, blocks of 512 tokens.
        MooncakeConversation = "mooncake_conversation",
        /// Coding agents, 64 users side by side, blocks of 64 tokens.
        AgenticCcU64 = "agentic_cc_u64",
        /// The same agents, 256 users side by side.
        AgenticCcU256 = "agentic_cc_u256",
    }
}

impl Bundled {
    /// The packed trace.
    #[must_use]
    pub const fn packed(self) -> &'static [u8] {
        match self {
            Self::MooncakeConversation => {
                include_bytes!("../../traces/mooncake_conversation.jsonl.zst")
            }
            Self::AgenticCcU64 => include_bytes!("../../traces/agentic_cc_u64.jsonl.zst"),
            Self::AgenticCcU256 => include_bytes!("../../traces/agentic_cc_u256.jsonl.zst"),
        }
    }
}

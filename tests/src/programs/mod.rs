// SPDX-License-Identifier: Apache-2.0
//! Programs of calls against the reference cache, on stepped devices: after every call all
//! invariants hold and no operation has raced with another; every page that a request was given as
//! a hit holds the bytes of its prefix on every rank in every layer of every pool; in the end no page
//! is lost. `tests/random_programs` and the fuzz target `engine_ops` make them up.

mod broken;
mod droppers;
mod machine;
mod ops;

pub use broken::End;
pub use droppers::Droppers;
pub use machine::Machine;
pub use ops::{Op, Path, Program, ROOTS};

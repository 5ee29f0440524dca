// SPDX-License-Identifier: Apache-2.0
//! The example that the README shows runs, and loads back what was pushed out.

#[path = "../examples/embed.rs"]
mod embed;

#[test]
fn the_embed_example_runs() {
    embed::main().unwrap();
}

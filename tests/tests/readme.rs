// SPDX-License-Identifier: Apache-2.0
//! The README shows the embed example as it is.

const README: &str = include_str!("../../README.md");
const EXAMPLE: &str = include_str!("../../controller/examples/embed.rs");

#[test]
fn the_readme_shows_the_example_as_it_is() {
    let (licence, body) = EXAMPLE.split_once('\n').unwrap();
    assert!(licence.contains("SPDX"));
    assert!(README.contains(&format!("```rust\n{}\n```", body.trim_end())));
    assert!(EXAMPLE.lines().count() < 100);
}

// SPDX-License-Identifier: Apache-2.0
//! Configuration text, as TOML and as JSON.

use striata_core::config::{ConfigError, EngineConfig};

/// Reads, checks and writes a configuration again.
pub fn run(text: &str) {
    check(EngineConfig::from_toml(text));
    check(EngineConfig::from_json(text));
}

fn check(read: Result<EngineConfig, ConfigError>) {
    let config = match read {
        Ok(config) => config,
        Err(error) => return crate::assert_one_line(&error),
    };
    if let Err(error) = config.validate() {
        return crate::assert_one_line(&error);
    }
    let json = serde_json::to_string(&config).expect("a valid configuration can be written");
    let again = EngineConfig::from_json(&json).expect("what was written can be read");
    assert_eq!(again, config, "{json}");
    assert!(again.validate().is_ok(), "{json}");
}

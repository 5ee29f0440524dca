// SPDX-License-Identifier: Apache-2.0
//! What of a model a replay uses.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use striata_core::Model;

use crate::error::ConfigError;

/// Parameters that a token activates, as the models' reports say: DeepSeek-V3 (arXiv 2412.19437)
/// 37 billion of 671, Kimi K2 (arXiv 2507.20534) 32 billion of 1,040, Kimi Linear (arXiv
/// 2510.26692) 3 billion of 48.
const ACTIVE_PARAMETERS: [(&str, u64); 3] = [
    ("deepseek-v3.1", 37_000_000_000),
    ("kimi-k2", 32_000_000_000),
    ("kimi-linear-48b", 3_000_000_000),
];

/// The shape of a model's striped KV pool and the work of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelShape {
    /// Its name.
    pub name: String,
    /// Layers with a striped KV pool.
    pub layers: u32,
    /// Bytes of a row in one layer, before any scaling.
    pub row_bytes: u32,
    /// Attention heads.
    pub heads: u32,
    /// Lanes of a head's query and key in prefill.
    pub query_key_lanes: u32,
    /// Lanes of a head's value in prefill.
    pub value_lanes: u32,
    /// Parameters that a token activates; nobody published them for every preset.
    pub active_parameters: Option<u64>,
}

impl ModelShape {
    /// The shape of a model.
    ///
    /// # Errors
    /// A model without a single pool of MLA rows.
    pub fn of(model: &Model) -> Result<Self, ConfigError> {
        let row = model
            .row_format()
            .map_err(striata_core::ConfigError::from)?;
        let active = ACTIVE_PARAMETERS
            .iter()
            .find(|(name, _)| *name == model.name());
        Ok(Self {
            name: model.name().to_owned(),
            layers: model.mla_layers(),
            row_bytes: row.row_bytes(),
            heads: model.heads(),
            query_key_lanes: model.nope_head_dim().saturating_add(model.rope_dim()),
            value_lanes: model.v_head_dim(),
            active_parameters: active.map(|(_, parameters)| *parameters),
        })
    }

    /// The shape of a preset.
    ///
    /// # Errors
    /// An unknown name, a preset that needs fields its sources do not give.
    pub fn preset(name: &str) -> Result<Self, ConfigError> {
        Self::of(&Model::preset(name).map_err(striata_core::ConfigError::from)?)
    }

    /// The shape of a model file: JSON if its name ends so, else TOML.
    ///
    /// # Errors
    /// A file that cannot be read, syntax, fields that are unknown, missing or out of range.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|error| ConfigError::ModelFile {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let model = match path.extension() {
            Some(extension) if extension == "json" => Model::from_json(&text),
            _ => Model::from_toml(&text),
        };
        Self::of(&model.map_err(striata_core::ConfigError::from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_a_shape() {
        let shape = ModelShape::preset("deepseek-v3.1").unwrap();
        assert_eq!(
            (shape.layers, shape.row_bytes, shape.heads),
            (61, 1152, 128)
        );
        assert_eq!((shape.query_key_lanes, shape.value_lanes), (192, 128));
        assert_eq!(shape.active_parameters, Some(37_000_000_000));
        let error = ModelShape::preset("gpt").unwrap_err().to_string();
        assert!(
            error.contains("\"gpt\"") && error.contains("kimi-k2"),
            "{error}"
        );
        let error = ModelShape::from_file(Path::new("no/such.toml"))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("model file no/such.toml"), "{error}");
    }
}

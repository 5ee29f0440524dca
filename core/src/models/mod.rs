// SPDX-License-Identifier: Apache-2.0
//! Models as the cache sees them: which layers hold rows or states, and of how many bytes.

mod presets;
mod spec;

pub use presets::PRESETS;
pub use spec::{LayerGroup, ModelSpec};

use crate::geometry::{PageGeometry, RowFormat};

/// Most layers of a model.
pub const MAX_LAYERS: u32 = 4096;
/// Largest number of heads, and largest width of anything in a model.
pub const MAX_WIDTH: u32 = 1 << 20;

/// Why a model cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A name that is no preset.
    #[error("unknown model {name:?}: known are {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The presets.
        known: Vec<&'static str>,
    },
    /// Fields without which nothing can be sized.
    #[error("model {model} lacks {}: give them in a model file", fields.join(", "))]
    Missing {
        /// The model.
        model: String,
        /// The fields.
        fields: Vec<&'static str>,
    },
    /// A number outside its range.
    #[error("model {model}: {field} is {value}: it must be {min}..={max}")]
    Range {
        /// The model.
        model: String,
        /// The field.
        field: &'static str,
        /// The number.
        value: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// Layers that contradict what is known of a preset.
    #[error("model {model} has {known} MLA layers, and the layers given have {given}")]
    MlaLayers {
        /// The model.
        model: String,
        /// As its source says.
        known: u32,
        /// As the file says.
        given: u32,
    },
    /// A row format that other widths would need.
    #[error(
        "model {model}: row format {format:?} holds 512 latent and 64 rotary lanes, the model has \
         {latent} and {rotary}: give the bytes of a row instead"
    )]
    RowFormat {
        /// The model.
        model: String,
        /// The format.
        format: RowFormat,
        /// Latent lanes.
        latent: u32,
        /// Rotary lanes.
        rotary: u32,
    },
    /// No single pool for the MLA rows.
    #[error("model {model} has no single MLA pool: {reason}")]
    NoMlaPool {
        /// The model.
        model: String,
        /// Why.
        reason: String,
    },
    /// Recurrent heads that do not fall evenly on the ranks.
    #[error("model {model}: {heads} KDA heads do not divide by attention TP {attention_tp}")]
    StateHeads {
        /// The model.
        model: String,
        /// Heads of a layer.
        heads: u32,
        /// Ranks.
        attention_tp: u32,
    },
    /// A file that cannot be read.
    #[error("model file: {0}")]
    Syntax(String),
}

/// Recurrent state of a KDA layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KdaState {
    /// Heads, divided among the attention-TP ranks.
    pub heads: u32,
    /// Lanes of a key, of a query and of a value.
    pub head_dim: u32,
    /// Taps of the short convolutions.
    pub conv_kernel: u32,
}

impl KdaState {
    /// Bytes of one state on one of `attention_tp` ranks: three convolution tails in bf16 and
    /// the temporal state in f32. None if the heads do not divide. Saturates.
    ///
    /// **Shape** conv 3 x \[heads * dim\]\[taps - 1\], temporal \[heads\]\[dim\]\[dim\].
    #[must_use]
    pub fn bytes(self, attention_tp: u32) -> Option<u64> {
        if self.heads.checked_rem(attention_tp) != Some(0) {
            return None;
        }
        let heads = u64::from(self.heads / attention_tp);
        let dim = u64::from(self.head_dim);
        let taps = u64::from(self.conv_kernel.saturating_sub(1));
        let conv = (heads * dim).saturating_mul(taps).saturating_mul(3 * 2);
        Some(conv.saturating_add((heads * dim).saturating_mul(dim * 4)))
    }
}

/// What a layer keeps between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// Multi-head latent attention: a row a token, striped.
    Mla {
        /// How a row is stored.
        row: RowFormat,
    },
    /// Kimi delta attention: a state a request.
    Kda(KdaState),
    /// Attention with keys and values a head.
    Full {
        /// Key-value heads.
        kv_heads: u32,
        /// Lanes of a key, and of a value.
        head_dim: u32,
    },
}

/// A model whose every needed number is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    name: String,
    layers: Vec<LayerKind>,
    heads: u32,
    hidden: u32,
    kv_lora_rank: u32,
    rope_dim: u32,
    nope_head_dim: u32,
    v_head_dim: u32,
    q_lora_rank: Option<u32>,
}

impl Model {
    /// The preset of that name.
    ///
    /// # Errors
    /// An unknown name, with the known ones; a preset that needs fields its sources do not give.
    pub fn preset(name: &str) -> Result<Self, ModelError> {
        ModelSpec::preset(name).resolve()
    }

    /// A model file in TOML.
    ///
    /// # Errors
    /// Syntax, unknown or missing fields, numbers out of range.
    pub fn from_toml(text: &str) -> Result<Self, ModelError> {
        let spec: ModelSpec =
            toml::from_str(text).map_err(|error| ModelError::Syntax(one_line(&error)))?;
        spec.resolve()
    }

    /// A model file in JSON.
    ///
    /// # Errors
    /// As [`Model::from_toml`].
    pub fn from_json(text: &str) -> Result<Self, ModelError> {
        let spec: ModelSpec =
            serde_json::from_str(text).map_err(|error| ModelError::Syntax(one_line(&error)))?;
        spec.resolve()
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// All layers, first to last.
    #[must_use]
    pub fn layers(&self) -> &[LayerKind] {
        &self.layers
    }
    /// Query heads.
    #[must_use]
    pub const fn heads(&self) -> u32 {
        self.heads
    }
    /// Lanes between layers.
    #[must_use]
    pub const fn hidden(&self) -> u32 {
        self.hidden
    }
    /// Latent lanes of an MLA row.
    #[must_use]
    pub const fn kv_lora_rank(&self) -> u32 {
        self.kv_lora_rank
    }
    /// Rotary lanes of an MLA row.
    #[must_use]
    pub const fn rope_dim(&self) -> u32 {
        self.rope_dim
    }
    /// Lanes of a query head without a rotation.
    #[must_use]
    pub const fn nope_head_dim(&self) -> u32 {
        self.nope_head_dim
    }
    /// Lanes of a value head.
    #[must_use]
    pub const fn v_head_dim(&self) -> u32 {
        self.v_head_dim
    }
    /// Lanes of the compressed query, if queries are compressed.
    #[must_use]
    pub const fn q_lora_rank(&self) -> Option<u32> {
        self.q_lora_rank
    }

    /// Indices of the MLA layers: the place of each is its layer in the MLA pool.
    pub fn mla_layer_indices(&self) -> impl Iterator<Item = usize> {
        self.indices(|layer| matches!(layer, LayerKind::Mla { .. }))
    }
    /// Indices of the KDA layers.
    pub fn kda_layer_indices(&self) -> impl Iterator<Item = usize> {
        self.indices(|layer| matches!(layer, LayerKind::Kda(_)))
    }

    fn indices(&self, wanted: fn(&LayerKind) -> bool) -> impl Iterator<Item = usize> {
        let layers = self.layers.iter().enumerate();
        layers.filter_map(move |(index, layer)| wanted(layer).then_some(index))
    }

    /// Number of MLA layers.
    #[must_use]
    pub fn mla_layers(&self) -> u32 {
        count(self.mla_layer_indices())
    }
    /// Number of KDA layers.
    #[must_use]
    pub fn kda_layers(&self) -> u32 {
        count(self.kda_layer_indices())
    }
    /// Number of layers with keys and values a head.
    #[must_use]
    pub fn full_layers(&self) -> u32 {
        count(self.indices(|layer| matches!(layer, LayerKind::Full { .. })))
    }

    /// The same model with MLA rows stored as `row`.
    ///
    /// # Errors
    /// A format for other widths, or rows of no bytes.
    pub fn with_row_format(mut self, row: RowFormat) -> Result<Self, ModelError> {
        for layer in &mut self.layers {
            if let LayerKind::Mla { row: stored } = layer {
                *stored = row;
            }
        }
        self.check_rows()?;
        Ok(self)
    }

    /// Bytes that one token takes in all MLA layers, on its owner.
    #[must_use]
    pub fn token_bytes(&self) -> u64 {
        let bytes = |layer: &LayerKind| match layer {
            LayerKind::Mla { row } => u64::from(row.row_bytes()),
            LayerKind::Kda(_) | LayerKind::Full { .. } => 0,
        };
        self.layers.iter().map(bytes).sum()
    }

    /// How the MLA rows are stored.
    ///
    /// # Errors
    /// No MLA layer, or layers of different formats.
    pub fn row_format(&self) -> Result<RowFormat, ModelError> {
        let mut rows = self.layers.iter().filter_map(|layer| match layer {
            LayerKind::Mla { row } => Some(*row),
            LayerKind::Kda(_) | LayerKind::Full { .. } => None,
        });
        let refuse = |reason: String| ModelError::NoMlaPool {
            model: self.name.clone(),
            reason,
        };
        let first = rows
            .next()
            .ok_or_else(|| refuse("no layer is MLA".into()))?;
        match rows.find(|&row| row != first) {
            None => Ok(first),
            Some(other) => Err(refuse(format!("rows of {first:?} and of {other:?}"))),
        }
    }

    /// Pages of the MLA pool with `page_rows` rows on a rank.
    ///
    /// # Errors
    /// As [`Model::row_format`].
    pub fn page_geometry(&self, page_rows: u32) -> Result<PageGeometry, ModelError> {
        let row_bytes = self.row_format()?.row_bytes();
        PageGeometry::new(page_rows, row_bytes, self.mla_layers()).map_err(|error| {
            ModelError::NoMlaPool {
                model: self.name.clone(),
                reason: error.to_string(),
            }
        })
    }

    /// Bytes of one request's states in all KDA layers, on one of `attention_tp` ranks.
    ///
    /// # Errors
    /// Heads that do not divide by the ranks.
    pub fn state_bytes(&self, attention_tp: u32) -> Result<u64, ModelError> {
        let mut sum = 0u64;
        for layer in &self.layers {
            if let LayerKind::Kda(state) = layer {
                let bytes = state
                    .bytes(attention_tp)
                    .ok_or_else(|| ModelError::StateHeads {
                        model: self.name.clone(),
                        heads: state.heads,
                        attention_tp,
                    })?;
                sum = sum.saturating_add(bytes);
            }
        }
        Ok(sum)
    }

    /// Named formats fit the latent and rotary widths of the model, and rows are whole words.
    fn check_rows(&self) -> Result<(), ModelError> {
        for layer in &self.layers {
            let LayerKind::Mla { row } = *layer else {
                continue;
            };
            match row {
                RowFormat::Bytes(bytes) if bytes == 0 || !bytes.is_multiple_of(4) => {
                    return Err(ModelError::NoMlaPool {
                        model: self.name.clone(),
                        reason: format!("rows of {bytes} bytes are not a positive multiple of 4"),
                    });
                }
                RowFormat::Bytes(_) => {}
                named if (self.kv_lora_rank, self.rope_dim) != (512, 64) => {
                    return Err(ModelError::RowFormat {
                        model: self.name.clone(),
                        format: named,
                        latent: self.kv_lora_rank,
                        rotary: self.rope_dim,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn count(items: impl Iterator) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}

/// A parser's message without the picture of the line that it draws.
pub(crate) fn one_line(error: &impl core::fmt::Display) -> String {
    let text = error.to_string();
    let drawing = |line: &&str| !(line.contains(" | ") || line.trim_end().ends_with('|'));
    let lines: Vec<_> = text.lines().filter(drawing).map(str::trim).collect();
    // Names of the text itself stand in the message, with whatever control characters they have.
    let mut line = String::new();
    for c in lines.join(": ").chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests;

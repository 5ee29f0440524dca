// SPDX-License-Identifier: Apache-2.0
//! What a user says of a model: a preset, a file, or a preset with some fields given.

use core::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::presets::{self, Known};
use super::{KdaState, LayerKind, MAX_LAYERS, MAX_WIDTH, Model, ModelError};
use crate::geometry::RowFormat;

/// A run of equal layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LayerGroup {
    /// Multi-head latent attention.
    Mla {
        /// How many.
        #[serde(default = "one")]
        count: u32,
        /// How a row is stored; the model's format if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        row_format: Option<RowFormat>,
    },
    /// Kimi delta attention.
    Kda {
        /// How many.
        #[serde(default = "one")]
        count: u32,
        /// Heads.
        heads: u32,
        /// Lanes of a head.
        head_dim: u32,
        /// Taps of the short convolutions.
        conv_kernel: u32,
    },
    /// Attention with keys and values a head.
    Full {
        /// How many.
        #[serde(default = "one")]
        count: u32,
        /// Key-value heads.
        kv_heads: u32,
        /// Lanes of a head.
        head_dim: u32,
    },
}

const fn one() -> u32 {
    1
}

impl LayerGroup {
    const fn count(self) -> u32 {
        match self {
            Self::Mla { count, .. } | Self::Kda { count, .. } | Self::Full { count, .. } => count,
        }
    }

    /// Numbers that must be in 1..=[`MAX_WIDTH`].
    fn widths(self) -> Vec<(&'static str, u32)> {
        match self {
            Self::Mla { .. } => Vec::new(),
            Self::Kda {
                heads,
                head_dim,
                conv_kernel,
                ..
            } => vec![
                ("heads of a kda layer", heads),
                ("head_dim of a kda layer", head_dim),
                ("conv_kernel of a kda layer", conv_kernel),
            ],
            Self::Full {
                kv_heads, head_dim, ..
            } => vec![
                ("kv_heads of a full layer", kv_heads),
                ("head_dim of a full layer", head_dim),
            ],
        }
    }

    const fn layer(self, default_row: RowFormat) -> LayerKind {
        match self {
            Self::Mla { row_format, .. } => LayerKind::Mla {
                row: match row_format {
                    Some(row) => row,
                    None => default_row,
                },
            },
            Self::Kda {
                heads,
                head_dim,
                conv_kernel,
                ..
            } => LayerKind::Kda(KdaState {
                heads,
                head_dim,
                conv_kernel,
            }),
            Self::Full {
                kv_heads, head_dim, ..
            } => LayerKind::Full { kv_heads, head_dim },
        }
    }
}

/// A model file, or the name of a preset. Fields that are given win over the preset's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelSpec {
    /// The preset that fills absent fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// A name of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Query heads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<u32>,
    /// Lanes between layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<u32>,
    /// Latent lanes of an MLA row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_lora_rank: Option<u32>,
    /// Rotary lanes of an MLA row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_dim: Option<u32>,
    /// Lanes of a query head without a rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nope_head_dim: Option<u32>,
    /// Lanes of a value head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v_head_dim: Option<u32>,
    /// Lanes of the compressed query; 0 where queries are not compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub q_lora_rank: Option<u32>,
    /// How MLA rows are stored; bf16 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_format: Option<RowFormat>,
    /// All layers, first to last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<LayerGroup>>,
}

/// The table form, from which the named form differs in syntax only.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, remote = "ModelSpec")]
struct Table {
    preset: Option<String>,
    name: Option<String>,
    heads: Option<u32>,
    hidden: Option<u32>,
    kv_lora_rank: Option<u32>,
    rope_dim: Option<u32>,
    nope_head_dim: Option<u32>,
    v_head_dim: Option<u32>,
    q_lora_rank: Option<u32>,
    row_format: Option<RowFormat>,
    layers: Option<Vec<LayerGroup>>,
}

impl<'de> Deserialize<'de> for ModelSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;

        impl<'de> Visitor<'de> for NameOrTable {
            type Value = ModelSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a model or a table that describes one")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<ModelSpec, E> {
                Ok(ModelSpec::preset(name))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelSpec, A::Error> {
                Table::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_any(NameOrTable)
    }
}

impl ModelSpec {
    /// The preset of that name, whether there is one or not.
    #[must_use]
    pub fn preset(name: &str) -> Self {
        Self {
            preset: Some(name.to_owned()),
            ..Self::default()
        }
    }

    /// The model, if every field that it needs is known.
    ///
    /// # Errors
    /// An unknown preset; missing fields, all of them named; numbers out of range; layers that
    /// contradict the preset.
    pub fn resolve(&self) -> Result<Model, ModelError> {
        let known = match &self.preset {
            Some(name) => presets::find(name).ok_or_else(|| ModelError::Unknown {
                name: name.clone(),
                known: presets::PRESETS.to_vec(),
            })?,
            None => Known::default(),
        };
        let name = self.name.clone().or_else(|| self.preset.clone());
        let name = name.unwrap_or_else(|| "without a name".to_owned());
        let groups = self.layers.clone().or_else(|| known.layers.clone());
        let model = self.fill(&name, &known, groups.as_deref())?;
        if let (Some(mla), Some(_)) = (known.mla_layers, &self.layers) {
            let given = model.mla_layers();
            if given != mla {
                return Err(ModelError::MlaLayers {
                    model: name,
                    known: mla,
                    given,
                });
            }
        }
        model.check_rows()?;
        Ok(model)
    }

    fn fill(
        &self,
        name: &str,
        known: &Known,
        groups: Option<&[LayerGroup]>,
    ) -> Result<Model, ModelError> {
        let is_mla = |group: &LayerGroup| matches!(group, LayerGroup::Mla { .. });
        // Without the layers the MLA fields are asked for too, so that one message names all.
        let needs_mla = groups.is_none_or(|groups| groups.iter().any(is_mla));
        let mut fields = Fields {
            model: name,
            missing: Vec::new(),
        };
        if self.preset.is_none() && self.name.is_none() {
            fields.missing.push("name");
        }
        if groups.is_none() {
            fields.missing.push("layers");
        }
        let mut mla = |field, given: Option<u32>, known: Option<u32>| match given.or(known) {
            None if !needs_mla => Ok(0),
            value => fields.width(field, value),
        };
        let kv_lora_rank = mla("kv_lora_rank", self.kv_lora_rank, known.kv_lora_rank)?;
        let rope_dim = mla("rope_dim", self.rope_dim, known.rope_dim)?;
        let nope_head_dim = mla("nope_head_dim", self.nope_head_dim, known.nope_head_dim)?;
        let v_head_dim = mla("v_head_dim", self.v_head_dim, known.v_head_dim)?;
        let q_lora_rank = match self.q_lora_rank.or(known.q_lora_rank) {
            Some(0) => None,
            None if !needs_mla => None,
            value => Some(fields.width("q_lora_rank", value)?),
        };
        let heads = fields.width("heads", self.heads.or(known.heads))?;
        let hidden = fields.width("hidden", self.hidden.or(known.hidden))?;
        fields.complete()?;
        let row = self.row_format;
        let row = row.unwrap_or_else(|| bf16_row(kv_lora_rank, rope_dim));
        Ok(Model {
            name: name.to_owned(),
            layers: expand(name, groups.unwrap_or_default(), row)?,
            heads,
            hidden,
            kv_lora_rank,
            rope_dim,
            nope_head_dim,
            v_head_dim,
            q_lora_rank,
        })
    }
}

/// A row of both parts in bf16.
const fn bf16_row(kv_lora_rank: u32, rope_dim: u32) -> RowFormat {
    match (kv_lora_rank, rope_dim) {
        (512, 64) => RowFormat::Bf16,
        _ => RowFormat::Bytes(2 * (kv_lora_rank + rope_dim)),
    }
}

/// Collects what is missing and checks what is there.
struct Fields<'a> {
    model: &'a str,
    missing: Vec<&'static str>,
}

impl Fields<'_> {
    fn width(&mut self, field: &'static str, value: Option<u32>) -> Result<u32, ModelError> {
        let Some(value) = value else {
            self.missing.push(field);
            return Ok(0);
        };
        check(self.model, field, value, MAX_WIDTH)?;
        Ok(value)
    }

    fn complete(self) -> Result<(), ModelError> {
        if self.missing.is_empty() {
            return Ok(());
        }
        Err(ModelError::Missing {
            model: self.model.to_owned(),
            fields: self.missing,
        })
    }
}

fn check(model: &str, field: &'static str, value: u32, max: u32) -> Result<(), ModelError> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(ModelError::Range {
        model: model.to_owned(),
        field,
        value: u64::from(value),
        min: 1,
        max: u64::from(max),
    })
}

fn expand(
    model: &str,
    groups: &[LayerGroup],
    row: RowFormat,
) -> Result<Vec<LayerKind>, ModelError> {
    let mut layers = Vec::new();
    for group in groups {
        check(model, "count of layers", group.count(), MAX_LAYERS)?;
        for (field, value) in group.widths() {
            check(model, field, value, MAX_WIDTH)?;
        }
        let run = core::iter::repeat_n(group.layer(row), group.count() as usize);
        layers.extend(run);
        if layers.len() > MAX_LAYERS as usize {
            break;
        }
    }
    let total = u32::try_from(layers.len()).unwrap_or(u32::MAX);
    check(model, "number of layers", total, MAX_LAYERS)?;
    Ok(layers)
}

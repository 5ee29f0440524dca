// SPDX-License-Identifier: Apache-2.0
//! Presets. Every number names its source.

use super::spec::LayerGroup;

/// Names of the presets.
pub const PRESETS: &[&str] = &["deepseek-v3.1", "kimi-k2", "kimi-linear-48b", "kimi-k3"];

/// What the source of a preset says; absent fields must be given.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) layers: Option<Vec<LayerGroup>>,
    /// Known even where the other layers are not.
    pub(super) mla_layers: Option<u32>,
    pub(super) heads: Option<u32>,
    pub(super) hidden: Option<u32>,
    pub(super) kv_lora_rank: Option<u32>,
    pub(super) rope_dim: Option<u32>,
    pub(super) nope_head_dim: Option<u32>,
    pub(super) v_head_dim: Option<u32>,
    pub(super) q_lora_rank: Option<u32>,
}

pub(super) fn find(name: &str) -> Option<Known> {
    match name {
        "deepseek-v3.1" => Some(deepseek_v3_1()),
        "kimi-k2" => Some(kimi_k2()),
        "kimi-linear-48b" => Some(kimi_linear_48b()),
        "kimi-k3" => Some(kimi_k3()),
        _ => None,
    }
}

const fn mla(count: u32) -> LayerGroup {
    LayerGroup::Mla {
        count,
        row_format: None,
    }
}

/// Source: `config.json` of the published checkpoint deepseek-ai/DeepSeek-V3.1.
fn deepseek_v3_1() -> Known {
    Known {
        layers: Some(vec![mla(61)]), // num_hidden_layers; all are MLA
        mla_layers: None,
        heads: Some(128),         // num_attention_heads
        hidden: Some(7168),       // hidden_size
        kv_lora_rank: Some(512),  // kv_lora_rank
        rope_dim: Some(64),       // qk_rope_head_dim
        nope_head_dim: Some(128), // qk_nope_head_dim
        v_head_dim: Some(128),    // v_head_dim
        q_lora_rank: Some(1536),  // q_lora_rank
    }
}

/// Source: `config.json` of the published checkpoint moonshotai/Kimi-K2-Instruct, whose
/// architecture is DeepSeek-V3 with fewer heads.
fn kimi_k2() -> Known {
    Known {
        heads: Some(64), // num_attention_heads
        // num_hidden_layers 61, hidden_size 7168, kv_lora_rank 512, qk_rope_head_dim 64,
        // qk_nope_head_dim 128, v_head_dim 128, q_lora_rank 1536: equal to DeepSeek-V3.
        ..deepseek_v3_1()
    }
}

/// Source: `config.json` of the published checkpoint moonshotai/Kimi-Linear-48B-A3B-Instruct.
fn kimi_linear_48b() -> Known {
    // linear_attn_config: num_heads, head_dim, short_conv_kernel_size.
    let kda = |count| LayerGroup::Kda {
        count,
        heads: 32,
        head_dim: 128,
        conv_kernel: 4,
    };
    // linear_attn_config.full_attn_layers 4, 8, 12, 16, 20, 24, 27, counted from 1, of
    // num_hidden_layers 27.
    let mut layers = Vec::new();
    for _ in 0..6 {
        layers.extend([kda(3), mla(1)]);
    }
    layers.extend([kda(2), mla(1)]);
    Known {
        layers: Some(layers),
        mla_layers: None,
        heads: Some(32),          // num_attention_heads
        hidden: Some(2304),       // hidden_size
        kv_lora_rank: Some(512),  // kv_lora_rank
        rope_dim: Some(64),       // qk_rope_head_dim
        nope_head_dim: Some(128), // qk_nope_head_dim
        v_head_dim: Some(128),    // v_head_dim
        q_lora_rank: Some(0),     // q_lora_rank null: queries are not compressed
    }
}

/// Source: an SGLang report on prefill-decode transfer, whose list of item lengths has 24 MLA
/// layers of 1152-byte rows, hence 512 + 64 lanes in bf16. Everything else must be given.
fn kimi_k3() -> Known {
    Known {
        mla_layers: Some(24),
        kv_lora_rank: Some(512),
        rope_dim: Some(64),
        ..Known::default()
    }
}

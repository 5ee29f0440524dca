// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn presets_have_the_layers_of_their_sources() {
    let deepseek = Model::preset("deepseek-v3.1").unwrap();
    assert_eq!((deepseek.mla_layers(), deepseek.heads()), (61, 128));
    assert_eq!(deepseek.token_bytes(), 70_272);
    assert_eq!(
        deepseek.page_geometry(64).unwrap().page_bytes(),
        64 * 70_272
    );
    assert_eq!(deepseek.state_bytes(8), Ok(0));
    let k2 = Model::preset("kimi-k2").unwrap();
    assert_eq!(
        (k2.mla_layers(), k2.heads(), k2.name()),
        (61, 64, "kimi-k2")
    );
    let linear = Model::preset("kimi-linear-48b").unwrap();
    let full: Vec<_> = linear.mla_layer_indices().map(|layer| layer + 1).collect();
    assert_eq!(full, [4, 8, 12, 16, 20, 24, 27]);
    assert_eq!((linear.kda_layers(), linear.layers().len()), (20, 27));
    assert_eq!(linear.q_lora_rank(), None);
    // 32 heads of 128 x 128 f32 and three tails of 3 x 4096 bf16, in 20 layers.
    assert_eq!(linear.state_bytes(1), Ok(20 * (2_097_152 + 73_728)));
    assert_eq!(linear.state_bytes(4), Ok(5 * (2_097_152 + 73_728)));
    let error = linear.state_bytes(3).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("32 KDA heads do not divide by attention TP 3")
    );
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    assert_eq!(
        Model::preset("gpt").unwrap_err().to_string(),
        "unknown model \"gpt\": known are deepseek-v3.1, kimi-k2, kimi-linear-48b, kimi-k3"
    );
}

#[test]
fn a_preset_with_unknown_fields_starts_when_they_are_given() {
    assert_eq!(
        Model::preset("kimi-k3").unwrap_err().to_string(),
        "model kimi-k3 lacks layers, nope_head_dim, v_head_dim, q_lora_rank, heads, hidden: give \
         them in a model file"
    );
    let file = |mla: u32| {
        format!(
            "preset = 'kimi-k3'\nheads = 96\nhidden = 7168\nq_lora_rank = 1536\n\
             nope_head_dim = 128\nv_head_dim = 128\n\
             [[layers]]\nkind = 'kda'\ncount = 69\nheads = 96\nhead_dim = 128\nconv_kernel = 4\n\
             [[layers]]\nkind = 'mla'\ncount = {mla}\n"
        )
    };
    let model = Model::from_toml(&file(24)).unwrap();
    assert_eq!((model.mla_layers(), model.kda_layers()), (24, 69));
    let error = Model::from_toml(&file(23)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "model kimi-k3 has 24 MLA layers, and the layers given have 23"
    );
}

#[test]
fn a_file_may_say_any_mix_of_layers() {
    let json = r#"{"name": "mix", "heads": 8, "hidden": 64, "kv_lora_rank": 32, "rope_dim": 16,
        "nope_head_dim": 16, "v_head_dim": 16, "q_lora_rank": 0, "layers": [
        {"kind": "mla"}, {"kind": "kda", "heads": 4, "head_dim": 8, "conv_kernel": 4},
        {"kind": "full", "count": 2, "kv_heads": 2, "head_dim": 8},
        {"kind": "mla", "count": 2, "row_format": {"bytes": 256}}]}"#;
    let model = Model::from_json(json).unwrap();
    assert_eq!(
        (model.mla_layers(), model.kda_layers(), model.full_layers()),
        (3, 1, 2)
    );
    assert_eq!(model.token_bytes(), 96 + 2 * 256);
    assert!(model.row_format().is_err());
    let model = model.with_row_format(RowFormat::Bytes(64)).unwrap();
    assert_eq!(model.row_format(), Ok(RowFormat::Bytes(64)));
    let error = model.with_row_format(RowFormat::Fp8Tile).unwrap_err();
    assert!(error.to_string().contains("the model has 32 and 16"));
}

#[test]
fn bad_files_are_refused_in_one_line() {
    for (text, wanted) in [
        ("{\"head\": 1}", "unknown field `head`"),
        ("{\"name\": \"x\"}", "lacks layers, kv_lora_rank, rope_dim"),
        ("{\"preset\": \"kimi-k2\", \"heads\": 0}", "heads is 0"),
        (
            "{\"preset\": \"kimi-k2\", \"layers\": []}",
            "number of layers is 0",
        ),
        (
            "{\"preset\": \"kimi-k2\", \"layers\": [{\"kind\": \"mla\", \"count\": 4097}]}",
            "count of layers is 4097",
        ),
        (
            "{\"preset\": \"kimi-k2\", \"layers\": [{\"kind\": \"mla\", \"heads\": 1}]}",
            "unknown field `heads`",
        ),
        (
            "{\"preset\": \"kimi-k2\", \"row_format\": {\"bytes\": 6}}",
            "rows of 6 bytes",
        ),
        ("[", "model file: "),
    ] {
        let error = Model::from_json(text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let error = Model::from_toml("preset = 3\n").unwrap_err().to_string();
    assert!(error.contains("line 1") && !error.contains('\n'), "{error}");
}

#[test]
fn a_spec_is_a_name_or_a_table_and_survives_a_round_trip() {
    let named: ModelSpec = serde_json::from_str("\"kimi-k2\"").unwrap();
    assert_eq!(named, ModelSpec::preset("kimi-k2"));
    let table = ModelSpec {
        row_format: Some(RowFormat::Fp8Row),
        ..named
    };
    let text = toml::to_string(&table).unwrap();
    assert_eq!(toml::from_str::<ModelSpec>(&text).unwrap(), table);
    let text = serde_json::to_string(&table).unwrap();
    assert_eq!(serde_json::from_str::<ModelSpec>(&text).unwrap(), table);
}

/// Seen to fail if the bytes are multiplied without a look at their size.
#[test]
fn states_of_any_size_have_bytes() {
    let state = |heads, head_dim, conv_kernel| KdaState {
        heads,
        head_dim,
        conv_kernel,
    };
    assert_eq!(state(2, 8, 4).bytes(1), Some(3 * 16 * 3 * 2 + 16 * 8 * 4));
    let most = u32::MAX;
    assert_eq!(state(most, most, most).bytes(1), Some(u64::MAX));
    assert_eq!(state(most, most, most).bytes(0), None);
}

// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::models::ModelSpec;
use CommBackend::{A2a, AgRs, FiA2a, Peer, Sim, Stream};

const K3: &str = "{\"preset\": \"kimi-k3\", \"heads\": 64, \"hidden\": 64, \"q_lora_rank\": 64, \
                  \"nope_head_dim\": 128, \"v_head_dim\": 128, \
                  \"layers\": [{\"kind\": \"mla\", \"count\": 24}]}";

fn config(k3: bool, dcp_size: u32) -> EngineConfig {
    EngineConfig {
        tp: 8,
        dcp_size,
        model: if k3 {
            serde_json::from_str(K3).unwrap()
        } else {
            ModelSpec::preset("kimi-k2")
        },
        ..EngineConfig::default()
    }
}

const fn means(collectives: bool, one_sided: bool, in_process: bool) -> ExchangeMeans {
    ExchangeMeans {
        collectives,
        one_sided,
        in_process,
        host: false,
    }
}

/// Means, preset k3, exchange set, replicated queries set; the exchange and the queries.
type Case = (
    ExchangeMeans,
    bool,
    Option<CommBackend>,
    Option<bool>,
    Result<(CommBackend, bool), &'static str>,
);

#[test]
fn the_table_of_presets_means_and_settings() {
    let all = means(true, true, true);
    let cluster = means(true, false, false);
    let process = means(false, false, true);
    let nothing = means(false, false, false);
    let collectives = Err("collectives between processes are not built");
    let cases: &[Case] = &[
        // Nothing set.
        (all, false, None, None, Ok((AgRs, false))),
        (all, true, None, None, Ok((FiA2a, true))),
        (cluster, false, None, None, Ok((AgRs, false))),
        (cluster, true, None, None, Ok((A2a, true))),
        (process, false, None, None, Ok((Stream, false))),
        (process, true, None, None, Ok((Stream, true))),
        (nothing, false, None, None, Err("no exchange")),
        (nothing, true, None, None, Err("no exchange")),
        // The queries set.
        (all, false, None, Some(false), Ok((AgRs, false))),
        (all, false, None, Some(true), Err("and it is ag_rs")),
        (all, true, None, Some(false), Ok((FiA2a, false))),
        (process, false, None, Some(true), Ok((Stream, true))),
        (process, true, None, Some(false), Ok((Stream, false))),
        // The exchange set: honoured or refused by name, never replaced.
        (all, true, Some(AgRs), None, Ok((AgRs, false))),
        (all, true, Some(AgRs), Some(true), Err("and it is ag_rs")),
        (all, true, Some(A2a), None, Ok((A2a, true))),
        (all, false, Some(A2a), Some(true), Ok((A2a, true))),
        (all, false, Some(Peer), None, Ok((Peer, false))),
        (all, false, Some(FiA2a), None, Ok((FiA2a, false))),
        (cluster, false, Some(FiA2a), None, Err("fi_a2a")),
        (
            cluster,
            true,
            Some(Peer),
            None,
            Err("dcp_comm_backend peer"),
        ),
        (
            cluster,
            false,
            Some(Stream),
            None,
            Err("stream cannot be used here: the ranks are not"),
        ),
        (process, true, Some(A2a), None, collectives),
        (process, false, Some(AgRs), None, collectives),
        (process, true, Some(Stream), None, Ok((Stream, true))),
        (
            process,
            true,
            Some(Sim),
            None,
            Err("sim cannot be used here"),
        ),
        (
            ExchangeMeans::ONE_PROCESS,
            false,
            Some(Sim),
            None,
            Ok((Sim, false)),
        ),
    ];
    for (row, &(means, k3, exchange, replicate, want)) in cases.iter().enumerate() {
        let config = EngineConfig {
            dcp_comm_backend: exchange,
            dcp_replicate_q_proj: replicate,
            ..config(k3, 8)
        };
        match (config.exchange(means), want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "row {row}"),
            (Err(error), Err(part)) => {
                let text = error.to_string();
                assert!(text.contains(part), "row {row}: {text}");
            }
            (got, want) => panic!("row {row}: {got:?}, and not {want:?}"),
        }
    }
}

#[test]
fn one_rank_exchanges_nothing_and_replicates_nothing() {
    for k3 in [false, true] {
        for exchange in [None, Some(AgRs), Some(Stream), Some(Sim)] {
            let config = EngineConfig {
                dcp_comm_backend: exchange,
                ..config(k3, 1)
            };
            let settings = config.decode_settings(ExchangeMeans::ONE_PROCESS).unwrap();
            assert_eq!(
                (settings.exchange, settings.replicate_q_proj),
                (None, false)
            );
        }
        for exchange in [A2a, FiA2a, Peer] {
            let config = EngineConfig {
                dcp_comm_backend: Some(exchange),
                ..config(k3, 1)
            };
            let error = config
                .decode_settings(ExchangeMeans::ONE_PROCESS)
                .unwrap_err();
            assert!(
                error.to_string().contains("needs a dcp size above 1"),
                "{error}"
            );
        }
        let config = EngineConfig {
            dcp_replicate_q_proj: Some(true),
            ..config(k3, 1)
        };
        let error = config
            .decode_settings(ExchangeMeans::ONE_PROCESS)
            .unwrap_err();
        assert!(
            error.to_string().contains("needs a dcp size above 1"),
            "{error}"
        );
    }
}

#[test]
fn attention_backends_have_a_kernel_or_are_refused_by_name() {
    let kernel = |name: &str, format| {
        let backend: AttentionBackend = name.parse().unwrap();
        backend.kernel(format).map_err(|error| error.to_string())
    };
    for name in [
        "striata",
        "fa3",
        "flashmla",
        "flashinfer",
        "cutedsl_mla",
        "trtllm_mla",
        "triton",
    ] {
        assert_eq!(
            kernel(name, RowFormat::Bf16),
            Ok(AttentionKernel::Auto),
            "{name}"
        );
    }
    assert_eq!(kernel("simt", RowFormat::Bf16), Ok(AttentionKernel::Simt));
    assert_eq!(kernel("mma", RowFormat::Fp8Row), Ok(AttentionKernel::Mma));
    assert_eq!(
        kernel("tokenspeed_mla", RowFormat::Fp8Tensor),
        Ok(AttentionKernel::Auto)
    );
    for (name, reason) in [
        ("tokenspeed_mla", "fp8 rows only"),
        ("ascend", "NPUs"),
        ("aiter", "AMD"),
        ("torch_native", "tensors"),
    ] {
        let error = kernel(name, RowFormat::Bf16).unwrap_err();
        let named = error.starts_with(&format!("attention_backend {name} "));
        assert!(named && error.contains(reason), "{error}");
    }
    assert!("flashinfer2".parse::<AttentionBackend>().is_err());
    let mut config = config(false, 8);
    let settings = |config: &EngineConfig| config.decode_settings(ExchangeMeans::ONE_PROCESS);
    let unset = settings(&config).unwrap();
    assert_eq!(unset.kernel, AttentionKernel::Auto);
    assert_eq!((unset.heads.local, unset.heads.gathered), (8, 64));
    config.attention_backend = Some(AttentionBackend::Ascend);
    assert!(settings(&config).is_err());
    // A configuration is refused as a whole, also by callers that never decode.
    assert!(config.validate().is_err());
}

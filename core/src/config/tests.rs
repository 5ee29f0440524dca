// SPDX-License-Identifier: Apache-2.0
use super::*;

fn refused(change: impl FnOnce(&mut EngineConfig)) -> String {
    let mut config = EngineConfig {
        tp: 8,
        dcp_size: 8,
        ..EngineConfig::default()
    };
    change(&mut config);
    config.validate().unwrap_err().to_string()
}

#[test]
fn defaults_are_those_of_hicache() {
    let settings = EngineConfig::from_toml("").unwrap().validate().unwrap();
    assert_eq!(settings.stripe.widened_page(), 64);
    assert_eq!(settings.l2, L2Size::Ratio(2.0));
    assert_eq!(settings.load_back_threshold, 10);
    assert_eq!(settings.write_policy, WritePolicy::WriteThrough);
    assert_eq!(settings.eviction_policy, PolicyName::Lru);
    assert_eq!(settings.comm_backend, CommBackend::AgRs);
    // 8 GiB of 4,497,408-byte pages, one of them the sink.
    assert_eq!((settings.l1_pages(), settings.l2_pages()), (1908, 3816));
}

#[test]
fn a_whole_file_is_read_and_survives_a_round_trip() {
    let text = "tp = 8\ndp = 2\ndecode_context_parallel_size = 4\npage_size = 32\n\
        model = 'kimi-k2'\nl1 = '5120000t'\nl2 = 0\nhicache_write_policy = 'write_back'\n\
        radix_eviction_policy = 'slru'\nhicache_io_backend = 'kernel'\n\
        hicache_mem_layout = 'page_first'\ndcp_comm_backend = 'a2a'\n\
        dcp_replicate_q_proj = true\nload_back_quota = 4096\nhit_full_length = true\n\
        free_watermark = 1280\nstore_quota = 640\nduplicates_first = true\nmax_leases = 7\n\
        kv_events = true\n";
    let config = EngineConfig::from_toml(text).unwrap();
    let settings = config.validate().unwrap();
    assert_eq!((settings.heads.local, settings.heads.gathered), (16, 64));
    assert_eq!(settings.l1_pages(), 40_000);
    assert_eq!((settings.l2, settings.l2_pages()), (L2Size::Off, 0));
    assert_eq!(settings.io_backend, IoBackend::Kernel);
    assert!(settings.replicate_q_proj && settings.duplicates_first && settings.kv_events);
    assert_eq!(
        (settings.free_watermark, settings.store_quota),
        (1280, Some(640))
    );
    assert_eq!((settings.max_leases, settings.l2_max_pages()), (7, None));
    let written = toml::to_string(&config).unwrap();
    assert_eq!(EngineConfig::from_toml(&written).unwrap(), config);
    let json = serde_json::to_string(&config).unwrap();
    assert_eq!(EngineConfig::from_json(&json).unwrap(), config);
}

#[test]
fn syntax_and_unknown_names_are_one_line() {
    for (text, wanted) in [
        ("tp = -1", "line 1"),
        ("page = 64", "unknown field `page`"),
        ("l1 = '12'", "size \"12\" is refused: it has no unit"),
        ("write_policy = 'never'", "unknown variant `never`"),
        ("tp = [", "configuration: "),
    ] {
        let error = EngineConfig::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let error = "never".parse::<PolicyName>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown eviction policy \"never\": known are lru, lfu, fifo, mru, filo, slru, priority"
    );
    for &policy in PolicyName::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
        let json = serde_json::to_string(&policy).unwrap();
        assert_eq!(json, format!("\"{policy}\""));
    }
}

/// Seen to fail if features that are asked for and not built are passed over.
#[test]
fn b55_features_that_are_not_there_are_refused_by_name() {
    let some = || Some("x".to_owned());
    let full = "{\"name\": \"gqa\", \"heads\": 8, \"hidden\": 64, \
                \"layers\": [{\"kind\": \"full\", \"kv_heads\": 8, \"head_dim\": 64}]}";
    for (error, name) in [
        (
            refused(|c| c.hicache_storage_backend = some()),
            "L3 storage",
        ),
        (refused(|c| c.enable_lmcache = true), "LMCache"),
        (refused(|c| c.enable_hisparse = true), "HiSparse"),
        (
            refused(|c| c.attention_cp = 2),
            "prefill context parallelism",
        ),
        (
            refused(|c| c.speculative_algorithm = some()),
            "speculative decoding",
        ),
        (
            refused(|c| c.disaggregation_mode = some()),
            "prefill-decode",
        ),
        (
            refused(|c| c.tier_recurrent_state = true),
            "recurrent state",
        ),
        (
            refused(|c| c.dcp_comm_backend = Some(CommBackend::FiA2a)),
            "fi_a2a",
        ),
        (
            refused(|c| c.model = serde_json::from_str(full).unwrap()),
            "non-MLA host pools",
        ),
    ] {
        assert!(error.contains(name), "{error}");
        assert!(error.ends_with("is not supported"), "{error}");
    }
}

/// Seen to fail if c need only divide tp.
#[test]
fn b55_topologies_are_checked_at_start() {
    for (tp, dp, c, accepted) in [
        (64, 4, 1, true),
        (64, 4, 2, true),
        (64, 4, 4, true),
        (64, 4, 8, true),
        (64, 4, 16, true),
        (64, 4, 32, false),
        (64, 4, 64, false),
        (8, 1, 8, true),
    ] {
        let config = EngineConfig {
            tp,
            dp,
            dcp_size: c,
            ..EngineConfig::default()
        };
        assert_eq!(config.validate().is_ok(), accepted, "{tp} {dp} {c}");
    }
    let error = refused(|config| {
        config.tp = 3;
        config.dcp_size = 3;
        config.model = crate::models::ModelSpec::preset("kimi-k2");
    });
    assert!(error.starts_with("64 heads do not divide by 3"), "{error}");
}

#[test]
fn exchange_and_replicated_queries_must_agree() {
    let one = |config: &mut EngineConfig| config.dcp_size = 1;
    for backend in [CommBackend::A2a, CommBackend::FiA2a] {
        let error = refused(|c| {
            one(c);
            c.dcp_comm_backend = Some(backend);
        });
        assert!(error.contains("needs a dcp size above 1"), "{error}");
    }
    let error = refused(|c| {
        one(c);
        c.dcp_replicate_q_proj = Some(true);
    });
    assert!(error.contains("dcp_replicate_q_proj needs a dcp size above 1"));
    let error = refused(|c| c.dcp_replicate_q_proj = Some(true));
    assert!(error.ends_with("a2a or fi_a2a, and it is ag_rs"), "{error}");
}

#[test]
fn the_override_of_a_model_fills_only_what_is_not_set() {
    let mut config = EngineConfig {
        tp: 8,
        dcp_size: 8,
        ..EngineConfig::default()
    };
    config.model = serde_json::from_str(
        "{\"preset\": \"kimi-k3\", \"heads\": 64, \"hidden\": 64, \"q_lora_rank\": 64, \
         \"nope_head_dim\": 128, \"v_head_dim\": 128, \
         \"layers\": [{\"kind\": \"mla\", \"count\": 24}]}",
    )
    .unwrap();
    let of = |config: &EngineConfig| {
        let settings = config.validate().unwrap();
        (settings.comm_backend, settings.replicate_q_proj)
    };
    assert_eq!(of(&config), (CommBackend::A2a, true));
    config.dcp_replicate_q_proj = Some(false);
    assert_eq!(of(&config), (CommBackend::A2a, false));
    config.dcp_comm_backend = Some(CommBackend::AgRs);
    config.dcp_replicate_q_proj = None;
    assert_eq!(of(&config), (CommBackend::AgRs, false));
    config.dcp_comm_backend = None;
    config.dcp_size = 1;
    assert_eq!(of(&config), (CommBackend::AgRs, false));
}

#[test]
fn numbers_out_of_range_are_refused_with_the_range() {
    for (error, wanted) in [
        (refused(|c| c.tp = 0), "tp is 0: it must be 1..=4096"),
        (refused(|c| c.tp = 8192), "tp is 8192"),
        (refused(|c| c.dp = 0), "dp is 0"),
        (refused(|c| c.dcp_size = 0), "dcp size is 0"),
        (refused(|c| c.page_size = 0), "page size 0 is out of range"),
        (
            refused(|c| c.interleave = 3),
            "interleave 3 does not divide",
        ),
        (refused(|c| c.attention_cp = 0), "attention_cp is 0"),
        (refused(|c| c.hicache_ratio = 0.0), "hicache_ratio is 0"),
        (
            refused(|c| c.hicache_ratio = f64::NAN),
            "hicache_ratio is NaN",
        ),
        (
            refused(|c| c.hicache_size = Some(-1.0)),
            "hicache_size is -1",
        ),
        (
            refused(|c| c.load_back_quota = Some(0)),
            "load_back_quota is 0",
        ),
        (refused(|c| c.max_leases = 0), "max_leases is 0"),
        (
            refused(|c| c.max_leases = (1 << 20) + 1),
            "max_leases is 1048577",
        ),
        (
            refused(|c| c.free_watermark = 1908 * 512),
            "free_watermark is 976896: it must be less than all of l1",
        ),
        (
            refused(|c| c.store_quota = Some(63)),
            "store_quota is 63: it must be at least the tokens of a widened page",
        ),
        (
            refused(|c| c.l2_max = Some(Capacity::Pages(3815))),
            "pages of l2_max is 3815",
        ),
        (
            refused(|c| {
                c.l2 = Some(Capacity::ZERO);
                c.l2_max = Some(Capacity::Pages(5));
            }),
            "pages of l2_max is 5",
        ),
        (
            refused(|c| c.namespace = "x".repeat(5000)),
            "length of namespace is 5000",
        ),
        (
            refused(|c| c.l1 = Capacity::ZERO),
            "l1 is 0: it must be room",
        ),
        (
            refused(|c| c.l1 = Capacity::Bytes(8_000_000)),
            "l1 is 8000000B",
        ),
        (
            refused(|c| c.l1 = Capacity::Pages(u64::MAX)),
            "pages of l1 is",
        ),
        (
            refused(|c| c.l1 = Capacity::Tokens(u64::MAX)),
            "pages of l1 is",
        ),
        (
            refused(|c| c.l2 = Some(Capacity::Bytes(1))),
            "l2 is less than one page",
        ),
        (
            refused(|c| c.hicache_ratio = 0.000_01),
            "l2 is less than one page",
        ),
    ] {
        assert!(error.contains(wanted), "{error}");
    }
    let error = refused(|c| {
        c.l2 = Some(Capacity::Pages(9));
        c.hicache_size = Some(10.0);
    });
    assert!(
        error.contains("l2 9p and hicache_size 10 exclude each other"),
        "{error}"
    );
    let error = refused(|c| {
        c.mem_layout = Some(MemLayout::PageFirst);
        c.io_backend = Some(IoBackend::Direct);
    });
    assert!(error.starts_with("mem_layout page_first and io_backend direct exclude"));
}

/// A field name may hold any character, and the message names the field.
#[test]
fn messages_are_one_line_whatever_the_text_holds() {
    for text in ["{\"a\\r\\nb\\u0085c\": 1}", "{\"a\\tb\": 1}"] {
        let message = EngineConfig::from_json(text).unwrap_err().to_string();
        assert!(!message.contains(char::is_control), "{message:?}");
        assert!(message.contains("unknown field"), "{message:?}");
    }
}

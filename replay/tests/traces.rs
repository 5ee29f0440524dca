// SPDX-License-Identifier: Apache-2.0
//! Every format is read as its description says, and every malformed trace gives one clear line.

use std::path::PathBuf;

use striata_replay::TraceSource;
use striata_replay::trace::{
    Bundled, Format, Request, Run, TraceProblem, TraceReader, TraceSummary, parse_bytes,
};

fn data(name: &str) -> TraceSource {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    TraceSource::File(folder.join(name))
}

fn read(name: &str) -> (Format, Vec<Request>) {
    let reader = TraceReader::open(&data(name)).unwrap();
    let format = reader.format();
    (format, reader.map(Result::unwrap).collect())
}

fn runs(request: &Request) -> Vec<(u64, u64)> {
    let pair = |run: &Run| (run.first, run.count);
    request.blocks.runs().iter().map(pair).collect()
}

/// The message of a trace given as text; it must be one line that names the trace.
fn refusal(text: impl AsRef<[u8]>) -> String {
    let message = parse_bytes(text.as_ref()).unwrap_err().to_string();
    assert!(
        message.starts_with("bytes") && !message.contains('\n'),
        "{message}"
    );
    message
}

const MOONCAKE: &str =
    r#"{"timestamp": 0, "input_length": 1200, "output_length": 10, "hash_ids": [0, 1, 2]}"#;
const AGENTIC: &str = r#"{"t":0.0,"user":0,"conv":1,"agent":0,"in":200,"out":9,"runs":[[1,3]]}"#;

#[test]
fn bundled_traces_have_the_counts_of_their_statistics() {
    let of = |trace| {
        let source = TraceSource::Bundled(trace);
        let summary = TraceSummary::of(TraceReader::open(&source).unwrap()).unwrap();
        assert_eq!(TraceReader::count(&source).unwrap(), Some(summary.requests));
        (
            summary.requests,
            summary.input_tokens,
            summary.output_tokens,
            summary.blocks,
        )
    };
    let mooncake = of(Bundled::MooncakeConversation);
    assert_eq!(mooncake, (12_031, 144_793_823, 4_122_048, 288_500));
    let (requests, input, output, _) = of(Bundled::AgenticCcU64);
    assert_eq!(
        (requests, input, output),
        (49_334, 6_037_445_403, 21_709_920)
    );
    // The same sessions, side by side in another way.
    let (requests, input, output, _) = of(Bundled::AgenticCcU256);
    assert_eq!(
        (requests, input, output),
        (49_334, 6_037_445_403, 21_709_920)
    );
}

#[test]
fn mooncake_ids_become_runs_and_milliseconds_seconds() {
    let (format, requests) = read("mooncake.jsonl");
    assert_eq!((format, requests.len()), (Format::Mooncake, 3));
    assert_eq!(runs(&requests[1]), [(0, 1), (7, 1)]);
    assert_eq!(runs(&requests[2]), [(0, 2), (8, 3)]);
    assert!((requests[2].arrival - 3.0).abs() < 1e-9);
    assert_eq!(
        requests[2].blocks.named_tokens(requests[2].input_tokens),
        2049
    );
    assert_eq!(requests[1].affinity(), 7);
}

#[test]
fn agentic_ids_are_global_and_the_tail_is_unnamed() {
    let (format, requests) = read("agentic.jsonl");
    assert_eq!((format, requests.len()), (Format::Agentic, 3));
    assert_eq!(runs(&requests[2]), [(1, 2), (50, 3)]);
    assert_eq!(requests[0].blocks.named_tokens(200), 192);
    assert_eq!((requests[1].session, requests[1].affinity()), (Some(2), 2));
}

#[test]
fn session_ids_are_made_global_and_clocks_are_chained() {
    let (format, requests) = read("agentic_sessions.jsonl");
    assert_eq!(format, Format::AgenticSessions);
    assert_eq!(runs(&requests[1]), [((1 << 32) + 1, 3)]);
    assert_eq!(runs(&requests[2]), [((2 << 32) + 1, 1), ((2 << 32) + 9, 1)]);
    let arrivals: Vec<f64> = requests.iter().map(|r| r.arrival).collect();
    assert_eq!(arrivals, [0.0, 9.0, 10.0]);
    assert!(format.notice().is_some());
}

#[test]
fn text_blocks_share_ids_and_may_lack_the_last_block() {
    let (format, requests) = read("text_blocks.jsonl");
    assert_eq!(format, Format::TextBlocks);
    assert_eq!(runs(&requests[1]), [(0, 15)]);
}

#[test]
fn a_whole_text_trace_has_the_counts_of_its_statistics() {
    let reader = TraceReader::open(&data("agentic_text_blocks64.jsonl.zst")).unwrap();
    let sum = TraceSummary::of(reader).unwrap();
    let counts = (
        sum.requests,
        sum.input_tokens,
        sum.output_tokens,
        sum.blocks,
    );
    assert_eq!(counts, (1148, 3_931_001, 511_725, 60_848));
}

#[test]
fn azure_lines_have_lengths_and_arrivals_only() {
    let (format, requests) = read("azure.csv");
    assert_eq!((format, requests.len()), (Format::Azure, 2));
    assert_eq!(
        (requests[1].input_tokens, requests[1].output_tokens),
        (396, 109)
    );
    assert!((requests[1].arrival - 4.314_579).abs() < 1e-6);
    assert_eq!(requests[1].blocks.count(), 0);
    assert!(format.notice().unwrap().contains("unshared"));
    assert_eq!(TraceReader::count(&data("azure.csv")), Ok(Some(2)));
}

#[test]
fn frames_behind_each_other_are_one_trace() {
    assert_eq!(read("two_frames.jsonl.zst"), read("mooncake.jsonl"));
}

#[test]
fn truncated_lines_are_named() {
    let text = format!("{MOONCAKE}\n{}", &MOONCAKE[..40]);
    let message = refusal(text);
    assert!(message.starts_with("bytes:2: is truncated"), "{message}");
    let message =
        refusal("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,4\n2023-11");
    assert_eq!(message, "bytes:3: is truncated: 1 of 3 fields");
}

#[test]
fn wrong_types_are_named() {
    let message = refusal(format!("{MOONCAKE}\n{}", MOONCAKE.replace("1200", "\"x\"")));
    assert!(
        message.starts_with("bytes:2: is not a mooncake record"),
        "{message}"
    );
    refusal(MOONCAKE.replace("1200", "12.5"));
    let long = format!(
        "{MOONCAKE}\n{}",
        MOONCAKE.replace("1200", &format!("{:?}", "x".repeat(10_000)))
    );
    assert!(refusal(long).len() < 300);
    refusal(MOONCAKE.replace("[0, 1, 2]", "3"));
    refusal(AGENTIC.replace("[[1,3]]", "[[1]]"));
    refusal(AGENTIC.replace("[[1,3]]", "[1,3]"));
    let message = refusal("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1");
    assert!(
        message.contains("bytes:2: ") && message.contains("not a date"),
        "{message}"
    );
}

#[test]
fn lengths_out_of_range_are_named() {
    for (from, to, field) in [
        ("1200", "-1200", "input_length -1200"),
        ("1200", "99999999999", "input_length 99999999999"),
        (
            "\"output_length\": 10",
            "\"output_length\": -1",
            "output_length -1",
        ),
        ("\"timestamp\": 0", "\"timestamp\": -5", "timestamp -5"),
    ] {
        let message = refusal(MOONCAKE.replace(from, to));
        assert!(
            message.starts_with(&format!("bytes:1: {field} is out of range")),
            "{message}"
        );
    }
    let message = refusal(MOONCAKE.replace("[0, 1, 2]", "[0, 1, 18446744073709551615]"));
    assert!(
        message.contains("block id 18446744073709551615"),
        "{message}"
    );
    for runs in [
        "[[1,0]]",
        "[[4294967295,3]]",
        "[[-1,3]]",
        "[[1,4294967296]]",
    ] {
        let message = refusal(AGENTIC.replace("[[1,3]]", runs));
        assert!(message.contains("out of range"), "{message}");
    }
}

#[test]
fn ids_that_do_not_fit_the_length_are_counted() {
    let message = refusal(MOONCAKE.replace("[0, 1, 2]", "[0, 1]"));
    assert_eq!(
        message,
        "bytes:1: 2 block ids do not fit 1200 input tokens: 3 to 3 blocks of 512 tokens do"
    );
    refusal(MOONCAKE.replace("[0, 1, 2]", "[0, 1, 2, 3]"));
    refusal(AGENTIC.replace("[[1,3]]", "[[1,2]]"));
    refusal(AGENTIC.replace("[[1,3]]", "[[1,5]]"));
    assert!(parse_bytes(AGENTIC.replace("[[1,3]]", "[[1,4]]").as_bytes()).is_ok());
}

#[test]
fn ids_that_change_their_predecessor_or_place_are_named() {
    let second = |ids: &str| format!("{MOONCAKE}\n{}", MOONCAKE.replace("[0, 1, 2]", ids));
    assert_eq!(
        refusal(second("[0, 3, 2]")),
        "bytes:2: block id 2 follows id 3, but followed id 1 before"
    );
    assert_eq!(
        refusal(second("[0, 2, 3]")),
        "bytes:2: block id 2 stands at place 1, but stood at place 2 before"
    );
    assert!(parse_bytes(second("[0, 1, 3]").as_bytes()).is_ok());
}

#[test]
fn empty_and_binary_input_is_refused() {
    for text in ["", "\n \n", "TIMESTAMP,ContextTokens,GeneratedTokens\n"] {
        assert!(refusal(text).contains("is empty"));
    }
    assert!(refusal([0xFF, 0x00, 0x80, 0x0A]).contains("bytes:1: is not UTF-8 text"));
    assert!(refusal("\u{7f}ELF").contains("no known trace format"));
    let message = refusal(r#"{"timestamp": 0, "input_length": 3, "output_length": 10}"#);
    assert!(message.contains("lacks hash_ids of mooncake"), "{message}");
}

#[test]
fn missing_files_and_folders_are_refused() {
    let message = TraceReader::open(&data("nothing.jsonl"))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("nothing.jsonl: cannot be read"),
        "{message}"
    );
    let error = TraceReader::open(&data(".")).unwrap_err();
    assert_eq!(error.problem, TraceProblem::Folder);
}

#[test]
fn broken_packing_is_refused_wherever_it_breaks() {
    let packed = Bundled::MooncakeConversation.packed();
    for keep in [4, 5, 9, 1000, packed.len() / 2, packed.len() - 1] {
        let message = refusal(&packed[..keep]);
        assert!(
            message.contains("zstd packing is damaged"),
            "{keep}: {message}"
        );
    }
    let mut junk = std::fs::read(
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/two_frames.jsonl.zst"),
    )
    .unwrap();
    for at in 0..junk.len() {
        for bit in 0..8 {
            junk[at] ^= 1 << bit;
            // Flips of reserved or unused bits may go unseen; none may panic.
            let _ = parse_bytes(&junk);
            junk[at] ^= 1 << bit;
        }
    }
    junk.extend_from_slice(b"behind");
    assert!(refusal(&junk).contains("zstd packing is damaged"));
}

#[test]
fn damage_inside_packed_blocks_never_panics() {
    let start = &Bundled::MooncakeConversation.packed()[..20_000];
    let mut state = 1u64;
    for _ in 0..3000 {
        let mut bytes = start.to_vec();
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let at = usize::try_from(state >> 40).unwrap() % bytes.len();
        bytes[at] ^= 1 << (state >> 20 & 7);
        assert!(parse_bytes(&bytes).is_err());
    }
}

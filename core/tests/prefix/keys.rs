// SPDX-License-Identifier: Apache-2.0
//! Page keys: independent of c and P, of chunks, and sensitive to everything else.

use std::collections::BTreeMap;

use proptest::prelude::*;
use striata_core::prefix::{KeyChain, Namespace, NamespaceParts, PageKey, page_keys};
use striata_core::{Stripe, TokenPos};

const PARTS: NamespaceParts<'static> = NamespaceParts {
    model: "m@1",
    adapter: "",
    tenant_salt: b"",
    kv_quantisation: "bf16",
};

fn keys_of(namespace: Namespace, dcp: u32, rows: u32, tokens: &[u32]) -> Vec<PageKey> {
    let mut out = Vec::new();
    page_keys(namespace, Stripe::new(dcp, rows).unwrap(), tokens, &mut out);
    out
}

/// The definition, written down a second time: the key of a prefix.
fn definition(namespace: Namespace, prefix: &[u32]) -> u128 {
    let cut = |hash: blake3::Hash| u128::from_le_bytes(hash.as_bytes()[..16].try_into().unwrap());
    let mut chain = namespace.get();
    for unit in prefix.chunks(64) {
        let mut bytes = b"unit".to_vec();
        bytes.extend(unit.iter().flat_map(|t| t.to_le_bytes()));
        let digest = blake3::hash(&bytes);
        let tag: &[u8] = if unit.len() == 64 { b"link" } else { b"part" };
        let message = [tag, &chain.to_le_bytes(), digest.as_bytes()].concat();
        chain = cut(blake3::hash(&message));
    }
    chain
}

#[test]
fn keys_depend_on_the_prefix_and_not_on_c_or_p() {
    let tokens: Vec<u32> = (0..1600).map(|t| t * 7).collect();
    let namespace = Namespace::new(&PARTS);
    let mut by_length = BTreeMap::new();
    for (dcp, rows) in [
        (1, 64),
        (2, 32),
        (4, 16),
        (8, 64),
        (3, 16),
        (1, 16),
        (5, 7),
        (1, 1),
    ] {
        let w = (dcp * rows) as usize;
        let keys = keys_of(namespace, dcp, rows, &tokens);
        assert_eq!(keys.len(), tokens.len() / w);
        for (page, key) in keys.into_iter().enumerate() {
            let length = (page + 1) * w;
            assert_eq!(key.get(), definition(namespace, &tokens[..length]));
            assert_eq!(*by_length.entry(length).or_insert(key), key);
        }
    }
    let distinct: std::collections::BTreeSet<_> = by_length.values().collect();
    assert_eq!(distinct.len(), by_length.len());
}

#[test]
fn every_part_of_the_namespace_counts() {
    let tokens: Vec<u32> = (0..64).collect();
    let base = PARTS;
    let variants = [
        base,
        NamespaceParts {
            model: "m@2",
            ..base
        },
        NamespaceParts {
            adapter: "a",
            ..base
        },
        NamespaceParts {
            tenant_salt: b"a",
            ..base
        },
        NamespaceParts {
            kv_quantisation: "a",
            ..base
        },
        // The same bytes, cut elsewhere.
        NamespaceParts {
            model: "m@",
            adapter: "1",
            ..base
        },
    ];
    let keys: std::collections::BTreeSet<_> = variants
        .iter()
        .map(|parts| keys_of(Namespace::new(parts), 1, 64, &tokens)[0])
        .collect();
    assert_eq!(keys.len(), variants.len());
}

#[test]
fn an_extra_identity_changes_its_page_and_those_behind_it() {
    let tokens: Vec<u32> = vec![5; 256];
    let stripe = Stripe::new(2, 16).unwrap();
    let with_marks = |marks: &[(u64, u128)]| {
        let mut chain = KeyChain::new(Namespace::new(&PARTS), stripe);
        for &(position, identity) in marks {
            chain.mark(TokenPos::new(position), identity).unwrap();
        }
        let mut out = Vec::new();
        chain.extend(&tokens, &mut out);
        out
    };
    let plain = with_marks(&[]);
    let marked = with_marks(&[(100, 9)]);
    assert_eq!(
        plain[..3],
        marked[..3],
        "pages of 32 tokens before position 100"
    );
    assert!(plain[3..].iter().zip(&marked[3..]).all(|(a, b)| a != b));
    assert_ne!(marked[3], with_marks(&[(101, 9)])[3]);
    assert_ne!(marked[3], with_marks(&[(100, 8)])[3]);
    assert_eq!(
        with_marks(&[(100, 9), (70, 1)]),
        with_marks(&[(70, 1), (100, 9)])
    );
    let mut chain = KeyChain::new(Namespace::new(&PARTS), stripe);
    chain.extend(&tokens[..10], &mut Vec::new());
    let late = chain.mark(TokenPos::new(9), 1).unwrap_err();
    assert_eq!((late.position, late.at), (9, 10));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn chunks_do_not_matter_and_tokens_do(
        dcp in 1u32..5,
        rows in 1u32..80,
        tokens in proptest::collection::vec(any::<u32>(), 1..700),
        cuts in proptest::collection::vec(1usize..150, 1..10),
        flip in any::<proptest::sample::Index>(),
    ) {
        let namespace = Namespace::new(&PARTS);
        let whole = keys_of(namespace, dcp, rows, &tokens);
        let mut chain = KeyChain::new(namespace, Stripe::new(dcp, rows).unwrap());
        let mut chunked = Vec::new();
        let mut rest = &tokens[..];
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at(rest.len().min(*cut));
            chain.extend(now, &mut chunked);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&whole, &chunked);
        prop_assert_eq!(chain.tokens(), tokens.len() as u64);
        let at = flip.index(tokens.len());
        let mut other = tokens.clone();
        other[at] ^= 1;
        let changed = keys_of(namespace, dcp, rows, &other);
        let w = (dcp * rows) as usize;
        for (page, (a, b)) in whole.iter().zip(&changed).enumerate() {
            prop_assert_eq!(a == b, (page + 1) * w <= at);
        }
    }
}

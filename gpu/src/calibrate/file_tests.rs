// SPDX-License-Identifier: Apache-2.0

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::transfer::{CopyPath, LayerCut, PageRule, PlaneKind};
use crate::user_cache::scratch;

fn key() -> CacheKey {
    CacheKey {
        gpu: "NVIDIA H200".to_owned(),
        driver: "580.159.04 (13.0)".to_owned(),
    }
}

fn measured() -> Measurements {
    let row = |path, gb_per_s| Measured {
        planes: PlaneKind::Separate,
        chunk_bytes: 73_728,
        pages: 8,
        rule: PageRule {
            path,
            cut: LayerCut::Growing(200),
        },
        gb_per_s,
        count: 3,
    };
    Measurements {
        layers: 61,
        loads: vec![row(CopyPath::Runs, 52.5), row(CopyPath::Mapped, 50.25)],
        stores: vec![row(CopyPath::Rectangles, 53.0)],
    }
}

fn encoded(change: impl FnOnce(&mut Kept)) -> Vec<u8> {
    let mut kept = Kept {
        format: FORMAT,
        gpu: key().gpu,
        driver: key().driver,
        measured: measured(),
    };
    change(&mut kept);
    serde_json::to_vec(&kept).unwrap()
}

#[test]
fn the_module_tells_its_version() {
    let text =
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Thu Jan 1\nGCC 11.4.0\n";
    assert_eq!(module_version(text), Some("580.159.04"));
    assert_eq!(module_version("GCC version: 11.4.0"), None);
}

#[test]
fn measurements_come_back() {
    let place = scratch("calibration");
    let cache = UserCache::at(place.clone()).unwrap();
    assert_eq!(read(&cache, &key(), 61), None);
    let file = write(&cache, &key(), &measured()).unwrap();
    assert!(
        file.ends_with("transfer-NVIDIA-H200-580.159.04--13.0--v1.json"),
        "{file}"
    );
    assert_eq!(read(&cache, &key(), 61), Some(measured()));
    assert_eq!(
        read(&cache, &key(), 60),
        None,
        "other layers are another measurement"
    );
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn files_of_something_else_say_what_they_are() {
    let refused = |change: fn(&mut Kept)| decode(&encoded(change), &key(), 61).unwrap_err();
    assert!(decode(&encoded(|_| ()), &key(), 61).is_ok());
    assert!(refused(|kept| kept.gpu = "NVIDIA A100".to_owned()).contains("A100"));
    assert!(refused(|kept| kept.driver = "1".to_owned()).contains("driver 1"));
    assert!(refused(|kept| kept.format = 7).contains("format is 7"));
    assert!(refused(|kept| kept.measured.layers = 3).contains("3 layers"));
    let empty = |kept: &mut Kept| {
        kept.measured.loads.clear();
        kept.measured.stores.clear();
    };
    assert!(refused(empty).contains("0 rows"));
    for rate in [0.0, -1.0, 1e9] {
        let bytes = encoded(|kept| kept.measured.loads[1].gb_per_s = rate);
        assert!(decode(&bytes, &key(), 61).unwrap_err().contains("no sense"));
    }
    assert!(refused(|kept| kept.measured.loads[0].count = 0).contains("no sense"));
}

#[test]
fn a_damaged_file_is_replaced() {
    let place = scratch("damaged");
    let cache = UserCache::at(place.clone()).unwrap();
    for bytes in [&b""[..], b"{", b"[]", b"null", &[0xFF; 100]] {
        cache.write(&key().file_name(), &[bytes]).unwrap();
        assert_eq!(read(&cache, &key(), 61), None);
        write(&cache, &key(), &measured()).unwrap();
        assert_eq!(read(&cache, &key(), 61), Some(measured()));
    }
    fs::remove_dir_all(place).unwrap();
}

proptest! {
    /// Any bytes, and any damage to a good file, are measurements that make sense or an error.
    #[test]
    fn any_bytes_are_read_without_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let good = encoded(|_| ());
        let mut damaged = good.clone();
        let start = at.index(good.len());
        for (old, new) in damaged[start..].iter_mut().zip(&bytes) {
            *old = *new;
        }
        for bytes in [&bytes[..], &damaged, &good[..cut.index(good.len())]] {
            if let Ok(measured) = decode(bytes, &key(), 61) {
                prop_assert!(measured.loads.iter().chain(&measured.stores).all(is_sound));
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The cache of compiled kernels on disk.
//!
//! A file is named by everything that the binary depends on and begins with a hash of the binary,
//! so that a torn file is a miss. Folder and files are the user's alone (`UserCache`): who can write
//! them can run code on the device.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use striata_kernels::source::{HEADERS, Source};

use super::nvrtc::{Compiled, OPTIONS};
use crate::user_cache::UserCache;

/// Raised when the layout of files changes.
const FORMAT: &[u8] = b"striata cubin 1";
const HASH_BYTES: usize = blake3::OUT_LEN;

/// What a binary depends on beside its source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Toolchain<'a> {
    pub(super) architecture: &'a str,
    pub(super) nvrtc: (i32, i32),
    pub(super) driver: i32,
}

/// The name of the file of a binary.
pub(super) fn key(source: &Source, tools: Toolchain<'_>) -> String {
    let mut hash = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(FORMAT);
    for header in &HEADERS {
        add(header.name.as_bytes());
        add(header.text.as_bytes());
    }
    add(source.name.as_bytes());
    add(source.text.as_bytes());
    for option in OPTIONS {
        add(option.as_bytes());
    }
    add(tools.architecture.as_bytes());
    for number in [tools.nvrtc.0, tools.nvrtc.1, tools.driver] {
        add(&number.to_le_bytes());
    }
    let stem = source.name.trim_end_matches(".cu");
    format!(
        "{stem}-{}-{}.cubin",
        tools.architecture,
        hash.finalize().to_hex()
    )
}

/// The cached binaries of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cache(UserCache);

impl Cache {
    /// The user's cache, if there is a place for it that is the user's alone.
    pub(super) fn of_user() -> Option<Self> {
        UserCache::of_user("kernels").map(Self)
    }

    /// The binary of `key`, if it is there and whole.
    pub(super) fn read(&self, key: &str) -> Option<Vec<u8>> {
        let bytes = self.0.read(key).ok()?;
        let (hash, body) = bytes.split_at_checked(HASH_BYTES)?;
        if blake3::hash(body).as_bytes().as_slice() != hash {
            tracing::warn!(
                key,
                "a file of the kernel cache is damaged and is made again"
            );
            return None;
        }
        Some(body.to_vec())
    }

    /// Puts a binary there. A failure costs a compilation next time and no more.
    pub(super) fn write(&self, key: &str, cubin: &[u8]) {
        let hash = blake3::hash(cubin);
        if let Err(error) = self.0.write(key, &[hash.as_bytes(), cubin]) {
            tracing::warn!(key, %error, "the kernel cache cannot be written");
        }
    }
}

/// Writes source, headers, binary and log of a compilation to the folder of
/// `STRIATA_DUMP_KERNELS`, if it is set.
pub(super) fn dump(source: &Source, key: &str, compiled: &Compiled) {
    let Some(folder) = std::env::var_os("STRIATA_DUMP_KERNELS").filter(|f| !f.is_empty()) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let stem = key.trim_end_matches(".cubin");
    let files = [
        (source.name.to_owned(), source.text.as_bytes()),
        (key.to_owned(), &compiled.cubin),
        (format!("{stem}.log"), compiled.log.as_bytes()),
    ];
    let headers = HEADERS
        .iter()
        .map(|h| (h.name.to_owned(), h.text.as_bytes()));
    let written = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    let written = written.and_then(|()| {
        let mut all = files.into_iter().chain(headers);
        all.try_for_each(|(name, bytes)| fs::write(folder.join(name), bytes))
    });
    if let Err(error) = written {
        tracing::warn!(folder = %folder.display(), %error, "kernels cannot be dumped");
    }
}

#[cfg(test)]
mod tests {
    use striata_kernels::source::SOURCES;

    use super::*;
    use crate::user_cache::scratch;

    const TOOLS: Toolchain<'static> = Toolchain {
        architecture: "sm_90a",
        nvrtc: (13, 0),
        driver: 13_000,
    };

    #[test]
    fn everything_that_a_binary_depends_on_changes_its_key() {
        let base = key(&SOURCES[0], TOOLS);
        let others = [
            key(&SOURCES[1], TOOLS),
            key(
                &SOURCES[0],
                Toolchain {
                    architecture: "sm_80",
                    ..TOOLS
                },
            ),
            key(
                &SOURCES[0],
                Toolchain {
                    nvrtc: (13, 1),
                    ..TOOLS
                },
            ),
            key(
                &SOURCES[0],
                Toolchain {
                    driver: 13_010,
                    ..TOOLS
                },
            ),
            key(
                &Source {
                    text: "",
                    ..SOURCES[0]
                },
                TOOLS,
            ),
        ];
        assert!(others.iter().all(|other| *other != base));
        assert_eq!(base, key(&SOURCES[0], TOOLS));
        assert!(base.starts_with("rows-sm_90a-"));
    }

    #[test]
    fn a_binary_comes_back_and_a_damaged_one_does_not() {
        let place = scratch("cubins");
        let cache = Cache(UserCache::at(place.clone()).unwrap());
        assert_eq!(cache.read("k"), None);
        cache.write("k", b"binary");
        assert_eq!(cache.read("k").as_deref(), Some(&b"binary"[..]));
        let file = place.join("k");
        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert_eq!(cache.read("k"), None);
        fs::write(&file, b"short").unwrap();
        assert_eq!(cache.read("k"), None);
        cache.write("k", b"again");
        assert_eq!(cache.read("k").as_deref(), Some(&b"again"[..]));
        fs::remove_dir_all(place).unwrap();
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The cache of compiled kernels on disk.
//!
//! A file is named by everything that the binary depends on and begins with a hash of the binary,
//! so that a torn file is a miss. It is written aside and renamed, so that processes that race each
//! see nothing or a whole file. Folder and files are private to the user: who can write them can
//! run code on the device.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use striata_kernels::source::{HEADERS, Source};

use super::nvrtc::{Compiled, OPTIONS};

/// Raised when the layout of files changes.
const FORMAT: &[u8] = b"striata cubin 1";
const HASH_BYTES: usize = blake3::OUT_LEN;
const OTHERS_MAY_WRITE: u32 = 0o022;

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

/// A folder of binaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cache(PathBuf);

impl Cache {
    /// The user's cache, if there is a place for it that is the user's alone.
    pub(super) fn of_user() -> Option<Self> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let folder = match set("STRIATA_CACHE_DIR") {
            Some(folder) => PathBuf::from(folder),
            None => match set("XDG_CACHE_HOME") {
                Some(base) => Path::new(&base).join("striata"),
                None => Path::new(&set("HOME")?).join(".cache").join("striata"),
            },
        };
        match Self::at(folder.clone()) {
            Ok(cache) => Some(cache),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "no kernel cache");
                None
            }
        }
    }

    fn at(folder: PathBuf) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        let found = fs::metadata(&folder)?;
        let refused = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        // The owner of this entry is the user that the process runs as.
        if found.uid() != fs::metadata("/proc/self")?.uid() {
            return refused("the folder belongs to another user");
        }
        if found.mode() & OTHERS_MAY_WRITE != 0 {
            return refused("others may write to the folder: chmod go-w it");
        }
        Ok(Self(folder))
    }

    /// The binary of `key`, if it is there and whole.
    pub(super) fn read(&self, key: &str) -> Option<Vec<u8>> {
        let bytes = fs::read(self.0.join(key)).ok()?;
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
        if let Err(error) = self.try_write(key, cubin) {
            tracing::warn!(key, %error, "the kernel cache cannot be written");
        }
    }

    fn try_write(&self, key: &str, cubin: &[u8]) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let aside = self
            .0
            .join(format!(".{key}.{}.{count}", std::process::id()));
        let written = (|| {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&aside)?;
            file.write_all(blake3::hash(cubin).as_bytes())?;
            file.write_all(cubin)?;
            file.sync_all()?;
            fs::rename(&aside, self.0.join(key))
        })();
        if written.is_err() {
            // Nothing may be there to remove.
            let _ = fs::remove_file(&aside);
        }
        written
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

    const TOOLS: Toolchain<'static> = Toolchain {
        architecture: "sm_90a",
        nvrtc: (13, 0),
        driver: 13_000,
    };

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("striata-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

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
        let place = folder("cache");
        let cache = Cache::at(place.join("deep")).unwrap();
        assert_eq!(cache.read("k"), None);
        cache.write("k", b"binary");
        assert_eq!(cache.read("k").as_deref(), Some(&b"binary"[..]));
        let file = place.join("deep").join("k");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            fs::metadata(place.join("deep")).unwrap().mode() & 0o777,
            0o700
        );
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

    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let place = folder("open");
        DirBuilder::new().create(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Cache::at(place.clone()).is_err());
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn writers_that_race_leave_one_whole_file() {
        let place = folder("race");
        let cache = Cache::at(place.clone()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20).for_each(|_| cache.write("k", &[7; 10_000])));
            }
        });
        assert_eq!(cache.read("k"), Some(vec![7; 10_000]));
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
        fs::remove_dir_all(place).unwrap();
    }
}

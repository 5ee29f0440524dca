// SPDX-License-Identifier: Apache-2.0
//! The folder on disk that keeps what is costly to find out: compiled kernels and calibrations.
//!
//! Folder and files are private to the user. A file is written aside and renamed, so that
//! processes that race each see nothing or a whole file.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const OTHERS_MAY_WRITE: u32 = 0o022;
/// No file of ours is longer; a longer one is not read.
const LONGEST: u64 = 256 << 20;

/// A folder that is the user's alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserCache(PathBuf);

impl UserCache {
    /// The user's cache, if there is a place for it that is the user's alone: `STRIATA_CACHE_DIR`,
    /// else `striata` under `XDG_CACHE_HOME`, else under `~/.cache`. Where there is none, `what` is
    /// said not to be kept.
    pub(crate) fn of_user(what: &str) -> Option<Self> {
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
                tracing::warn!(folder = %folder.display(), %error, what, "nothing is kept on disk");
                None
            }
        }
    }

    /// The folder, made if it is not there.
    pub(crate) fn at(folder: PathBuf) -> io::Result<Self> {
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

    /// Where the file `name` is or would be.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// All of the file `name`.
    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = fs::File::open(self.path(name))?;
        let mut bytes = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LONGEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file is too long",
            ));
        }
        Ok(bytes)
    }

    /// Puts the file `name` there, made of `parts`; the last of several writers wins whole.
    pub(crate) fn write(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let aside = self
            .0
            .join(format!(".{name}.{}.{count}", std::process::id()));
        let written = (|| {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&aside)?;
            for part in parts {
                file.write_all(part)?;
            }
            file.sync_all()?;
            fs::rename(&aside, self.path(name))
        })();
        if written.is_err() {
            // Nothing may be there to remove.
            let _ = fs::remove_file(&aside);
        }
        written
    }
}

/// A folder of this test that is not there.
#[cfg(test)]
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("striata-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back_and_is_the_users_alone() {
        let place = scratch("cache");
        let cache = UserCache::at(place.join("deep")).unwrap();
        assert!(cache.read("k").is_err());
        cache.write("k", &[b"one", b", two"]).unwrap();
        assert_eq!(cache.read("k").unwrap(), b"one, two");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&cache.path("k")), 0o600);
        assert_eq!(mode(&place.join("deep")), 0o700);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let place = scratch("open");
        DirBuilder::new().create(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(UserCache::at(place.clone()).is_err());
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn writers_that_race_leave_one_whole_file() {
        let place = scratch("race");
        let cache = UserCache::at(place.clone()).unwrap();
        std::thread::scope(|scope| {
            for byte in 0..4 {
                let cache = &cache;
                scope.spawn(move || {
                    for _ in 0..20 {
                        cache.write("k", &[&[byte; 10_000]]).unwrap();
                        let read = cache.read("k").unwrap();
                        assert_eq!(read.len(), 10_000);
                        assert!(read.iter().all(|b| *b == read[0]));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
        fs::remove_dir_all(place).unwrap();
    }
}

//! The directory of guests' images and saved states: in the build directory, for every lab on this
//! machine.

use crate::sweep::remove_dir;
use crate::{Error, Result, wait_until};
use std::fs::{File, TryLockError, create_dir_all, read_dir};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Another lab may be building an image and booting it, and apt may be slow.
const LOCK_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The locked directory: no other lab changes it meanwhile.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    // Closing it unlocks it.
    _lock: File,
}

impl Store {
    /// Waits for the directory that belongs to this program.
    pub(super) fn lock() -> Result<Self> {
        Self::lock_at(target()?.join("guest"), LOCK_LIMIT)
    }

    pub(super) fn lock_at(dir: PathBuf, limit: Duration) -> Result<Self> {
        create_dir_all(&dir).map_err(Error::io(format!("make {}", dir.display())))?;
        let path = dir.join("lock");
        let failed = || Error::io(format!("lock {}", path.display()));
        let lock = File::options().write(true).create(true).truncate(false).open(&path).map_err(failed())?;
        wait_until(&format!("the lab that has locked {}", path.display()), limit, || {
            match lock.try_lock() {
                Ok(()) => Ok(Ok(())),
                Err(TryLockError::WouldBlock) => Ok(Err(String::new())),
                Err(TryLockError::Error(error)) => Err(failed()(error)),
            }
        })?;
        Ok(Self { dir, _lock: lock })
    }

    /// A path in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Removes all that is in it.
    pub(super) fn clear(&self) -> Result<()> {
        let failed = || Error::io(format!("list {}", self.dir.display()));
        for entry in read_dir(&self.dir).map_err(failed())? {
            let path = entry.map_err(failed())?.path();
            if path.is_dir() {
                remove_dir(&path)?;
            }
        }
        Ok(())
    }
}

/// `target`, derived from the path of this program.
fn target() -> Result<PathBuf> {
    let program = std::env::current_exe().map_err(Error::io("find this program"))?;
    let profile = program.ancestors().find(|dir| dir.ends_with("debug") || dir.ends_with("release"));
    let found =
        || Error::unexpected("the path of this program", "target/PROFILE/...", program.display().to_string());
    profile.and_then(Path::parent).map(Path::to_path_buf).ok_or_else(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let lock = || Store::lock_at(dir.path().join("guest"), Duration::ZERO);
        let first = lock().unwrap();
        let error = lock().unwrap_err().to_string();
        assert!(error.contains("the lab that has locked"), "{error}");
        std::fs::create_dir(first.path("image")).unwrap();
        first.clear().unwrap();
        assert!(!first.path("image").exists());
        assert!(lock().is_err(), "clearing does not unlock it");
        drop(first);
        lock().unwrap();
    }
}

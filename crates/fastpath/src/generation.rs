//! The generation of the virtual machine: a number in memory that changes whenever the machine is
//! set back to an earlier state or continued from a copy. A node of a cluster must not use the
//! state that it holds then, because it has already used it once.
//!
//! It is read from the page of a vmclock device (Linux 6.13 and later). The hypervisor changes its
//! *disruption marker* after every event that may have changed the machine: snapshots, and live
//! migration too. For other hypervisors and for tests it is read from the first eight octets of a
//! file.

use crate::sys::mmap::WatchedPage;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// First octets of a vmclock page: "VCLK", little-endian (vmclock-abi.h).
const MAGIC: [u8; 4] = *b"VCLK";
/// Offset of the disruption marker: behind magic, size, version, two octets of kinds, and a count
/// of changes.
const MARKER_OFFSET: usize = 16;

/// The word that holds the generation. Its page stays mapped for as long as the process lives.
static WATCHED: OnceLock<&AtomicU64> = OnceLock::new();

/// Makes [`current`] read the generation from this device or file from now on. May be called once a
/// process. A file must have at least eight octets and be written in place.
pub fn watch(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    let is_file = file.metadata()?.is_file();
    if is_file && file.metadata()?.len() < size_of::<u64>() as u64 {
        return Err(io::Error::other("found fewer than eight octets, expected a number of eight"));
    }
    let page = WatchedPage::of(file.as_fd())?;
    if !is_file {
        let begin = page.word(0).map_or(0, |word| word.load(Relaxed)).to_ne_bytes();
        let magic = begin.first_chunk().copied().unwrap_or_default();
        if magic != MAGIC {
            return Err(io::Error::other(format!(
                "found a device that begins with {magic:?}, expected vmclock's {MAGIC:?}"
            )));
        }
    }
    let offset = if is_file { 0 } else { MARKER_OFFSET };
    let word = Box::leak(Box::new(page)).word(offset).ok_or(io::ErrorKind::UnexpectedEof)?;
    WATCHED.set(word).map_err(|_| io::Error::other("the generation is watched elsewhere already"))
}

/// The generation; 0 if none is watched. As quick as a read of memory.
#[inline]
pub fn current() -> u64 {
    WATCHED.get().map_or(0, |word| word.load(Acquire))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_that_is_written_in_place_is_read_at_once() {
        assert_eq!(current(), 0);
        let path = std::env::temp_dir().join(format!("testudo-generation-{}", std::process::id()));
        std::fs::write(&path, [1; 4]).unwrap();
        assert!(watch(&path).unwrap_err().to_string().contains("fewer than eight octets"));
        assert!(watch(&path.with_extension("none")).is_err());
        std::fs::write(&path, 7_u64.to_ne_bytes()).unwrap();
        watch(&path).unwrap();
        assert_eq!(current(), 7);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&9_u64.to_ne_bytes(), 0).unwrap();
        assert_eq!(current(), 9);
        assert!(watch(&path).unwrap_err().to_string().contains("already"));
        let wrong = watch(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(wrong.contains("expected vmclock's"), "{wrong}");
        std::fs::remove_file(&path).unwrap();
    }
}

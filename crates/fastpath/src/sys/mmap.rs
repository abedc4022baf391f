//! Memory mappings that are unmapped when dropped. What the memory holds is up to the owner.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A shared or private mapping of whole pages.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is plain memory without thread affinity; access is governed by the types built
// on it.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives out an address and a length only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Anonymous zeroed memory, left out of core dumps and populated at once. It lies on huge pages
    /// if the machine has reserved some (then the flag is true) or can join some.
    pub(crate) fn anonymous(len: usize) -> io::Result<(Self, bool)> {
        let base = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let reserved = libc::MAP_HUGETLB | libc::MAP_POPULATE;
        let (mapping, huge) =
            match len.is_multiple_of(HUGE_PAGE).then(|| Self::map(len, base | reserved, -1, 0)) {
                Some(Ok(mapping)) => (mapping, true),
                _ => (Self::map(len, base, -1, 0)?, false),
            };
        // The kernel may lack any of these three. Without the last one, pages are populated at
        // first use.
        mapping.advise(libc::MADV_DONTDUMP);
        mapping.advise(libc::MADV_HUGEPAGE);
        // Unit tests map gigabytes and use only a few pages of them.
        if !cfg!(test) {
            mapping.advise(libc::MADV_POPULATE_WRITE);
        }
        Ok((mapping, huge))
    }

    /// A kernel object's memory, shared with the kernel.
    pub(crate) fn of(fd: BorrowedFd<'_>, len: usize, offset: libc::off_t) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    fn map(len: usize, flags: libc::c_int, fd: libc::c_int, offset: libc::off_t) -> io::Result<Self> {
        Self::protected(libc::PROT_READ | libc::PROT_WRITE, len, flags, fd, offset)
    }

    fn protected(
        protection: libc::c_int,
        len: usize,
        flags: libc::c_int,
        fd: libc::c_int,
        offset: libc::off_t,
    ) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing object.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| io::Error::other("mmap answered the null address"))?;
        Ok(Self { base, len })
    }

    fn advise(&self, advice: libc::c_int) {
        // SAFETY: the range is a whole live mapping, and none of the advice given here changes what
        // is in it.
        let _ = unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, advice) };
    }

    /// Octets on huge pages that the kernel has joined; 0 if it does not report them. Adjacent
    /// mappings that the kernel has merged with this one count too.
    pub(crate) fn transparent(&self) -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        transparent(&smaps, self.base.as_ptr() as usize)
    }

    /// First octet.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Octets mapped.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and len are those of a successful mmap, which is unmapped only here. An
        // owner of pointers into the mapping keeps it alive (see `FrameMemory` and `Ring`).
        let result = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(result, 0, "munmap of a whole mapping cannot fail");
    }
}

/// The first page of a file, a device or a BPF map, mapped to be read while others write it.
#[derive(Debug)]
pub(crate) struct WatchedPage(Mapping);

impl WatchedPage {
    /// Octets that are mapped.
    const LEN: usize = 4096;

    /// Maps the first page.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Mapping::protected(libc::PROT_READ, Self::LEN, libc::MAP_SHARED, fd.as_raw_fd(), 0).map(Self)
    }

    /// The eight octets at an offset that is a multiple of eight. `None` if they are not in the
    /// page.
    pub(crate) fn word(&self, offset: usize) -> Option<&AtomicU64> {
        if offset >= Self::LEN || !offset.is_multiple_of(align_of::<AtomicU64>()) {
            return None;
        }
        // SAFETY: the word is inside the mapping, and aligned because the mapping starts at a page.
        // It is changed from outside, so it is read as an atomic, and nothing here writes it.
        Some(unsafe { &*self.0.base.as_ptr().add(offset).cast::<AtomicU64>() })
    }
}

/// The memory of a BPF map of eight octets each, which the filter and the daemon write.
#[derive(Debug)]
pub(crate) struct SharedWords(Mapping);

impl SharedWords {
    /// Maps the first `count` words.
    pub(crate) fn of(fd: BorrowedFd<'_>, count: usize) -> io::Result<Self> {
        Mapping::of(fd, count * size_of::<AtomicU64>(), 0).map(Self)
    }

    /// The words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let count = self.0.len / size_of::<AtomicU64>();
        // SAFETY: the words are inside the mapping, aligned because it starts at a page, and any
        // octets are words. Whoever else writes them is the kernel, or maps them in the same way.
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr().cast(), count) }
    }
}

/// AnonHugePages of the mapping with this address, from `/proc/self/smaps` (proc_pid_smaps(5)).
fn transparent(smaps: &str, address: usize) -> usize {
    let mut inside = false;
    for line in smaps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let hex = |text| usize::from_str_radix(text, 16).ok();
        if let Some((Some(start), Some(end))) = range.map(|(start, end)| (hex(start), hex(end))) {
            inside = (start..end).contains(&address);
        } else if let Some(value) = line.strip_prefix("AnonHugePages:").filter(|_| inside) {
            return value
                .trim()
                .trim_end_matches(" kB")
                .parse()
                .map_or(0, |kilobytes: usize| kilobytes << 10);
        }
    }
    0
}

/// Size of the pages that MAP_HUGETLB takes by default on x86-64 and arm64 with 4 KiB pages.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_those_of_the_mapping() {
        let smaps = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nSize: 4096 kB\nAnonHugePages:      2048 kB\n\
                     7f0000400000-7f0000600000 rw-p 00000000 00:00 0 \nAnonHugePages:         0 kB\n";
        let at = |address| transparent(smaps, address);
        assert_eq!((at(0x7f00_003f_ffff), at(0x7f00_0040_0000), at(0x7f00_0060_0000)), (2 << 20, 0, 0));
        let (mapping, reserved) = Mapping::anonymous(4 * HUGE_PAGE).unwrap();
        assert!(mapping.len() == 4 * HUGE_PAGE && (!reserved || mapping.transparent() == 0));
    }
}

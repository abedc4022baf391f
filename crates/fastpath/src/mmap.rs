//! Memory mappings that are taken back when dropped. It maps and unmaps; what the memory means is its owner's business.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A shared or private mapping of whole pages.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is plain memory without thread affinity; access is governed by the types built on it.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives out an address and a length only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Anonymous zeroed memory that core dumps leave out, populated at once. On huge pages where the machine has some
    /// reserved, which the flag says, or can put some together.
    pub(crate) fn anonymous(len: usize) -> io::Result<(Self, bool)> {
        let base = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let reserved = libc::MAP_HUGETLB | libc::MAP_POPULATE;
        let (mapping, huge) =
            match len.is_multiple_of(HUGE_PAGE).then(|| Self::map(len, base | reserved, -1, 0)) {
                Some(Ok(mapping)) => (mapping, true),
                _ => (Self::map(len, base, -1, 0)?, false),
            };
        // All three are improvements that a kernel may lack: without the last, pages come with their first use.
        mapping.advise(libc::MADV_DONTDUMP);
        mapping.advise(libc::MADV_HUGEPAGE);
        mapping.advise(libc::MADV_POPULATE_WRITE);
        Ok((mapping, huge))
    }

    /// A kernel object's memory, shared with the kernel.
    pub(crate) fn of(fd: BorrowedFd<'_>, len: usize, offset: libc::off_t) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    fn map(len: usize, flags: libc::c_int, fd: libc::c_int, offset: libc::off_t) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
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
        // SAFETY: the range is a whole live mapping, and none of the advice given here changes what is in it.
        let _ = unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, advice) };
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
        // SAFETY: base and len are those of a successful mmap, and nobody else unmaps it. Whoever holds pointers
        // into the mapping keeps it alive (see `FrameMemory` and `Ring`).
        let result = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(result, 0, "munmap of a whole mapping cannot fail");
    }
}

/// Size of the pages that MAP_HUGETLB takes by default on x86-64 and arm64 with 4 KiB pages.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

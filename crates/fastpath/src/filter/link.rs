//! BPF links of type XDP: a program on an interface, held by a pin.
//!
//! libbpf-rs does not let the caller choose the mode, and the kernel then falls back silently to
//! the slow generic one. So [`crate::sys::bpf`] calls libbpf itself.

use crate::sys::bpf;
use libbpf_rs::libbpf_sys::{XDP_ATTACHED_SKB, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE};
use libbpf_rs::query::{LinkInfo, LinkTypeInfo};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The mode in which a program runs on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before the kernel makes a packet of the frame.
    Native,
    /// Behind the driver, on the kernel's packets: works everywhere, and is slow.
    Generic,
}

/// A link; it stays attached while this lives or a pin exists.
#[derive(Debug)]
pub(super) struct XdpLink {
    fd: OwnedFd,
}

impl XdpLink {
    /// Attaches a program.
    pub(super) fn attach(program: BorrowedFd<'_>, ifindex: u32, mode: XdpMode) -> io::Result<Self> {
        let flags = match mode {
            XdpMode::Native => XDP_FLAGS_DRV_MODE,
            XdpMode::Generic => XDP_FLAGS_SKB_MODE,
        };
        bpf::create_xdp_link(program, ifindex, flags).map(|fd| Self { fd })
    }

    /// Opens a pinned link.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        bpf::open_pin(path).map(|fd| Self { fd })
    }

    /// Pins the link, so that it outlives the process.
    pub(super) fn pin(&self, path: &Path) -> io::Result<()> {
        bpf::pin(self.fd.as_fd(), path)
    }

    /// Replaces the program: a packet sees the old one or the new one, never none.
    pub(super) fn update(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        bpf::update_link(self.fd.as_fd(), program)
    }

    /// Detaches the program from the interface, even if others hold the link.
    pub(super) fn detach(&self) -> io::Result<()> {
        bpf::detach_link(self.fd.as_fd())
    }

    /// Number of the interface; `None` if the interface is gone, or this is no XDP link.
    pub(super) fn ifindex(&self) -> io::Result<Option<u32>> {
        let info = LinkInfo::from_fd(self.fd.as_fd()).map_err(io::Error::other)?;
        Ok(match info.info {
            LinkTypeInfo::Xdp(xdp) if xdp.ifindex != 0 => Some(xdp.ifindex),
            _ => None,
        })
    }
}

/// A program behind the filter, on the kernel's packets. It is detached when this value is dropped.
#[derive(Debug)]
pub(super) struct ClaimLink {
    _fd: OwnedFd,
}

impl ClaimLink {
    /// Attaches a program.
    pub(super) fn attach(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<Self> {
        bpf::create_tcx_link(program, ifindex).map(|_fd| Self { _fd })
    }
}

/// The mode in which an interface runs its program.
pub(super) fn attached_mode(ifindex: u32) -> io::Result<XdpMode> {
    let generic = bpf::xdp_mode(ifindex)? == XDP_ATTACHED_SKB;
    Ok(if generic { XdpMode::Generic } else { XdpMode::Native })
}

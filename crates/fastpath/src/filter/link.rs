//! BPF links of type XDP: a program on an interface, held by a pin.
//!
//! libbpf-rs attaches without a say in the mode, and then the kernel quietly falls back to the slow generic one; so
//! these few calls are made here.

use libbpf_rs::libbpf_sys;
use libbpf_rs::query::{LinkInfo, LinkTypeInfo};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How the program runs on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
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
    pub(super) fn attach(program: BorrowedFd<'_>, ifindex: u32, mode: Mode) -> io::Result<Self> {
        let target = i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            flags: match mode {
                Mode::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
                Mode::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
            },
            ..Default::default()
        };
        // SAFETY: the descriptor is open while `program` is borrowed, and `options` outlives the call.
        let fd = unsafe {
            libbpf_sys::bpf_link_create(program.as_raw_fd(), target, libbpf_sys::BPF_XDP, &options)
        };
        owned(fd).map(|fd| Self { fd })
    }

    /// Opens a pinned link.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let path = c_path(path)?;
        // SAFETY: `path` is a NUL-terminated string that outlives the call.
        let fd = unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) };
        owned(fd).map(|fd| Self { fd })
    }

    /// Pins the link, so that it outlives the process.
    pub(super) fn pin(&self, path: &Path) -> io::Result<()> {
        let path = c_path(path)?;
        // SAFETY: the descriptor is ours, and `path` is a NUL-terminated string that outlives the call.
        done(unsafe { libbpf_sys::bpf_obj_pin(self.fd.as_raw_fd(), path.as_ptr()) })
    }

    /// Replaces the program: a packet sees the old one or the new one, never none.
    pub(super) fn update(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both descriptors are open, and a null pointer stands for no options.
        done(unsafe {
            libbpf_sys::bpf_link_update(self.fd.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
        })
    }

    /// Takes the program from the interface, whoever else holds the link.
    pub(super) fn detach(&self) -> io::Result<()> {
        // SAFETY: the descriptor is ours.
        done(unsafe { libbpf_sys::bpf_link_detach(self.fd.as_raw_fd()) })
    }

    /// The interface; `None` if it is gone, or this is no XDP link.
    pub(super) fn ifindex(&self) -> io::Result<Option<u32>> {
        let info = LinkInfo::from_fd(self.fd.as_fd()).map_err(io::Error::other)?;
        Ok(match info.info {
            LinkTypeInfo::Xdp(xdp) if xdp.ifindex != 0 => Some(xdp.ifindex),
            _ => None,
        })
    }
}

/// A program behind the filter, on the kernel's packets; it goes with this.
#[derive(Debug)]
pub(super) struct ClaimLink {
    _fd: OwnedFd,
}

impl ClaimLink {
    /// Attaches a program.
    pub(super) fn attach(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<Self> {
        let target = i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
        // SAFETY: the descriptor is open while `program` is borrowed, and a null pointer stands for no options.
        let fd = unsafe {
            libbpf_sys::bpf_link_create(
                program.as_raw_fd(),
                target,
                libbpf_sys::BPF_TCX_INGRESS,
                std::ptr::null(),
            )
        };
        owned(fd).map(|_fd| Self { _fd })
    }
}

fn owned(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: the call made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// libbpf answers the negative errno.
fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

//! Calls to libbpf that libbpf-rs does not offer, or not with all options.

use libbpf_rs::libbpf_sys;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Attaches an XDP program to an interface. `flags` give the mode: `XDP_FLAGS_DRV_MODE` and the
/// like.
pub(crate) fn create_xdp_link(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    let target = target(ifindex)?;
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: the descriptor is open while `program` is borrowed, and `options` outlives the call.
    owned(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), target, libbpf_sys::BPF_XDP, &raw const options)
    })
}

/// Attaches a program to the packets that an interface hands to the kernel (TCX ingress).
pub(crate) fn create_tcx_link(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<OwnedFd> {
    let (target, ingress) = (target(ifindex)?, libbpf_sys::BPF_TCX_INGRESS);
    // SAFETY: the descriptor is open while `program` is borrowed, and a null pointer stands for no
    // options.
    owned(unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), target, ingress, std::ptr::null()) })
}

/// Opens a pinned object.
pub(crate) fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    owned(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })
}

/// Pins an object, so that it outlives the process.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the descriptor is open while it is borrowed, and `path` is a NUL-terminated string
    // that outlives the call.
    done(unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) })
}

/// Replaces the program of a link.
pub(crate) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open while they are borrowed, and a null pointer stands for no
    // options.
    done(unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) })
}

/// Detaches the program of a link from its interface, even if others hold the link.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed.
    done(unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) })
}

/// The mode in which an interface runs its XDP program: `XDP_ATTACHED_SKB` and the like.
pub(crate) fn xdp_mode(ifindex: u32) -> io::Result<u32> {
    let target = i32::try_from(ifindex).unwrap_or(0);
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: `options` is valid for the call, and says how large it is.
    done(unsafe { libbpf_sys::bpf_xdp_query(target, 0, &raw mut options) })?;
    Ok(options.attach_mode.into())
}

fn target(ifindex: u32) -> io::Result<i32> {
    i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
}

fn owned(result: i32) -> io::Result<OwnedFd> {
    done(result)?;
    // SAFETY: the call made this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Turns libbpf's return value, a negative errno on failure, into a result.
fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

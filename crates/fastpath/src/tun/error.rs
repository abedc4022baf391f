//! What can go wrong with the TUN.

use crate::netlink::NetlinkError;
use std::io;

/// Errors of making, setting up and removing the TUN.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunError {
    /// The name cannot be that of an interface.
    #[error("TUN {found:?}, expected 1 to 15 printable characters without / : %")]
    Name {
        /// The name given.
        found: String,
    },
    /// The TUN driver refused.
    #[error("TUN {name}: {operation}: {source}{}", hint(source))]
    Device {
        /// Name of the interface.
        name: String,
        /// The operation that failed.
        operation: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A setting under /proc/sys could not be made.
    #[error("TUN {name}: cannot set {setting} to {value}: {source}")]
    Setting {
        /// Name of the interface.
        name: String,
        /// The sysctl.
        setting: String,
        /// The value it needs.
        value: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel would drop packets that a worker gives it.
    #[error(
        "net.ipv4.conf.all.rp_filter is {found}, expected 0: the kernel would drop what workers give it through the \
         TUN. Set it to 0, and the check of each other interface by its own rp_filter"
    )]
    ReversePath {
        /// The value.
        found: String,
    },
    /// The interface could not be brought up.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

impl TunError {
    pub(super) fn because(name: &str, operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        let name = name.to_owned();
        move |source| Self::Device { name, operation, source }
    }
}

/// Result of the TUN's functions.
pub type Result<T> = std::result::Result<T, TunError>;

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => " (needs CAP_NET_ADMIN and the right to open /dev/net/tun)",
        Some(libc::EBUSY) => " (another process holds it)",
        Some(libc::EINVAL) => " (an interface of this name exists that is no TUN)",
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => " (is the kernel's tun driver there?)",
        _ => "",
    }
}

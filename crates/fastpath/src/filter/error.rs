//! Errors of the filter.

use super::layout::LAYOUT_VERSION;
use std::io;
use std::path::PathBuf;

/// Errors of loading, attaching, pinning and cleaning up the XDP filter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The instance name cannot be part of a path.
    #[error("instance name {found:?}, expected 1 to 32 of the characters a-z A-Z 0-9 - _")]
    InstanceName {
        /// The name given.
        found: String,
    },
    /// The BPF file system cannot be used.
    #[error("{}: {operation}: {source}{}", path.display(), hint(source))]
    Path {
        /// The file or directory.
        path: PathBuf,
        /// The operation that failed.
        operation: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Pins would vanish with the process.
    #[error(
        "no BPF file system at {}, and a mount made in this private mount namespace would vanish with it; \
         enter the network namespace with `nsenter --net=/run/netns/NAME` instead of `ip netns exec`, or mount one \
         outside: `mount -t bpf bpf {}`", path.display(), path.display()
    )]
    PrivateMount {
        /// Where the BPF file system should be.
        path: PathBuf,
    },
    /// The kernel does not run a frame through the filter.
    #[error("cannot run a frame through the filter: {source}")]
    Run {
        /// The kernel's answer.
        source: libbpf_rs::Error,
    },
    /// Another process works with the instance.
    #[error("instance {instance} is in use by another process; stop it first")]
    Busy {
        /// The instance.
        instance: String,
    },
    /// The pinned filter is attached in another network namespace.
    #[error(
        "instance {instance} belongs to another network namespace (cookie {found}, this one has {expected}); \
         choose another instance name, or clean up there first"
    )]
    OtherNetns {
        /// The instance.
        instance: String,
        /// Cookie in the pinned maps.
        found: u64,
        /// Cookie of this namespace.
        expected: u64,
    },
    /// Another version pinned the maps.
    #[error(
        "instance {instance} has pinned maps of layout {found}, expected {LAYOUT_VERSION}; they keep protected \
         traffic from leaving in clear, so they are not replaced: use the version that made them, or take the \
         filter away with `testudod --cleanup`"
    )]
    Layout {
        /// The instance.
        instance: String,
        /// Version in the pinned maps.
        found: u32,
    },
    /// The kernel refused the program or a map.
    #[error("loading the XDP filter: {source:#}{}", load_hint(source))]
    Load {
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// The object has no such part: it was not built from our sources.
    #[error("the XDP filter has no {what}")]
    Missing {
        /// The map or program.
        what: &'static str,
    },
    /// A map cannot be read or written.
    #[error("map {map}: {operation} {entry}: {source:#}")]
    Map {
        /// Its name.
        map: &'static str,
        /// The operation that failed.
        operation: &'static str,
        /// The entry.
        entry: String,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// The sessions cannot be mapped into memory.
    #[error("cannot map the sessions of the XDP filter: {source}")]
    Sessions {
        /// The kernel's answer.
        source: io::Error,
    },
    /// The row clocks cannot be mapped into memory.
    #[error("cannot map the row clocks of the XDP filter: {source}")]
    Clocks {
        /// The kernel's answer.
        source: io::Error,
    },
    /// A port or queue number that is out of range.
    #[error("{what} {found}, expected at most {limit}")]
    Range {
        /// What the number counts.
        what: &'static str,
        /// The number.
        found: u16,
        /// The largest allowed number.
        limit: u16,
    },
    /// The filter cannot be attached to a port, or taken from it.
    #[error("port {port}: {operation}: {source}{}", port_hint(source))]
    Port {
        /// Name of the interface.
        port: String,
        /// The operation that failed.
        operation: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Result of the filter's functions.
pub type Result<T> = std::result::Result<T, FilterError>;

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            " (needs CAP_SYS_ADMIN to mount, CAP_BPF and CAP_NET_ADMIN to pin)"
        }
        _ => "",
    }
}

fn load_hint(error: &libbpf_rs::Error) -> &'static str {
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => " (needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON)",
        _ => "",
    }
}

fn port_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => " (needs CAP_NET_ADMIN and CAP_BPF)",
        Some(libc::EBUSY | libc::EEXIST) => " (another XDP program is attached; `ip link` shows it)",
        Some(libc::EOPNOTSUPP) => {
            " (the driver has no native XDP; allow generic mode for this port, which is slow)"
        }
        Some(libc::EINVAL) => {
            " (the driver refuses; often the MTU is too large for XDP, or too few queues are left)"
        }
        Some(libc::ENODEV) => " (no such interface in this network namespace)",
        _ => "",
    }
}

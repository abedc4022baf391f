//! The rights that the daemon needs, checked before anything changes, and the ones that it gives up
//! to protect its secrets.

use crate::error::{Error, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// A capability, its bit (linux/capability.h) and what it is for.
struct Need {
    name: &'static str,
    bit: u32,
    why: &'static str,
}

const NEEDS: [Need; 5] = [
    Need { name: "CAP_NET_ADMIN", bit: 12, why: "to attach the XDP filter, create the TUN and set routes" },
    Need { name: "CAP_NET_RAW", bit: 13, why: "to open AF_XDP sockets, and to hear routers by ICMP" },
    Need { name: "CAP_NET_BIND_SERVICE", bit: 10, why: "to bind UDP port 500" },
    Need { name: "CAP_BPF", bit: 39, why: "to load the XDP filter and its maps" },
    Need { name: "CAP_PERFMON", bit: 38, why: "to let the XDP filter read packets by variable offset" },
];

/// CAP_SYS_ADMIN stands in for CAP_BPF and CAP_PERFMON (capabilities(7)).
const SYS_ADMIN: u32 = 21;

/// CAP_IPC_LOCK, and CAP_SYS_RESOURCE, by which the limit is raised.
const MEMORY: [u32; 2] = [14, 24];

/// One line for each missing right.
pub(crate) fn missing() -> Result<Vec<String>> {
    let file = "/proc/self/status";
    let unreadable = |source| Error::Unreadable { file: file.into(), source };
    let status = std::fs::read_to_string(file).map_err(unreadable)?;
    missing_in(&status)
}

/// One line for each right that is missing by the text of /proc/self/status.
pub(crate) fn missing_in(status: &str) -> Result<Vec<String>> {
    let effective = effective(status).ok_or(Error::NoCapabilities)?;
    Ok(missing_of(effective))
}

/// True if a process may lock any amount of memory, or may allow itself to.
pub(crate) fn locks_memory(status: &str) -> bool {
    effective(status).is_some_and(|effective| MEMORY.iter().any(|bit| effective & (1 << bit) != 0))
}

fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn missing_of(effective: u64) -> Vec<String> {
    let has = |bit: u32| effective & (1 << bit) != 0;
    let granted = |need: &&Need| has(need.bit) || need.bit >= 38 && has(SYS_ADMIN);
    NEEDS
        .iter()
        .filter(|need| !granted(need))
        .map(|need| format!("{} is missing: testudod needs it {}", need.name, need.why))
        .collect()
}

/// Keys never reach a core dump or another process's debugger.
pub(crate) fn protect_secrets() -> Result<()> {
    let failed = |action| move |source| Error::Protection { action, source };
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(failed("forbid core dumps"))?;
    nix::sys::prctl::set_dumpable(false).map_err(failed("make the process undumpable"))
}

/// UMEM and BPF maps count as locked memory, unless the process has CAP_IPC_LOCK: raises the limit
/// as far as allowed.
pub(crate) fn raise_memlock() {
    let unlimited = nix::libc::RLIM_INFINITY;
    if setrlimit(Resource::RLIMIT_MEMLOCK, unlimited, unlimited).is_err()
        && let Ok((_, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK)
    {
        // If the limit is too low, the registration of the frames fails and says so.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_lacks_nothing_and_nobody_lacks_all() {
        assert!(missing_of(u64::MAX).is_empty());
        assert_eq!(missing_of(0).len(), NEEDS.len());
    }

    #[test]
    fn sys_admin_stands_in_for_the_bpf_capabilities_alone() {
        let missing = missing_of(1 << SYS_ADMIN);
        assert_eq!(missing.len(), 3);
        assert!(missing.iter().all(|m| !m.contains("CAP_BPF") && !m.contains("CAP_PERFMON")), "{missing:?}");
    }

    #[test]
    fn memory_is_locked_by_either_of_two_rights() {
        let status = |bits: u64| format!("CapEff:\t{bits:016x}\n");
        assert!(locks_memory(&status(1 << 14)) && locks_memory(&status(1 << 24)));
        assert!(!locks_memory(&status(!(1 << 14 | 1 << 24))));
    }

    #[test]
    fn the_effective_set_is_read() {
        assert_eq!(effective("Name:\tx\nCapEff:\t000001ffffffffff\n"), Some(0x1ff_ffff_ffff));
        assert_eq!(effective("Name:\tx\n"), None);
    }
}

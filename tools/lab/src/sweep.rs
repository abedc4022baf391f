//! Removal of what killed labs have left.
//!
//! Call it with the lock held: then everything whose name has one of its slots is a leftover.

use crate::lock::{Company, Lock};
use crate::{Error, Result, interrupt, netns, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Directory of pinned BPF objects.
pub(crate) const BPFFS: &str = "/sys/fs/bpf";

/// Directory of the memory that a daemon shares with its clients (libqb): files and directories
/// `qb-<daemon>-<client>-...`.
const SHM: &str = "/dev/shm";
/// Prefix of corosync's flight recorder.
const RECORDER_PREFIX: &str = "qb-corosync-";
const IPC_PREFIX: &str = "qb-";

const LOCK_LIMIT: Duration = Duration::from_secs(60);
const DEATH_LIMIT: Duration = Duration::from_secs(60);

/// What a sweep has removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Names of namespaces.
    pub namespaces: Vec<String>,
    /// Processes in them.
    pub processes: usize,
    /// Temporary directories and pin directories.
    pub directories: Vec<PathBuf>,
}

impl Swept {
    /// True if there was nothing to remove.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Removes all leftovers, unless a lab is running or starting: the first lab sweeps the first slot.
pub fn unless_busy() -> Result<Swept> {
    match Lock::wait(Company::Alone, Duration::ZERO) {
        Ok(lock) => leftovers(&lock),
        Err(Error::Timeout { .. }) => Ok(Swept::default()),
        Err(error) => Err(error),
    }
}

/// Waits until no lab is running, and removes all leftovers.
pub fn run() -> Result<Swept> {
    leftovers(&Lock::wait(Company::Alone, LOCK_LIMIT)?)
}

/// Prefix of the namespaces of the lab in that slot.
pub(crate) fn namespace_prefix(slot: u8) -> String {
    format!("tl{slot}-")
}

/// Prefix of its directory, in the directory for temporary files.
pub(crate) fn dir_prefix(slot: u8) -> String {
    format!("testudo-lab{slot}-")
}

/// Prefix of its daemons' instances. Short, because an interface's name may contain it. The
/// separator distinguishes slot 1 from slots 10 to 15.
pub(crate) fn instance_prefix(slot: u8) -> String {
    format!("lt{slot}-")
}

/// Prefix of its pin directories.
fn pin_prefix(slot: u8) -> String {
    format!("testudo-{}", instance_prefix(slot))
}

/// Removes everything whose name has a slot that the lock holds.
pub(crate) fn leftovers(lock: &Lock) -> Result<Swept> {
    let mut swept = Swept::default();
    for slot in lock.slots() {
        sweep_slot(slot, &mut swept)?;
    }
    // Not attributed to a lab, but a dead daemon's shared memory is of no use: 8 MB for each of
    // its clients.
    remove_ipc(|pid| !Path::new(&format!("/proc/{pid}")).exists())?;
    Ok(swept)
}

fn sweep_slot(slot: u8, swept: &mut Swept) -> Result<()> {
    for path in entries(Path::new(netns::DIRECTORY), &namespace_prefix(slot))? {
        let Some(name) = path.file_name().and_then(|n| n.to_str()) else { continue };
        swept.processes += delete_namespace(name)?;
        swept.namespaces.push(name.to_owned());
    }
    let mut directories = entries(Path::new(BPFFS), &pin_prefix(slot))?;
    directories.extend(entries(&std::env::temp_dir(), &dir_prefix(slot))?);
    for dir in directories {
        remove_dir(&dir)?;
        swept.directories.push(dir);
    }
    Ok(())
}

/// Removes the shared memory of a daemon that has ended.
pub(crate) fn remove_ipc_of(pid: u32) -> Result<()> {
    remove_ipc(|of| of == pid)
}

fn remove_ipc(of: impl Fn(u32) -> bool) -> Result<()> {
    for path in entries(Path::new(SHM), IPC_PREFIX)? {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let rest = name.strip_prefix(RECORDER_PREFIX).or_else(|| name.strip_prefix(IPC_PREFIX));
        let daemon = rest.and_then(|rest| rest.split('-').next()?.parse().ok());
        if daemon.is_some_and(&of) {
            if path.is_dir() {
                remove_dir(&path)?;
            } else {
                // Its client may have removed it first.
                let _gone = fs::remove_file(&path);
            }
        }
    }
    Ok(())
}

/// Kills every process in the namespace, waits for their end, deletes the namespace. Returns the
/// number of processes.
pub(crate) fn delete_namespace(name: &str) -> Result<usize> {
    let _shield = interrupt::shield();
    let path = netns::path(name);
    let what = format!("the end of the processes in namespace {name}");
    let mut killed = 0;
    wait_until(&what, DEATH_LIMIT, || {
        let inside = processes_in(&path);
        killed = killed.max(inside.len());
        for pid in &inside {
            // It may have ended meanwhile.
            let _gone = kill(*pid, Signal::SIGKILL);
        }
        Ok(if inside.is_empty() { Ok(()) } else { Err(format!("{} left", inside.len())) })
    })?;
    netns::delete(name)?;
    Ok(killed)
}

/// Processes whose network namespace is the one mounted at `path`.
fn processes_in(path: &Path) -> Vec<Pid> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    let Some(wanted) = identity(path) else { return Vec::new() };
    let Ok(proc) = fs::read_dir("/proc") else { return Vec::new() };
    proc.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter(|pid| identity(Path::new(&format!("/proc/{pid}/ns/net"))) == Some(wanted))
        .collect()
}

/// Removes a directory and its content. Succeeds if it does not exist.
pub(crate) fn remove_dir(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(Error::io(format!("remove {}", dir.display()))),
    }
}

fn entries(dir: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let listing = match fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(Error::io(format!("list {}", dir.display())))?,
    };
    let mut found: Vec<_> = listing
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_sweeps_its_own_slot_and_not_that_of_another_beside_it() {
        // No other lab may sweep meanwhile.
        let lab = crate::Lab::new("slots").unwrap();
        let namespace = lab.namespace("ours").unwrap();
        let directory = |slot| std::env::temp_dir().join(format!("{}left", dir_prefix(slot)));
        let pins = |slot| Path::new(BPFFS).join(format!("{}gw1", pin_prefix(slot)));
        for left in [pins(1), pins(10), directory(1), directory(10)] {
            fs::create_dir(left).unwrap();
        }
        let mut swept = Swept::default();
        sweep_slot(1, &mut swept).unwrap();
        assert_eq!(swept, Swept { directories: vec![pins(1), directory(1)], ..Swept::default() });
        assert!(!pins(1).exists() && !directory(1).exists());
        assert!(pins(10).exists() && directory(10).exists());
        assert!(lab.dir().exists() && namespace.path().exists());
        sweep_slot(10, &mut swept).unwrap();
        assert!(!pins(10).exists() && !directory(10).exists());
    }

    #[test]
    fn no_slot_bears_the_name_of_another() {
        for of in [namespace_prefix, dir_prefix, pin_prefix] {
            for (one, other) in [(1, 10), (1, 15), (10, 1), (0, 10)] {
                assert!(!format!("{}gw1", of(other)).starts_with(&of(one)), "{} and {}", of(one), of(other));
            }
        }
    }

    /// The limit of testudod for an instance's name.
    #[test]
    fn an_instance_in_the_last_slot_has_a_name_that_fits() {
        let longest = format!("{}witness", instance_prefix(crate::lock::SLOTS - 1));
        assert!(longest.len() <= 12, "{longest}");
    }
}

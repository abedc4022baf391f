//! The BPF file system, where the pins of an instance are.
//!
//! A pin keeps a link or map alive without a process. Only [`super::cleanup`] removes pins.

use super::error::{FilterError, Result};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Mount point of the BPF file system on every distribution.
pub const BPFFS: &str = "/sys/fs/bpf";

/// Name of an instance: part of the path of its pins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance(String);

impl Instance {
    /// Checks a name.
    pub fn new(name: &str) -> Result<Self> {
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 32 || !name.chars().all(valid) {
            return Err(FilterError::InstanceName { found: name.to_owned() });
        }
        Ok(Self(name.to_owned()))
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// The directory of an instance's pins, locked while this value lives, so that two daemons cannot
/// share an instance.
#[derive(Debug)]
pub(super) struct PinDir {
    path: PathBuf,
    _lock: Flock<File>,
}

impl PinDir {
    /// Opens the directory. Makes it, and mounts the file system, if they do not exist.
    pub(super) fn create(instance: &Instance) -> Result<Self> {
        mount_bpffs(Path::new(BPFFS))?;
        let path = Self::path_of(instance);
        let mut builder = DirBuilder::new();
        builder.mode(0o700).recursive(true);
        for path in [path.join("maps"), path.join("links")] {
            builder.create(&path).map_err(failed(&path, "cannot make the directory"))?;
        }
        Self::lock(instance, path)
    }

    /// Opens the directory if it exists.
    pub(super) fn open(instance: &Instance) -> Result<Option<Self>> {
        let path = Self::path_of(instance);
        if !path.exists() {
            return Ok(None);
        }
        Self::lock(instance, path).map(Some)
    }

    fn path_of(instance: &Instance) -> PathBuf {
        Path::new(BPFFS).join(format!("testudo-{}", instance.name()))
    }

    fn lock(instance: &Instance, path: PathBuf) -> Result<Self> {
        let file = File::open(&path).map_err(failed(&path, "cannot open"))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err((_, Errno::EWOULDBLOCK)) => Err(FilterError::Busy { instance: instance.name().to_owned() }),
            Err((_, errno)) => Err(failed(&path, "cannot lock")(errno.into())),
        }
    }

    /// The pin of a map.
    pub(super) fn map(&self, name: &str) -> PathBuf {
        self.path.join("maps").join(name)
    }

    /// The pin of a port's link. Its name has the interface's number, because names can change.
    pub(super) fn link(&self, ifindex: u32) -> PathBuf {
        self.path.join("links").join(ifindex.to_string())
    }

    /// Numbers of the interfaces that have a pinned link.
    pub(super) fn linked(&self) -> Result<Vec<u32>> {
        let names = list(&self.path.join("links"))?;
        Ok(names.iter().filter_map(|n| n.parse().ok()).collect())
    }

    /// Removes the pins of the maps.
    pub(super) fn remove_maps(&self) -> Result<()> {
        let dir = self.path.join("maps");
        list(&dir)?.iter().try_for_each(|name| remove_pin(&dir.join(name)))
    }

    /// Removes the directory, which must hold no pin any more.
    pub(super) fn remove(self) -> Result<()> {
        for path in [self.path.join("maps"), self.path.join("links"), self.path.clone()] {
            match fs::remove_dir(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&path, "cannot remove the directory")(e));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Removes a pin, if it exists.
pub(super) fn remove_pin(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(path, "cannot remove the pin")(e)),
        _ => Ok(()),
    }
}

pub(super) fn failed(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> FilterError {
    let path = path.to_owned();
    move |source| FilterError::Path { path, operation, source }
}

fn list(dir: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(dir, "cannot list")(e)),
    };
    let names = entries.map(|e| e.map(|e| e.file_name().to_string_lossy().into_owned()));
    names.collect::<io::Result<_>>().map_err(failed(dir, "cannot list"))
}

fn is_bpffs(path: &Path) -> Result<bool> {
    let found = statfs(path).map_err(|e| failed(path, "cannot look at the file system")(e.into()))?;
    Ok(found.filesystem_type() == BPF_FS_MAGIC)
}

/// Mounts the BPF file system, unless it is mounted.
fn mount_bpffs(path: &Path) -> Result<()> {
    if is_bpffs(path)? {
        return Ok(());
    }
    if has_private_mounts() {
        return Err(FilterError::PrivateMount { path: path.to_owned() });
    }
    // Two daemons that start at once must not mount twice: the second mount would hide the pins of
    // the first.
    let parent = path.parent().unwrap_or(path);
    let dir = File::open(parent).map_err(failed(parent, "cannot open"))?;
    let lock = Flock::lock(dir, FlockArg::LockExclusive);
    let _lock = lock.map_err(|(_, e)| failed(parent, "cannot lock")(e.into()))?;
    if !is_bpffs(path)? {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("bpf"), path, Some("bpf"), flags, Some("mode=700"))
            .map_err(|e| failed(path, "cannot mount the BPF file system")(e.into()))?;
    }
    Ok(())
}

/// True in a mount namespace that a parent process does not share, so that the namespace may end
/// with us. A container whose processes share one namespace is no such case.
fn has_private_mounts() -> bool {
    // An entry that we have no right to read counts as unknown.
    let namespace = |process: &str| fs::metadata(format!("/proc/{process}/ns/mnt")).map(|m| m.ino()).ok();
    let own = namespace("self");
    let ancestors = std::iter::successors(parent("self"), |process| parent(process));
    ancestors.filter_map(|process| namespace(&process)).any(|found| Some(found) != own)
}

/// The parent of a process.
fn parent(process: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let parent = status.lines().find_map(|l| l.strip_prefix("PPid:"))?.trim();
    (parent != "0").then(|| parent.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_mounted_once() {
        let path = std::env::temp_dir().join(format!("ttbp-bpffs-{}", std::process::id()));
        fs::create_dir(&path).expect("directory");
        assert!(!is_bpffs(&path).expect("statfs"));
        for _ in 0..2 {
            mount_bpffs(&path).expect("mount (root)");
            assert!(is_bpffs(&path).expect("statfs"));
        }
        nix::mount::umount(&path).expect("unmount");
        assert!(!is_bpffs(&path).expect("statfs"), "it was mounted twice");
        fs::remove_dir(&path).expect("directory");
    }

    #[test]
    fn an_instance_name_cannot_leave_its_directory() {
        for name in ["", "a/b", "..", "a b", "a.b", "ä", &"a".repeat(33)] {
            let error = Instance::new(name).expect_err(name);
            assert!(error.to_string().contains("expected 1 to 32"), "{error}");
        }
        assert_eq!(Instance::new("gw-1_A").map(|i| i.name().to_owned()).ok().as_deref(), Some("gw-1_A"));
    }
}

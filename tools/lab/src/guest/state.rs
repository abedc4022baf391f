//! The saved state of a guest that has booted, from which all guests on this host start.

use super::image::Image;
use super::store::Store;
use crate::command::Cmd;
use crate::files::Sha256;
use crate::process::Process;
use crate::{Error, Result};
use aws_lc_rs::digest::{Context, SHA256};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

const CHUNK: usize = 1 << 20;

/// A machine whose state is saved when it has booted.
pub(super) trait Savable {
    fn image(&self) -> &Image;

    /// Begins the names of its states. A new one replaces all others with this prefix.
    fn prefix(&self) -> String;

    /// Everything that a saved state depends on, except the content of the image.
    fn hardware(&self) -> Vec<String>;

    /// Boots it and saves its state to `path`.
    fn save(&self, path: &Path) -> Result<()>;

    /// Restores a state that was saved so.
    fn restore(&self, path: &Path) -> Result<Process>;
}

/// A complete saved state.
#[derive(Debug)]
pub(super) struct State {
    path: PathBuf,
}

impl State {
    /// The state for that machine. If there is none, or a damaged one, the machine boots to make
    /// it.
    pub(super) fn get(_store: &Store, machine: &impl Savable) -> Result<Self> {
        let name = format!("{}{}", machine.prefix(), key(machine)?);
        let state = Self { path: machine.image().dir().join(name) };
        if !state.is_whole() {
            state.make(machine)?;
        }
        Ok(state)
    }

    /// Restores it. A state that cannot be restored is deleted.
    pub(super) fn restore(&self, machine: &impl Savable) -> Result<Process> {
        machine.restore(&self.path).inspect_err(|error| {
            if !matches!(error, Error::Interrupted) {
                // If it cannot be removed, the next lab will fail to restore it too.
                let _ = fs::remove_file(self.digest());
            }
        })
    }

    /// The path of its digest. Without a digest a state counts as damaged.
    fn digest(&self) -> PathBuf {
        self.path.with_extension("sha256")
    }

    fn is_whole(&self) -> bool {
        let expected = fs::read_to_string(self.digest());
        let found = digest(&[&self.path]);
        matches!((expected, found), (Ok(expected), Ok(found)) if expected == found.0)
    }

    fn make(&self, machine: &impl Savable) -> Result<()> {
        let dir = machine.image().dir();
        let failed = || Error::io(format!("keep a guest's state in {}", dir.display()));
        remove_states(dir, &machine.prefix()).map_err(failed())?;
        let new = self.path.with_extension("new");
        machine.save(&new)?;
        let digest = digest(&[&new]).map_err(failed())?;
        // The digest marks a complete state, so it is written last.
        fs::rename(&new, &self.path).and_then(|()| fs::write(self.digest(), digest.0)).map_err(failed())
    }
}

/// Removes states of earlier emulators. Running guests have theirs open.
fn remove_states(dir: &Path, prefix: &str) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Depends on the image, the emulator, the machine, and the processor, whose cycle counter the
/// guest's kernel has measured.
fn key(machine: &impl Savable) -> Result<String> {
    let image = digest(&[&machine.image().kernel(), &machine.image().initrd()])
        .map_err(Error::io("read the guest's image"))?;
    let emulator = Cmd::new("qemu-system-x86_64").arg("--version").run()?.stdout;
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").map_err(Error::io("read /proc/cpuinfo"))?;
    let processor = cpuinfo.lines().find(|line| line.starts_with("model name")).unwrap_or_default();
    let mut context = Context::new(&SHA256);
    for text in [image.0.as_str(), &emulator, processor, &machine.hardware().join(" ")] {
        context.update(text.as_bytes());
        context.update(b"\n");
    }
    Ok(Sha256::of(context).0.chars().take(16).collect())
}

/// The digest of the files' contents in order.
fn digest(paths: &[&Path]) -> io::Result<Sha256> {
    let mut context = Context::new(&SHA256);
    let mut chunk = vec![0; CHUNK];
    for path in paths {
        let mut file = File::open(path)?;
        loop {
            let read = file.read(&mut chunk)?;
            if read == 0 {
                break;
            }
            context.update(&chunk[..read]);
        }
    }
    Ok(Sha256::of(context))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_state_is_not_whole() {
        let dir = tempfile::tempdir().unwrap();
        let state = State { path: dir.path().join("state-0") };
        assert!(!state.is_whole(), "there is none");
        fs::write(&state.path, "a guest").unwrap();
        assert!(!state.is_whole(), "nobody has looked at it");
        fs::write(state.digest(), digest(&[&state.path]).unwrap().0).unwrap();
        assert!(state.is_whole());
        for damaged in ["a gues", "a ghost"] {
            fs::write(&state.path, damaged).unwrap();
            assert!(!state.is_whole(), "{damaged}");
        }
        remove_states(dir.path(), "other-").unwrap();
        assert!(state.path.exists());
        remove_states(dir.path(), "state-").unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

//! The lab itself: its names, its directory, its end.

use crate::lock::{Company, Lock};
use crate::process::tail;
use crate::{Error, Namespace, Result, sweep};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Before this one there may be as many labs as there are programs that want one, and each may take
/// minutes.
const LOCK_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

const PLACES: &str = "TESTUDO_LAB_PLACES";
/// A wait that is worth telling.
const LONG: Duration = Duration::from_millis(100);

/// A handle to a lab. Clones share it.
#[derive(Clone, Debug)]
pub struct Lab {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    // Dropped in this order: the directory goes before others may have the lock.
    dir: TempDir,
    lock: Lock,
    company: Company,
}

impl Lab {
    /// A lab that is the only one on this machine: for what measures time, needs all processors, or
    /// uses what exists only once.
    ///
    /// Where the environment names a number of places in `TESTUDO_LAB_PLACES` it takes those, and
    /// bears others beside it: that is for tests of what measures, which look at everything but the
    /// figures.
    pub fn new(name: &str) -> Result<Self> {
        let company = match places_beside_others()? {
            None => Company::Alone,
            Some(places) => Company::Places(places),
        };
        Self::start(name, company)
    }

    /// A lab that bears others beside it: two gateways that mostly wait.
    pub fn shared(name: &str) -> Result<Self> {
        Self::start(name, Company::Places(1))
    }

    /// A lab that bears others beside it, and works as much as so many small ones.
    pub fn large(name: &str, places: u8) -> Result<Self> {
        Self::start(name, Company::Places(places))
    }

    /// Waits for the lock, sweeps what dead labs left, and makes the directory of this one.
    fn start(name: &str, company: Company) -> Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::unexpected("the user of the lab", "root", "somebody else"));
        }
        let begun = Instant::now();
        let lock = Lock::wait(company, LOCK_LIMIT)?;
        if begun.elapsed() > LONG {
            // What runs the tests takes it off the test's time.
            let waited = begun.elapsed().as_secs_f64();
            writeln!(std::io::stderr(), "lab: its turn came after {waited:.2} s")
                .map_err(Error::io("write to standard error"))?;
        }
        sweep::leftovers(&lock)?;
        mount_bpffs()?;
        let dir = tempfile::Builder::new()
            .prefix(&format!("{}{}-{name}-", sweep::dir_prefix(lock.slots().start), std::process::id()))
            .tempdir()
            .map_err(Error::io("make the lab's directory"))?;
        Ok(Self { inner: Arc::new(Inner { dir, lock, company }) })
    }

    /// Directory for files of this lab.
    pub fn dir(&self) -> &Path {
        self.inner.dir.path()
    }

    /// A path in the lab's directory that nothing has yet: `stem.suffix`, or `stem-2.suffix`, ...
    pub fn unused(&self, stem: &str, suffix: &str) -> PathBuf {
        let first = self.dir().join(format!("{stem}{suffix}"));
        let others = (2_u32..).map(|n| self.dir().join(format!("{stem}-{n}{suffix}")));
        std::iter::once(first.clone()).chain(others).find(|path| !path.exists()).unwrap_or(first)
    }

    /// Makes an empty directory in the lab's one.
    pub fn subdir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.unused(name, "");
        fs::create_dir(&dir).map_err(Error::io(format!("make {}", dir.display())))?;
        Ok(dir)
    }

    /// Makes a namespace for that role ("client", "gw1", ...).
    pub fn namespace(&self, role: &str) -> Result<Namespace> {
        Namespace::create(self, role)
    }

    /// A name for a daemon's instance that a later sweep knows as the lab's: it goes into names of
    /// pins.
    pub fn instance(&self, role: &str) -> String {
        format!("{}{role}", sweep::instance_prefix(self.slot()))
    }

    /// Whether others may be there.
    pub(crate) fn company(&self) -> Company {
        self.inner.company
    }

    /// What tells its names from those of another lab beside it.
    pub(crate) fn slot(&self) -> u8 {
        self.inner.lock.slots().start
    }

    fn show_logs(&self) {
        // Best effort on the way down: whoever reads a failed test wants the daemons' last words.
        for path in logs_under(self.dir()) {
            let Ok(bytes) = fs::read(&path) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            let _ = writeln!(std::io::stderr(), "--- {}\n{}", path.display(), tail(&text));
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() && Arc::strong_count(&self.inner) == 1 {
            self.show_logs();
        }
    }
}

/// The places that the environment names in `TESTUDO_LAB_PLACES` for labs that would be alone:
/// figures that are taken in them mean nothing.
pub fn places_beside_others() -> Result<Option<u8>> {
    let Some(found) = std::env::var_os(PLACES) else { return Ok(None) };
    match found.to_str().and_then(|places| places.parse().ok()).filter(|places| *places > 0) {
        Some(places) => Ok(Some(places)),
        None => Err(Error::unexpected(PLACES, "a number of places from 1 to 255", found.to_string_lossy())),
    }
}

fn logs_under(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(logs_under(&path));
        } else if path.extension().is_some_and(|e| e == "log") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// systemd mounts it on ordinary hosts; in a container it may be missing.
fn mount_bpffs() -> Result<()> {
    use nix::mount::{MsFlags, mount};
    use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
    let there = statfs(sweep::BPFFS).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC);
    if there {
        return Ok(());
    }
    mount(Some("bpf"), sweep::BPFFS, Some("bpf"), MsFlags::empty(), None::<&str>)
        .map_err(|e| Error::io(format!("mount a bpf file system on {}", sweep::BPFFS))(e.into()))
}

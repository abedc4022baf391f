//! The lab itself: its names, its directory, its end.

use crate::lock::{Company, Lock, places_in};
use crate::process::tail;
use crate::{Error, Namespace, Result, sweep};
use std::fs;
use std::io::Write;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// As many labs as there are programs may come first, and each may take minutes.
const LOCK_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

const PLACES: &str = "TESTUDO_LAB_PLACES";
/// Waits longer than this are reported.
const LONG: Duration = Duration::from_millis(100);

/// A handle to a lab. Clones refer to the same lab.
#[derive(Clone, Debug)]
pub struct Lab {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    // Dropped in this order: the directory must go before others get the lock.
    dir: TempDir,
    lock: Lock,
    company: Company,
}

impl Lab {
    /// A lab that runs alone on this machine: for tests that measure time, need all processors, or
    /// use something that exists only once.
    ///
    /// If the environment variable `TESTUDO_LAB_PLACES` has a number of places, it takes those and
    /// runs beside other labs. That is for tests of the benchmarks, which check everything but the
    /// figures.
    pub fn new(name: &str) -> Result<Self> {
        let company = match places_beside_others()? {
            None => Company::Alone,
            Some(places) => Company::Places(places),
        };
        Self::start(name, company)
    }

    /// A small lab that runs beside others: two gateways that mostly wait.
    pub fn shared(name: &str) -> Result<Self> {
        Self::start(name, Company::Places(1))
    }

    /// A lab that runs beside others, with the load of that many small ones.
    pub fn large(name: &str, places: u8) -> Result<Self> {
        Self::start(name, Company::Places(places))
    }

    /// Waits for the lock, sweeps what dead labs have left, and creates the directory of this one.
    fn start(name: &str, company: Company) -> Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::unexpected("the user of the lab", "root", "somebody else"));
        }
        let begun = Instant::now();
        let lock = Lock::wait(company, LOCK_LIMIT)?;
        if begun.elapsed() > LONG {
            // The test runner subtracts it from the test's time.
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

    /// A path in the lab's directory that does not exist yet: `stem.suffix`, or `stem-2.suffix`,
    /// ...
    pub fn unused(&self, stem: &str, suffix: &str) -> PathBuf {
        let first = self.dir().join(format!("{stem}{suffix}"));
        let others = (2_u32..).map(|n| self.dir().join(format!("{stem}-{n}{suffix}")));
        std::iter::once(first.clone()).chain(others).find(|path| !path.exists()).unwrap_or(first)
    }

    /// Creates an empty directory in the lab's directory.
    pub fn subdir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.unused(name, "");
        fs::create_dir(&dir).map_err(Error::io(format!("make {}", dir.display())))?;
        Ok(dir)
    }

    /// Creates a namespace for that role ("client", "gw1", ...).
    pub fn namespace(&self, role: &str) -> Result<Namespace> {
        Namespace::create(self, role)
    }

    /// A name for a daemon's instance that a later sweep can attribute to the lab; names of pins
    /// contain it.
    pub fn instance(&self, role: &str) -> String {
        format!("{}{role}", sweep::instance_prefix(self.slot()))
    }

    /// Whether other labs may run at the same time.
    pub(crate) fn company(&self) -> Company {
        self.inner.company
    }

    /// The number that keeps its names apart from those of other labs.
    pub(crate) fn slot(&self) -> u8 {
        self.inner.lock.slots().start
    }

    fn show_logs(&self) {
        // Best effort: the reader of a failed test needs the last log lines of the daemons.
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

/// The number of places in `TESTUDO_LAB_PLACES` for labs that would otherwise run alone. Their
/// figures are meaningless.
pub fn places_beside_others() -> Result<Option<u8>> {
    let places = places_in::<NonZeroU8>(PLACES, "a number of places from 1 to 255")?;
    Ok(places.map(NonZeroU8::get))
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

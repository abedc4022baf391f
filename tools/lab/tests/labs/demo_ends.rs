//! Nothing remains after the demo, however it ends.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testudo_lab::command::Cmd;
use testudo_lab::{Error, wait_until};

/// The demo waits for other labs, however long they take.
const START_LIMIT: Duration = Duration::from_secs(1200);
const END_LIMIT: Duration = Duration::from_secs(120);

struct Demo {
    guard: Child,
    worker: i32,
    dir: tempfile::TempDir,
}

/// Runs the demo until traffic flows.
fn start() -> Demo {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("output");
    let guard = Command::new(env!("CARGO_BIN_EXE_testudo-demo"))
        .arg("--report")
        .arg(dir.path().join("report.json"))
        .stdin(Stdio::null())
        .stdout(fs::File::create(&output).unwrap())
        .spawn()
        .unwrap();
    wait_until("the demo's first download", START_LIMIT, || {
        let text = fs::read_to_string(&output).map_err(Error::io("read the demo's output"))?;
        Ok(if text.contains("HTTP download") { Ok(()) } else { Err(text) })
    })
    .unwrap();
    let children = Cmd::new("pgrep").args(["-P", &guard.id().to_string()]).run().unwrap().stdout;
    Demo { worker: children.trim().parse().unwrap(), guard, dir }
}

impl Demo {
    fn namespaces(&self) -> usize {
        with_prefix(Path::new("/run/netns"), &format!("tl0-{}-", self.worker))
    }

    fn directories(&self) -> usize {
        with_prefix(&std::env::temp_dir(), &format!("testudo-lab0-{}-", self.worker))
    }

    /// Processes that name the lab's directory: web server, captures, daemons.
    fn processes(&self) -> usize {
        let name = format!("testudo-lab0-{}-", self.worker);
        let names_it = |entry: &fs::DirEntry| {
            fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&name))
        };
        fs::read_dir("/proc").unwrap().flatten().filter(names_it).count()
    }

    /// Signals one of the two processes. Then both must end, and the guard must not report success.
    fn ends_cleanly(mut self, whom: impl Fn(&Self) -> i32, signal: Signal) {
        // There must be something to clean up; the demo may be in any of its labs.
        wait_until("a lab of the demo", END_LIMIT, || {
            let there = (self.namespaces(), self.directories(), self.processes());
            Ok(if matches!(there, (5, 1, 1..)) { Ok(()) } else { Err(format!("{there:?} there")) })
        })
        .unwrap();
        kill(Pid::from_raw(whom(&self)), signal).unwrap();
        let status = self.guard.wait().unwrap();
        assert!(!status.success(), "{status}");
        // If the guard itself was killed, the worker is still cleaning up.
        wait_until("the end of the lab", END_LIMIT, || {
            let left = (self.namespaces(), self.directories(), self.processes());
            Ok(if left == (0, 0, 0) { Ok(()) } else { Err(format!("{left:?} left")) })
        })
        .unwrap();
        assert!(!self.dir.path().join("report.json").exists());
    }
}

fn with_prefix(dir: &Path, prefix: &str) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)).count()
}

#[test]
fn interrupted() {
    start().ends_cleanly(|demo| demo.guard.id().cast_signed(), Signal::SIGINT);
}

#[test]
fn crashed() {
    start().ends_cleanly(|demo| demo.worker, Signal::SIGKILL);
}

#[test]
fn guard_killed() {
    start().ends_cleanly(|demo| demo.guard.id().cast_signed(), Signal::SIGKILL);
}

//! A parent process that outlives the demo and cleans up after it.
//!
//! The demo cleans up itself when it ends or is interrupted. If it is killed or crashes, this
//! process sweeps; if this process is killed, the demo gets a SIGTERM and cleans up.

use crate::{sweep, wait_until};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::error::Error;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

const ORPHANS_LIMIT: Duration = Duration::from_secs(10);

/// Runs this program again as the worker, with the argument `--guarded`, and waits for its end.
pub(super) fn run(name: &str) -> Result<ExitCode, Box<dyn Error>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    // Orphans of a crashed demo become children of this process, so that not even a zombie is left
    // to init.
    set_child_subreaper(true)?;
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "TERM"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--guarded")
        .spawn()
        .map_err(|e| format!("start setpriv (of util-linux): {e}"))?;
    let status = wait(&mut child, &interrupted)?;
    if let Some(signal) = status.signal() {
        let swept = sweep::unless_busy()?;
        reap_orphans()?;
        let what = format!("{} namespaces, {} processes", swept.namespaces.len(), swept.processes);
        writeln!(std::io::stderr(), "{name}: ended by signal {signal}; removed {what}")?;
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn wait(child: &mut Child, interrupted: &AtomicBool) -> Result<ExitStatus, Box<dyn Error>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupted.swap(false, Ordering::Relaxed) {
            // From a terminal the child has received it already; a second one does no harm.
            kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
        }
        sleep(Duration::from_millis(50));
    }
}

/// Waits for the orphans that the sweep has killed.
fn reap_orphans() -> Result<(), Box<dyn Error>> {
    wait_until("the end of the demo's processes", ORPHANS_LIMIT, || {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => Ok(Err("some still run".into())),
            Ok(_) => Ok(Err("not all are reaped".into())),
            // No child is left.
            Err(_) => Ok(Ok(())),
        }
    })?;
    Ok(())
}

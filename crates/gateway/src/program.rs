//! Programs of the administrator that the daemon runs: scripts of connections, and those for alarms.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testudo_vici::trust::{self, Untrusted};

/// Where they find others.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program with an empty environment, in a process group of its own. It is checked again: the
/// file was root's when the configuration was loaded, and may not be now.
pub(crate) fn command(program: &Path) -> Result<Command, Untrusted> {
    let mut command = Command::new(trust::check(program)?);
    command.arg0(program).env_clear().env("PATH", PATH).current_dir("/").stdin(Stdio::null());
    command.process_group(0);
    Ok(command)
}

/// Sends SIGKILL to a program and to all that it has started.
pub(crate) fn kill(child: &Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // It may be gone already.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Write;

    /// Writes a shell script that root alone may change. Another process does: nothing can be run
    /// while it is open for writing (ETXTBSY), as it would be in children that other tests fork at
    /// this moment.
    pub(crate) fn write_script(path: &Path, body: &str) {
        let mut install = Command::new("install");
        install.args(["--mode", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
        let mut install = install.spawn().unwrap();
        write!(install.stdin.take().unwrap(), "#!/bin/sh\n{body}\n").unwrap();
        assert!(install.wait().unwrap().success());
    }
}

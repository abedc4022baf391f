//! A real BGP speaker: BIRD.

use crate::namespace::write_private;
use crate::process::Process;
use crate::{Namespace, Result};
use nix::sys::signal::Signal;
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(120);

/// A running BIRD.
#[derive(Debug)]
pub struct Bird {
    process: Process,
}

impl Bird {
    /// Starts it with this configuration, and waits until it runs.
    pub fn start(namespace: &Namespace, config: &str) -> Result<Self> {
        let dir = namespace.lab().subdir(&format!("{}-bird", namespace.role()))?;
        let file = dir.join("bird.conf");
        write_private(&file, config)?;
        let cmd = namespace.cmd("bird").arg("-f").arg("-c").arg(&file);
        let cmd = cmd.arg("-s").arg(dir.join("bird.ctl")).arg("-P").arg(dir.join("bird.pid"));
        let mut process = namespace.start("bird", cmd)?;
        process.wait_log("<INFO> Started", START_LIMIT)?;
        Ok(Self { process })
    }

    /// SIGSTOP.
    pub fn pause(&mut self) -> Result<()> {
        self.process.signal(Signal::SIGSTOP)
    }

    /// SIGCONT.
    pub fn resume(&mut self) -> Result<()> {
        self.process.signal(Signal::SIGCONT)
    }

    /// What it has logged.
    pub fn log(&self) -> Result<String> {
        self.process.log()
    }
}

//! A virtual machine that migrates between two hosts. It has no network: its memory and its
//! counter are all that a migration has to keep.

use super::image::Image;
use super::store::Store;
use crate::process::Process;
use crate::{Error, Namespace, Result, wait_until};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A host under eightfold load boots it in a minute.
const BOOT_LIMIT: Duration = Duration::from_secs(600);
const START_LIMIT: Duration = Duration::from_secs(60);
/// Memory of a guest, in MiB.
const MEMORY: u32 = 256;
/// Memory that it leaves to its kernel and its files.
const SYSTEM: u32 = 192;

/// A virtual machine at one host.
#[derive(Debug)]
pub struct Migrant {
    process: Process,
    /// What it has printed at this host.
    serial: PathBuf,
    monitor: PathBuf,
}

impl Migrant {
    /// Boots it, with a secret of letters and digits in its memory, and waits until it counts.
    pub fn boot(namespace: &Namespace, name: &str, secret: &str) -> Result<Self> {
        Self::boot_with(namespace, name, secret, MEMORY)
    }

    /// The same, with so many MiB of memory.
    pub fn boot_with(namespace: &Namespace, name: &str, secret: &str, memory: u32) -> Result<Self> {
        let mut migrant = Self::start(namespace, name, secret, memory, &[])?;
        let serial = migrant.serial.clone();
        migrant.process.wait_ready(BOOT_LIMIT, || {
            let said = read(&serial)?;
            Ok(if counts(&said).is_empty() { Err(said) } else { Ok(()) })
        })?;
        Ok(migrant)
    }

    /// Waits for one that boots elsewhere with the same name and secret.
    pub fn expect(namespace: &Namespace, name: &str, secret: &str) -> Result<Self> {
        Self::expect_with(namespace, name, secret, MEMORY)
    }

    /// The same, with so many MiB of memory.
    pub fn expect_with(namespace: &Namespace, name: &str, secret: &str, memory: u32) -> Result<Self> {
        let mut migrant = Self::start(namespace, name, secret, memory, &["-incoming", "defer"])?;
        let monitor = migrant.monitor.clone();
        migrant.process.wait_ready(START_LIMIT, || {
            Ok(if monitor.exists() { Ok(()) } else { Err("no monitor".into()) })
        })?;
        Ok(migrant)
    }

    fn start(namespace: &Namespace, name: &str, secret: &str, memory: u32, more: &[&str]) -> Result<Self> {
        let image = Image::get(&Store::lock()?, namespace.lab())?;
        let dir = namespace.lab().subdir(&format!("{}-migrant-{name}", namespace.role()))?;
        let (serial, monitor) = (dir.join("serial"), dir.join("qmp"));
        let machine = "-accel tcg,tb-size=64 -machine q35 -cpu qemu64 -smp 1 -no-reboot -nodefaults \
                       -no-user-config -display none -m";
        let fill = memory.saturating_sub(SYSTEM);
        let append = format!(
            "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check tsc=nowatchdog rdinit=/usr/bin/count SECRET={secret} FILL={fill}"
        );
        let cmd = namespace.cmd("qemu-system-x86_64").args(machine.split_ascii_whitespace());
        let cmd = cmd.arg(memory.to_string());
        let cmd = cmd.args(["-name", name, "-append", &append]).args(more);
        let cmd = cmd.arg("-serial").arg(format!("file:{}", serial.display()));
        let cmd = cmd.arg("-qmp").arg(format!("unix:{},server=on,wait=off", monitor.display()));
        let cmd = cmd.arg("-kernel").arg(image.kernel()).arg("-initrd").arg(image.initrd());
        Ok(Self { process: namespace.start("migrant", cmd)?, serial, monitor })
    }

    /// Its monitor's socket.
    pub fn monitor(&self) -> &Path {
        &self.monitor
    }

    /// The numbers that it has printed at this host.
    pub fn counts(&self) -> Result<Vec<u64>> {
        Ok(counts(&read(&self.serial)?))
    }

    /// Waits until it prints more numbers at this host, and returns the first of them.
    pub fn await_counts(&self, limit: Duration) -> Result<u64> {
        let before = self.counts()?.len();
        wait_until("a counter that goes on", limit, || {
            let counts = self.counts()?;
            Ok(counts.get(before).copied().ok_or_else(|| format!("{:?}", counts.last())))
        })
    }

    /// The emulator's.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The emulator.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn read(serial: &Path) -> Result<String> {
    match fs::read(serial) {
        Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        // The emulator is about to create it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Error::io(format!("read {}", serial.display()))(error)),
    }
}

/// The last line may be incomplete.
fn counts(said: &str) -> Vec<u64> {
    let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().filter_map(|line| line.trim().strip_prefix("count ")?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_of_the_counter_are_read() {
        assert_eq!(counts("[    0.0] Linux\r\ncount 1\r\ncount 2\r\ncount 1"), [1, 2]);
        assert_eq!(counts("count 1"), Vec::<u64>::new());
    }
}

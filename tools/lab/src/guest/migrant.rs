//! A virtual machine that migrates between two hosts. It has no network: its memory and its
//! counter are all that a migration has to keep.

use super::image::Image;
use super::machine::{BOOT_LIMIT, RESTORE_LIMIT};
use super::qmp::{self, Monitor, STATE};
use super::state::{Savable, State};
use super::store::Store;
use crate::command::Cmd;
use crate::process::Process;
use crate::{Error, Namespace, Result, wait_until};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(60);
/// Memory of a guest, in MiB.
const MEMORY: u32 = 256;
/// Memory that it leaves to its kernel and its files.
const SYSTEM: u32 = 192;
/// QEMU's model of its processor.
pub(super) const CPU: &str = "qemu64";

/// The arguments of its kernel, for a machine with so many MiB of memory.
pub(super) fn kernel_arguments(secret: &str, memory: u32) -> String {
    let fill = memory.saturating_sub(SYSTEM);
    format!(
        "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check tsc=nowatchdog rdinit=/usr/bin/count SECRET={secret} FILL={fill}"
    )
}

/// A virtual machine at one host.
#[derive(Debug)]
pub struct Migrant {
    process: Process,
    /// What it has printed at this host.
    serial: PathBuf,
    monitor: PathBuf,
}

impl Migrant {
    /// Starts it, with a secret of letters and digits in its memory, and waits until it counts. It
    /// boots once on a machine; its state is saved, and restored from then on.
    pub fn boot(namespace: &Namespace, name: &str, secret: &str) -> Result<Self> {
        Self::boot_with(namespace, name, secret, MEMORY)
    }

    /// The same, with so many MiB of memory.
    pub fn boot_with(namespace: &Namespace, name: &str, secret: &str, memory: u32) -> Result<Self> {
        let store = Store::lock()?;
        let model = Model::new(&store, namespace, name, secret, memory)?;
        let state = State::get(&store, &model)?;
        // Another lab may prepare its own while this one starts.
        drop(store);
        Ok(Self { process: state.restore(&model)?, serial: model.serial(), monitor: model.monitor() })
    }

    /// Waits for one that boots elsewhere with the same name and secret.
    pub fn expect(namespace: &Namespace, name: &str, secret: &str) -> Result<Self> {
        Self::expect_with(namespace, name, secret, MEMORY)
    }

    /// The same, with so many MiB of memory.
    pub fn expect_with(namespace: &Namespace, name: &str, secret: &str, memory: u32) -> Result<Self> {
        let model = Model::new(&Store::lock()?, namespace, name, secret, memory)?;
        let (serial, monitor) = (model.serial(), model.monitor());
        let mut process =
            namespace.start("migrant", model.cmd(&serial, &monitor).args(["-incoming", "defer"]))?;
        await_monitor(&mut process, &monitor)?;
        Ok(Self { process, serial, monitor })
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

/// The emulated machine, at one host.
struct Model<'a> {
    namespace: &'a Namespace,
    image: Image,
    /// For its files.
    dir: PathBuf,
    name: &'a str,
    secret: &'a str,
    /// In MiB.
    memory: u32,
}

impl<'a> Model<'a> {
    fn new(
        store: &Store,
        namespace: &'a Namespace,
        name: &'a str,
        secret: &'a str,
        memory: u32,
    ) -> Result<Self> {
        let image = Image::get(store, namespace.lab())?;
        let dir = namespace.lab().subdir(&format!("{}-migrant-{name}", namespace.role()))?;
        Ok(Self { namespace, image, dir, name, secret, memory })
    }

    fn serial(&self) -> PathBuf {
        self.dir.join("serial")
    }

    fn monitor(&self) -> PathBuf {
        self.dir.join("qmp")
    }

    fn cmd(&self, serial: &Path, monitor: &Path) -> Cmd {
        let cmd = self.namespace.cmd("qemu-system-x86_64").args(self.hardware()).args(["-name", self.name]);
        let cmd = cmd.arg("-serial").arg(format!("file:{}", serial.display()));
        let cmd = cmd.arg("-qmp").arg(format!("unix:{},server=on,wait=off", monitor.display()));
        cmd.arg("-kernel").arg(self.image.kernel()).arg("-initrd").arg(self.image.initrd())
    }
}

impl Savable for Model<'_> {
    fn image(&self) -> &Image {
        &self.image
    }

    fn prefix(&self) -> String {
        format!("state-migrant-{}-", self.memory)
    }

    fn hardware(&self) -> Vec<String> {
        let machine = "-accel tcg,tb-size=64 -machine q35 -smp 1 -no-reboot -nodefaults -no-user-config \
                       -display none";
        let words = machine.split_ascii_whitespace().map(str::to_owned);
        let append = kernel_arguments(self.secret, self.memory);
        let more = ["-cpu", CPU, "-m", &self.memory.to_string(), "-append", &append].map(str::to_owned);
        words.chain(more).collect()
    }

    fn save(&self, path: &Path) -> Result<()> {
        let (serial, monitor) = (self.dir.join("serial-of-boot"), self.dir.join("qmp-of-boot"));
        let mut process =
            self.namespace.start("migrant-boot", self.cmd(&serial, &monitor).env(STATE, path))?;
        await_count(&mut process, &serial, BOOT_LIMIT)?;
        let mut monitor = Monitor::connect(&monitor)?;
        // What an emulated processor writes meanwhile, QEMU before 9.0 may lose.
        monitor.stop()?;
        qmp::save(process, monitor)
    }

    fn restore(&self, path: &Path) -> Result<Process> {
        let (serial, monitor) = (self.serial(), self.monitor());
        let cmd = self.cmd(&serial, &monitor).args(["-incoming", &qmp::saved()]).env(STATE, path);
        let mut process = self.namespace.start("migrant", cmd)?;
        await_monitor(&mut process, &monitor)?;
        Monitor::connect(&monitor)?.go_on()?;
        await_count(&mut process, &serial, RESTORE_LIMIT)?;
        Ok(process)
    }
}

/// Waits until the emulator's monitor answers. Its socket exists before anybody listens there.
fn await_monitor(process: &mut Process, monitor: &Path) -> Result<()> {
    process.wait_ready(START_LIMIT, || {
        Ok(Monitor::connect(monitor).map(drop).map_err(|error| error.to_string()))
    })
}

/// Waits for the first number that it prints.
fn await_count(process: &mut Process, serial: &Path, limit: Duration) -> Result<()> {
    process.wait_ready(limit, || {
        let said = read(serial)?;
        Ok(if counts(&said).is_empty() { Err(said) } else { Ok(()) })
    })
}

pub(super) fn read(serial: &Path) -> Result<String> {
    match fs::read(serial) {
        Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        // The emulator is about to create it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Error::io(format!("read {}", serial.display()))(error)),
    }
}

/// The last line may be incomplete.
pub(super) fn counts(said: &str) -> Vec<u64> {
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

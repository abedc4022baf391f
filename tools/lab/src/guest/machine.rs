//! The emulated machine, for booting and for restoring a saved state.

use super::image::Image;
use super::qmp::{self, Monitor, STATE};
use super::state::Savable;
use super::{CONNECT_LIMIT, CONTROL, CONTROL_MAC, shell};
use crate::command::Cmd;
use crate::process::Process;
use crate::{Namespace, Result};
use std::path::Path;
use std::time::Duration;

/// A host under eightfold load boots it in a minute.
pub(super) const BOOT_LIMIT: Duration = Duration::from_secs(600);
/// The same host takes two to six seconds.
pub(super) const RESTORE_LIMIT: Duration = Duration::from_secs(60);
const FIRST_CONNECT_LIMIT: Duration = Duration::from_millis(50);

/// A machine that has not been started.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) image: Image,
}

/// A network card of the guest.
struct Card {
    /// Its interface in the namespace; the emulator creates it if it does not exist.
    tap: &'static str,
    mac: &'static str,
    /// `on`: the guest may leave checksums and TCP segmentation to the receiver of its packets.
    vnet_hdr: &'static str,
}

/// In the order `eth0`, `eth1`, ... A saved state contains MAC addresses; each lab sets its own.
const CARDS: [Card; 4] = [
    Card { tap: "tap-eth0", mac: "52:54:00:00:00:02", vnet_hdr: "off" },
    Card { tap: "tap-eth1", mac: "52:54:00:00:00:03", vnet_hdr: "off" },
    Card { tap: CONTROL, mac: CONTROL_MAC, vnet_hdr: "off" },
    Card { tap: "tap-eth3", mac: "52:54:00:00:00:05", vnet_hdr: "on" },
];

impl Savable for Machine<'_> {
    fn image(&self) -> &Image {
        &self.image
    }

    fn prefix(&self) -> String {
        "state-gateway-".into()
    }

    fn hardware(&self) -> Vec<String> {
        let mut words: Vec<String> = [
            "-accel tcg -machine q35 -cpu max -m 256 -no-reboot -nodefaults -no-user-config -display none",
            "-serial stdio",
        ]
        .iter()
        .flat_map(|words| words.split(' ').map(str::to_owned))
        .collect();
        words.extend(
            ["-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"].map(str::to_owned),
        );
        for Card { tap, mac, vnet_hdr } in CARDS {
            let backend =
                format!("tap,id={tap},ifname={tap},script=no,downscript=no,vhost=off,vnet_hdr={vnet_hdr}");
            let device = format!("virtio-net-pci,netdev={tap},mac={mac},romfile=");
            words.extend(["-netdev".to_owned(), backend, "-device".to_owned(), device]);
        }
        words
    }

    fn save(&self, path: &Path) -> Result<()> {
        let socket = self.namespace.lab().unused("monitor", ".qmp");
        let monitor = format!("unix:{},server=on,wait=off", socket.display());
        let process = self.start(self.cmd().args(["-qmp", &monitor]).env(STATE, path), BOOT_LIMIT)?;
        qmp::save(process, Monitor::connect(&socket)?)
    }

    fn restore(&self, path: &Path) -> Result<Process> {
        self.start(self.cmd().args(["-incoming", &qmp::saved()]).env(STATE, path), RESTORE_LIMIT)
    }
}

impl Machine<'_> {
    /// Boots it.
    pub(super) fn boot(&self) -> Result<Process> {
        self.start(self.cmd(), BOOT_LIMIT)
    }

    fn cmd(&self) -> Cmd {
        let cmd = self.namespace.cmd("qemu-system-x86_64").args(self.hardware());
        cmd.arg("-kernel").arg(self.image.kernel()).arg("-initrd").arg(self.image.initrd())
    }

    /// Starts the emulator and waits for the guest's shell.
    fn start(&self, cmd: Cmd, limit: Duration) -> Result<Process> {
        let mut process = self.namespace.start("guest", cmd)?;
        // A packet to a machine that does not run yet is lost, so the first attempts are short.
        let mut patience = FIRST_CONNECT_LIMIT;
        process.wait_ready(limit, || {
            let answer = shell::answers(self.namespace, patience);
            patience = (patience * 2).min(CONNECT_LIMIT);
            answer
        })?;
        Ok(process)
    }
}

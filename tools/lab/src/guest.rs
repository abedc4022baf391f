//! A gateway with its own Linux kernel: Debian's kernel and strongSwan in QEMU, ESP by XFRM.
//!
//! It replaces a namespace, which gives it its addresses and routes and becomes a pair of switches
//! in front of it. So it can do what `kernel-libipsec` cannot: ESP without UDP, and extended
//! sequence numbers. The processor is emulated (no /dev/kvm needed): it boots in seconds and
//! carries tens of megabits.
//!
//! A third link, which only the lab uses, carries VICI and a shell. A fourth is that of a
//! [`VirtualMachine`], a host of the lab: its virtio-net leaves checksums and TCP segmentation to
//! the receiver of its packets. The links of a gateway do not, so that packets are complete as on a
//! wire.
//!
//! A guest boots once on a machine. Its state is saved when its kernel is up and has loaded and
//! tested all ciphers, before charon starts. Every guest starts from this state, and takes one and
//! a half seconds of a processor until charon answers. The differences between guests are set
//! afterwards, in [`Guest::start`]: MAC and IP addresses, MTU, routes, the clock, randomness.
//! charon starts last, so that it sees nothing that guests have in common; it takes a fifth of a
//! second. The ciphers are part of the state because they take long: for the first SA of a suite
//! the kernel loads modules and tests them, which took up to ten seconds in the emulator while an
//! exchange waited.
//!
//! A [`Migrant`] is no gateway and no host: it counts, and moves between two emulators, which
//! [`Libvirt`] may start.
//!
//! Guests must not draw the same random numbers. The kernel's generator is reseeded with octets
//! from the lab before charon starts (the guest's `wake`). Salts of IVs come from the kernel's
//! second generator, which is not reseeded; that does no harm, because keys differ.

mod image;
mod libvirt;
mod links;
mod machine;
mod migrant;
mod qmp;
mod shell;
mod state;
mod store;
mod vm;

pub use libvirt::Libvirt;
pub use migrant::Migrant;
pub use vm::VirtualMachine;

use crate::cpu::CpuTime;
use crate::process::Process;
use crate::swanctl::Swanctl;
use crate::topology::{INNER, OUTER};
use crate::{Error, Namespace, Result};
use aws_lc_rs::rand;
use image::Image;
use links::Link;
use machine::Machine;
use state::State;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::Store;

/// The emulator shares its processors with other programs.
const START_LIMIT: Duration = Duration::from_secs(90);
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// As in the guest's `strongswan.conf`.
const VICI: SocketAddrV4 = SocketAddrV4::new(ADDRESS, 4502);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 2);
const OUR_ADDRESS: &str = "169.254.1.1/30";
/// The lab's own link to the guest.
const CONTROL: &str = "tap-control";
const CONTROL_MAC: &str = "52:54:00:00:00:01";
const OUR_MAC: &str = "52:54:00:00:00:04";

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    namespace: Namespace,
    process: Process,
    swanctl: Swanctl,
}

impl Guest {
    /// Starts it in place of a gateway's namespace, and waits until its charon answers. The first
    /// guest on a machine builds the image, for which apt needs the network, and boots.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        let dir = namespace.lab().subdir(&format!("{}-guest", namespace.role()))?;
        let links = [Link::take(namespace, OUTER, "eth0")?, Link::take(namespace, INNER, "eth1")?];
        control_link(namespace)?;
        let process = power_on(namespace)?;
        let swanctl = Swanctl::at(namespace, &dir, &format!("tcp://{VICI}"))?;
        let mut guest = Self { namespace: namespace.clone(), process, swanctl };
        guest.run(&format!("{}{}{}", links[0].configuration(), links[1].configuration(), wake()?))?;
        guest.await_answer()?;
        Ok(guest)
    }

    /// Runs a script in the guest's shell and returns its output. Fails unless it succeeds.
    pub fn run(&self, script: &str) -> Result<String> {
        shell::run(&self.namespace, script)
    }

    /// A counter of the guest's XFRM by its name in `/proc/net/xfrm_stat`: `XfrmInStateSeqError`,
    /// ...
    pub fn xfrm_counter(&self, name: &str) -> Result<u64> {
        let shown = self.run("cat /proc/net/xfrm_stat")?;
        let mut rows = shown.lines().filter_map(|line| line.split_once(char::is_whitespace));
        rows.find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.trim().parse().ok())
            .ok_or_else(|| Error::unexpected("/proc/net/xfrm_stat", name, shown.as_str()))
    }

    /// Packets that its kernel has refused because their sequence numbers are behind the window of
    /// their SA, or came before.
    pub fn replays(&self) -> Result<u64> {
        self.xfrm_counter("XfrmInStateSeqError")
    }

    /// Its console, which includes charon's log.
    pub fn log(&self) -> Result<String> {
        self.process.log()
    }

    /// A swanctl for its charon.
    pub fn swanctl(&self) -> &Swanctl {
        &self.swanctl
    }

    /// The emulator's process; its log is the guest's console.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// CPU time that the emulator has used.
    pub fn cpu(&self) -> Result<CpuTime> {
        self.process.cpu()
    }

    fn await_answer(&mut self) -> Result<()> {
        let namespace = &self.namespace;
        let swanctl = &self.swanctl;
        self.process.wait_ready(START_LIMIT, || {
            // A connection attempt to a host that is still booting is cheaper than a swanctl that
            // hangs in one.
            let connected = namespace.enter(|| TcpStream::connect_timeout(&VICI.into(), CONNECT_LIMIT))?;
            if let Err(error) = connected {
                return Ok(Err(format!("charon's VICI: {error}")));
            }
            swanctl.is_served()
        })
    }
}

/// Restores the saved state, or boots if there is none or it is useless.
fn power_on(namespace: &Namespace) -> Result<Process> {
    let (machine, state) = {
        let store = Store::lock()?;
        let machine = Machine { namespace, image: Image::get(&store, namespace.lab())? };
        let state = State::get(&store, &machine);
        (machine, state)
    };
    match state.and_then(|state| state.restore(&machine)) {
        Ok(process) => Ok(process),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => {
            let said =
                writeln!(io::stderr(), "guest: its saved state is of no use, it boots instead: {error}");
            said.map_err(Error::io("write to standard error"))?;
            machine.boot()
        }
    }
}

/// The command that makes a guest differ from others, and starts charon.
fn wake() -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_err(|e| Error::unexpected("the clock", "a time after 1970", e.to_string()))?.as_secs();
    let mut seed = [0; 32];
    rand::fill(&mut seed)
        .map_err(|_| Error::io("draw a guest's seed")(io::Error::other("no random octets")))?;
    let seed: String = seed.iter().map(|octet| format!("{octet:02x}")).collect();
    Ok(format!("wake {now} {seed}\n"))
}

fn control_link(namespace: &Namespace) -> Result<()> {
    links::tap(namespace, CONTROL)?;
    // A saved guest knows the MAC address of the lab in which it booted.
    namespace.ip(&format!("link set {CONTROL} address {OUR_MAC}"))?;
    namespace.address(CONTROL, OUR_ADDRESS)?;
    namespace.up(CONTROL, 1500)?;
    // A neighbour entry avoids an unanswered request, which would be repeated only after a second.
    let neighbour = format!("neighbour add {ADDRESS} lladdr {CONTROL_MAC} dev {CONTROL} nud permanent");
    namespace.ip(&neighbour).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Options, Side};
    use crate::{Lab, Topology};

    fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    /// The first random number of a guest and its clock, which shows a time between its start and
    /// now.
    fn wakes() -> String {
        let begun = now();
        let lab = Lab::shared("guest").unwrap();
        let t = Topology::build(&lab, &Options::default()).unwrap();
        let guest = Guest::start(t.gateway(Side::Two)).unwrap();
        let said = guest.run("cat /proc/sys/kernel/random/uuid; date +%s").unwrap();
        let ended = now();
        let (drawn, clock) = said.trim().split_once('\n').unwrap();
        let clock: u64 = clock.parse().unwrap();
        assert!((begun..=ended).contains(&clock), "{clock}, started at {begun}, asked before {ended}");
        drawn.to_owned()
    }

    #[test]
    fn guests_share_no_random_numbers_and_know_the_time() {
        assert_ne!(wakes(), wakes());
    }
}

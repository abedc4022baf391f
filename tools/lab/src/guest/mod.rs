//! A gateway with a Linux kernel of its own: Debian's kernel and strongSwan in QEMU, ESP by XFRM.
//!
//! It stands where a namespace stood: that gives it its addresses and routes, and becomes a pair of
//! switches before it. So it can do what `kernel-libipsec` cannot: ESP without UDP, extended
//! sequence numbers. The processor is emulated (no /dev/kvm needed): it boots in seconds and
//! carries tens of megabits.
//!
//! A third link, which only the lab knows, carries VICI and a shell. A fourth is that of a
//! [`VirtualMachine`], a host of the lab: its virtio-net leaves checksums and the cutting of TCP to
//! whoever gets its packets. That of a gateway does not, so that they are as on a wire.
//!
//! A guest boots once on a machine. Its state is saved where its kernel is up and has loaded and
//! tested all ciphers, before charon starts: every guest goes on from there, and needs a second and
//! a half of a processor until charon answers. What differs between guests comes afterwards, in
//! [`Guest::start`]: MAC and IP addresses, MTU, routes, the clock, randomness. charon starts last,
//! so that it has seen none of what guests have in common, and it takes a fifth of a second.
//! Ciphers are in because they take long: for the first SA of a suite the kernel loads modules and
//! tests them, which emulated took up to ten seconds while an exchange waited.
//!
//! Guests must not draw the same numbers. The kernel's generator is reseeded with octets from the
//! lab before charon starts (the guest's `wake`). What the kernel draws for salts of IVs from its
//! second generator stays: keys differ.

mod image;
mod links;
mod machine;
mod qmp;
mod shell;
mod state;
mod store;
mod vm;

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

/// The emulator shares its processors with others.
const START_LIMIT: Duration = Duration::from_secs(90);
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// As `strongswan.conf` of the guest has it.
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
    /// one on a machine makes the image, which needs the network that apt needs, and boots.
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

    /// Runs a script in the guest's shell, demands success, and returns what it wrote.
    pub fn run(&self, script: &str) -> Result<String> {
        shell::run(&self.namespace, script)
    }

    /// A counter of the guest's XFRM, as `/proc/net/xfrm_stat` names it: `XfrmInStateSeqError`, ...
    pub fn xfrm_counter(&self, name: &str) -> Result<u64> {
        let shown = self.run("cat /proc/net/xfrm_stat")?;
        let mut rows = shown.lines().filter_map(|line| line.split_once(char::is_whitespace));
        rows.find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.trim().parse().ok())
            .ok_or_else(|| Error::unexpected("/proc/net/xfrm_stat", name, shown.as_str()))
    }

    /// swanctl against its charon.
    pub fn swanctl(&self) -> &Swanctl {
        &self.swanctl
    }

    /// The emulator's process; its log is the guest's console, with what charon logs.
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
            let answer = swanctl.cmd(["--version", "--daemon"]).run_any()?;
            Ok(if answer.status.success() { Ok(()) } else { Err(answer.stderr) })
        })
    }
}

/// Goes on from the saved state, or boots if there is none to go on from.
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
    // A saved guest knows the MAC address of the lab that it booted in.
    namespace.ip(&format!("link set {CONTROL} address {OUR_MAC}"))?;
    namespace.address(CONTROL, OUR_ADDRESS)?;
    namespace.up(CONTROL, 1500)?;
    // Who asks a machine that does not run yet for its MAC address asks again only a second later.
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

    /// What a guest draws first. Its clock shows a time between its start and now.
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

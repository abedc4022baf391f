//! A gateway with a Linux kernel of its own: Debian's kernel and strongSwan in QEMU, ESP by XFRM.
//!
//! It stands where a namespace stood: that gives it its addresses and routes, and becomes a pair of switches before
//! it. So it can do what `kernel-libipsec` cannot: ESP without UDP, extended sequence numbers. The processor is
//! emulated (no /dev/kvm needed): it boots in seconds and carries tens of megabits.
//!
//! A third link, which only the lab knows, carries VICI and a shell.

mod image;
mod links;

use crate::cpu::CpuTime;
use crate::process::Process;
use crate::swanctl::Swanctl;
use crate::topology::{INNER, OUTER};
use crate::{Error, Namespace, Result};
use links::Link;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::time::Duration;

/// The emulator shares its processors with others.
const START_LIMIT: Duration = Duration::from_secs(90);
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const COMMAND_LIMIT: Duration = Duration::from_secs(20);

/// What `init` of the guest listens on.
const SHELL: SocketAddrV4 = SocketAddrV4::new(ADDRESS, 7);
/// As `strongswan.conf` of the guest has it.
const VICI: SocketAddrV4 = SocketAddrV4::new(ADDRESS, 4502);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 2);
const OUR_ADDRESS: &str = "169.254.1.1/30";
/// The lab's own link to the guest.
const CONTROL: &str = "tap-control";

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    namespace: Namespace,
    process: Process,
    swanctl: Swanctl,
}

impl Guest {
    /// Boots it in place of a gateway's namespace, and waits until its charon answers. The first one on a machine
    /// makes the image, which needs the network that apt needs.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        let image = image::get(namespace.lab())?;
        let dir = namespace.lab().subdir(&format!("{}-guest", namespace.role()))?;
        let links = [Link::take(namespace, OUTER, "eth0")?, Link::take(namespace, INNER, "eth1")?];
        control_link(namespace)?;
        let mut cmd = namespace.cmd("qemu-system-x86_64");
        cmd = cmd.args(["-accel", "tcg", "-machine", "q35", "-cpu", "max", "-m", "256", "-no-reboot"]);
        cmd = cmd.args(["-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio"]);
        cmd = cmd.arg("-kernel").arg(image.kernel()).arg("-initrd").arg(image.initrd());
        cmd = cmd.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"]);
        for (tap, mac) in links.iter().map(Link::device).chain([(CONTROL, "52:54:00:00:00:01")]) {
            let backend = format!("tap,id={tap},ifname={tap},script=no,downscript=no,vhost=off,vnet_hdr=off");
            let device = format!("virtio-net-pci,netdev={tap},mac={mac},romfile=");
            cmd = cmd.args(["-netdev", &backend, "-device", &device]);
        }
        let process = namespace.start("guest", cmd)?;
        let swanctl = Swanctl::at(namespace, &dir, &format!("tcp://{VICI}"))?;
        let mut guest = Self { namespace: namespace.clone(), process, swanctl };
        guest.await_answer()?;
        for link in &links {
            guest.run(&link.configuration())?;
        }
        Ok(guest)
    }

    /// Runs a script in the guest's shell, demands success, and returns what it wrote.
    pub fn run(&self, script: &str) -> Result<String> {
        let whole = format!("(\nset -e\n{script}\n) </dev/null 2>&1; printf '\\n%s' $?; exit\n");
        let talk = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&SHELL.into(), CONNECT_LIMIT)?;
            stream.set_read_timeout(Some(COMMAND_LIMIT))?;
            stream.write_all(whole.as_bytes())?;
            let mut output = String::new();
            stream.read_to_string(&mut output)?;
            stream.shutdown(Shutdown::Both)?;
            Ok(output)
        };
        let answer = self.namespace.enter(talk)?;
        let output = answer.map_err(Error::io("talk to the guest's shell"))?;
        match output.rsplit_once('\n') {
            Some((said, "0")) => Ok(said.to_owned()),
            Some((said, status)) => Err(Error::Command {
                command: format!("[guest] {script}"),
                status: format!("exit code {status}"),
                output: said.to_owned(),
            }),
            None => Err(Error::unexpected("the guest's shell", "an exit code", output)),
        }
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
            // A connection attempt to a host that is still booting is cheaper than a swanctl that hangs in one.
            let connected = namespace.enter(|| TcpStream::connect_timeout(&VICI.into(), CONNECT_LIMIT))?;
            if let Err(error) = connected {
                return Ok(Err(format!("charon's VICI: {error}")));
            }
            let answer = swanctl.cmd(["--version", "--daemon"]).run_any()?;
            Ok(if answer.status.success() { Ok(()) } else { Err(answer.stderr) })
        })
    }
}

fn control_link(namespace: &Namespace) -> Result<()> {
    links::tap(namespace, CONTROL)?;
    namespace.address(CONTROL, OUR_ADDRESS)?;
    namespace.up(CONTROL, 1500)
}

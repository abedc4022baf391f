//! Debian's wireguard-go between two machines of the lab.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use testudo_lab::command::Cmd;
use testudo_lab::process::Process;
use testudo_lab::topology::{Family, Side};
use testudo_lab::{Lab, Namespace, Result};

const LIMIT: Duration = Duration::from_secs(60);
const SIDES: [Side; 2] = [Side::One, Side::Two];
/// Octets of the MTU that it uses, according to its authors.
const TAKEN: u16 = 80;

/// The address of a machine in the tunnel.
pub(super) fn inside(side: Side) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, side.index() as u8 + 1).into()
}

/// Starts it on both machines, whose link has this MTU. It carries traffic between the machines and
/// between the networks behind them.
pub(super) fn start(lab: &Lab, machines: &[Namespace; 2], mtu: u16) -> Result<Vec<Process>> {
    let dir = lab.subdir(&format!("wireguard-{mtu}"))?;
    let keys =
        |side: Side| [dir.join(format!("key{}", side.index())), dir.join(format!("pub{}", side.index()))];
    for side in SIDES {
        let [key, public] = keys(side);
        let script = "umask 077 && wg genkey > \"$0\" && wg pubkey < \"$0\" > \"$1\"";
        Cmd::new("sh").args(["-c", script]).arg(key).arg(public).run()?;
    }
    let mut processes = Vec::new();
    for (side, machine) in SIDES.into_iter().zip(machines) {
        // Its control socket has the interface's name, in one directory for all.
        let name = &format!("wg-{}", machine.role());
        let program = machine.cmd("wireguard-go").args(["-f", name]).env("WG_PROCESS_FOREGROUND", "1");
        let mut process = machine.start("wireguard-go", program)?;
        process.wait_ready(LIMIT, || {
            let shown = machine.cmd("wg").args(["show", name]).run_any()?;
            Ok(if shown.status.success() { Ok(()) } else { Err(shown.stderr) })
        })?;
        let [key, _] = keys(side);
        let [_, public] = keys(side.other());
        let script = "wg set \"$0\" private-key \"$1\" listen-port 51820 peer \"$(cat \"$2\")\" \
                      allowed-ips \"$3\" endpoint \"$4\"";
        let peer = side.other();
        let endpoint = format!("{}:51820", peer.outer(Family::V4));
        let allowed = format!("{}/32,{}", inside(peer), peer.network(Family::V4));
        let set = machine.cmd("sh").args(["-c", script, name]).arg(key).arg(public);
        set.arg(allowed).arg(endpoint).run()?;
        machine.address(name, &format!("{}/24", inside(side)))?;
        machine.up(name, mtu - TAKEN)?;
        processes.push(process);
    }
    Ok(processes)
}

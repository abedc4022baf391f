//! The channel between two hosts: what has to run before a migration begins.

use super::way::Way;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use testudo_lab::command::Cmd;
use testudo_lab::process::Process;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{Family, Side};
use testudo_lab::{Error, Lab, Namespace, Result};

/// Where the destination's QEMU listens.
pub(super) const PORT: u16 = 49152;
/// Where ssh listens at the source, for the destination's port.
const FORWARDED: u16 = 49153;
const LIMIT: Duration = Duration::from_secs(60);
const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

/// Processes of both hosts, besides QEMU.
#[derive(Debug)]
pub(super) enum Channel {
    /// QEMU does without.
    Bare,
    /// One at each host.
    Testudo(Vec<Testudo>),
    /// Servers and clients.
    Ssh { servers: Vec<Process>, clients: Vec<Process> },
}

impl Channel {
    pub(super) fn open(way: Way, lab: &Lab, machines: &[Namespace; 2]) -> Result<Self> {
        match way {
            Way::None | Way::Tls => Ok(Self::Bare),
            Way::Esp | Way::AhEsp => testudo(way, machines).map(Self::Testudo),
            Way::Ssh => ssh(lab, machines),
        }
    }

    /// Where the source's QEMU connects to, and where the destination's listens.
    pub(super) fn ends(&self, to: Side) -> [SocketAddr; 2] {
        match self {
            Self::Bare | Self::Testudo(_) => [SocketAddr::new(to.outer(Family::V4), PORT); 2],
            Self::Ssh { .. } => [FORWARDED, PORT].map(|port| SocketAddr::from((LOOPBACK, port))),
        }
    }

    /// The alarms of both hosts since the channel was opened.
    pub(super) fn alarms(&self) -> Result<u64> {
        let Self::Testudo(daemons) = self else { return Ok(0) };
        let last = |daemon: &Testudo| {
            let all = daemon.alarms()?;
            let last = all["last"].as_u64();
            last.ok_or_else(|| Error::unexpected("testudo alarms", "the latest number", all.to_string()))
        };
        daemons.iter().map(last).sum()
    }

    /// The processes that work for a migration at this host.
    pub(super) fn pids(&self, at: Side) -> Vec<u32> {
        let at = at.index();
        match self {
            Self::Bare => Vec::new(),
            Self::Testudo(daemons) => vec![daemons[at].pid()],
            Self::Ssh { servers, clients } => vec![servers[at].pid(), clients[at].pid()],
        }
    }
}

fn testudo(way: Way, machines: &[Namespace; 2]) -> Result<Vec<Testudo>> {
    let start = |side: Side| {
        let daemon = Testudo::start(&machines[side.index()])?;
        let mut connection = Connection::of(side, Family::V4);
        connection.mode = "transport".into();
        (connection.local_ts, connection.remote_ts) = (vec!["dynamic".into()], vec!["dynamic".into()]);
        if way == Way::AhEsp {
            connection.add_ah(&[]);
        }
        daemon.swanctl().load(&connection.to_string())?;
        Ok(daemon)
    };
    let daemons = vec![start(Side::One)?, start(Side::Two)?];
    daemons[0].swanctl().initiate("lab", LIMIT)?;
    if way == Way::AhEsp {
        daemons[0].swanctl().initiate("outer", LIMIT)?;
    }
    Ok(daemons)
}

/// A server at each host, and a client at each for the other one.
fn ssh(lab: &Lab, machines: &[Namespace; 2]) -> Result<Channel> {
    let key = lab.unused("ssh-key", "");
    Cmd::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).run()?;
    let public = key.with_extension("pub");
    // Compiled into sshd, which does not create it.
    let empty = Path::new("/run/sshd");
    fs::create_dir_all(empty).map_err(Error::io(format!("create {}", empty.display())))?;
    let servers = vec![
        server(&machines[0], Side::One, &key, &public)?,
        server(&machines[1], Side::Two, &key, &public)?,
    ];
    let clients = vec![client(&machines[0], Side::Two, &key)?, client(&machines[1], Side::One, &key)?];
    Ok(Channel::Ssh { servers, clients })
}

/// Only the lab knows the key, which is the host's and the user's.
fn server(machine: &Namespace, side: Side, key: &Path, public: &Path) -> Result<Process> {
    let address = side.outer(Family::V4);
    let options = [
        format!("ListenAddress={address}"),
        format!("HostKey={}", key.display()),
        format!("AuthorizedKeysFile={}", public.display()),
        "StrictModes=no".into(),
        "UsePAM=no".into(),
        "PermitRootLogin=yes".into(),
        "PidFile=none".into(),
    ];
    // Absolute, because sshd starts itself again for each connection.
    let cmd = machine.cmd("/usr/sbin/sshd").args(["-D", "-e", "-f", "/dev/null"]);
    let cmd = options.iter().fold(cmd, |cmd, option| cmd.arg("-o").arg(option));
    let mut server = machine.start("sshd", cmd)?;
    server.wait_log("Server listening", LIMIT)?;
    Ok(server)
}

fn client(machine: &Namespace, to: Side, key: &Path) -> Result<Process> {
    let cmd = machine.cmd("ssh").args([
        "-N",
        "-F",
        "none",
        "-o",
        "BatchMode=yes",
        "-o",
        "ExitOnForwardFailure=yes",
    ]);
    let cmd = cmd.args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]);
    let cmd = cmd.args(["-c", "aes128-gcm@openssh.com", "-i"]).arg(key);
    let cmd = cmd.arg("-L").arg(format!("{FORWARDED}:127.0.0.1:{PORT}"));
    let mut client = machine.start("ssh", cmd.arg(format!("root@{}", to.outer(Family::V4))))?;
    client.wait_ready(LIMIT, || {
        let listening = machine.run("ss", ["--no-header", "--listening", "--tcp", "--numeric"])?.stdout;
        let is_there = listening.contains(&format!(":{FORWARDED}"));
        Ok(if is_there { Ok(()) } else { Err(listening) })
    })?;
    Ok(client)
}

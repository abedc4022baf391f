//! A witness: corosync-qnetd on a host outside the cluster, and corosync-qdevice on each node,
//! which asks it for its vote.
//!
//! Each keeps its lock and its socket in /run, as corosync does, and has a mount namespace with its
//! own /run. Without TLS, so that nothing is read from /etc/corosync.

use crate::cluster::{Cluster, Net};
use crate::namespace::Offloads;
use crate::process::Process;
use crate::topology::HOST;
use crate::{Error, Namespace, Result};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(120);
/// Its address on the network of the cluster.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 100);

/// All daemons of a witness.
#[derive(Debug)]
pub struct Witness {
    namespace: Namespace,
    dir: PathBuf,
    qnetd: Process,
    devices: Vec<Process>,
}

/// Lines for the quorum section of corosync.conf. `timeout` is corosync's for the device: the
/// witness considers a node dead after 1.2 times that. The minimum is 1250 ms.
pub fn quorum_lines(timeout: Duration) -> String {
    format!(
        "device {{
    model: net
    votes: 1
    timeout: {}
    net {{
      host: {}
      algorithm: ffsplit
      tls: off
    }}
  }}",
        timeout.as_millis(),
        IpAddr::V4(ADDRESS)
    )
}

impl Witness {
    /// Adds the host to the network of the cluster and starts all daemons. Each node's corosync
    /// must be running.
    pub fn start(cluster: &Cluster) -> Result<Self> {
        let lab = cluster.link.lab();
        let namespace = lab.namespace("witness")?;
        cluster.plug(namespace.end(HOST), Net::Cluster, 1500, Offloads::Default)?;
        namespace.address(HOST, &format!("{ADDRESS}/24"))?;
        let dir = own_run(&namespace, "qnetd")?;
        let mut qnetd = launch_qnetd(&namespace, &dir)?;
        qnetd.wait_log("QNetd ready to provide service", START_LIMIT)?;
        let devices = cluster.nodes.iter().map(start_device).collect::<Result<_>>()?;
        Ok(Self { namespace, dir, qnetd, devices })
    }

    /// SIGKILL of corosync-qnetd.
    pub fn kill(&mut self) {
        self.qnetd.kill();
    }

    /// Starts it again after its end.
    pub fn restart(&mut self) -> Result<()> {
        self.qnetd = launch_qnetd(&self.namespace, &self.dir)?;
        self.qnetd.wait_log("QNetd ready to provide service", START_LIMIT)
    }

    /// Starts the device of a node, counted from 1, after the end of its corosync, which has ended
    /// the device too.
    pub fn restart_device(&mut self, node: u8, namespace: &Namespace) -> Result<()> {
        let device = launch_device(namespace, &run_of(namespace, "qdevice"))?;
        self.devices[usize::from(node) - 1] = device;
        Ok(())
    }
}

fn start_device(namespace: &Namespace) -> Result<Process> {
    let dir = own_run(namespace, "qdevice")?;
    launch_device(namespace, &dir)
}

fn run_of(namespace: &Namespace, daemon: &str) -> PathBuf {
    namespace.lab().dir().join(format!("{}-{daemon}", namespace.role()))
}

/// A directory for a daemon's own /run.
fn own_run(namespace: &Namespace, daemon: &str) -> Result<PathBuf> {
    let dir = run_of(namespace, daemon);
    let inside = dir.join(format!("corosync-{daemon}"));
    fs::create_dir_all(&inside).map_err(Error::io(format!("make {}", inside.display())))?;
    Ok(dir)
}

fn launch_qnetd(namespace: &Namespace, dir: &Path) -> Result<Process> {
    launch(namespace, dir, &format!("corosync-qnetd -f -d -4 -s off -l {ADDRESS}"))
}

fn launch_device(namespace: &Namespace, dir: &Path) -> Result<Process> {
    launch(namespace, dir, "corosync-qdevice -f -d")
}

fn launch(namespace: &Namespace, dir: &Path, command: &str) -> Result<Process> {
    let script = format!("mount --bind \"$0\" /run && exec {command}");
    let cmd = namespace.cmd("unshare").args(["-m", "--propagation", "private", "sh", "-c", &script]).arg(dir);
    let name = command.split(' ').next().unwrap_or(command);
    namespace.start(name, cmd)
}

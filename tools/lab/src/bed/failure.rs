//! The failures of a node, and how to repair them.

use super::{Bed, config};
use crate::cluster::{Cut, Net};
use crate::{Error, Result};
use nix::sys::signal::Signal;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

/// A failure of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// testudod is killed.
    Testudod,
    /// corosync is killed.
    Corosync,
    /// testudod is stopped (SIGSTOP).
    Pause,
    /// Its hypervisor reports that the machine was restored to an earlier state.
    SetBack,
    /// It is cut off from a network.
    Link(Net, Cut),
    /// Its interface in a network is deleted; the repair creates it with another number.
    Gone(Net),
    /// It is cut off from all networks.
    AllLinks(Cut),
}

impl Bed {
    /// Makes the failure happen.
    pub fn strike(&mut self, node: u8, failure: Failure) -> Result<()> {
        match failure {
            Failure::Testudod => {
                self.node(node).process().kill();
                Ok(())
            }
            Failure::Corosync => self.corosync(node).kill(),
            Failure::Pause => self.node(node).process().signal(Signal::SIGSTOP),
            Failure::SetBack => self.next_generation(node),
            Failure::Link(net, how) => self.cluster.cut(node, net, how),
            Failure::Gone(net) => self.cluster.unplug(node, net),
            Failure::AllLinks(how) => self.cluster.isolate(node, how),
        }
    }

    /// Repairs it. Killed daemons are started without state.
    pub fn mend(&mut self, node: u8, failure: Failure) -> Result<()> {
        match failure {
            Failure::Testudod => self.restart_node(node),
            Failure::Corosync => self.restart_corosync(node),
            Failure::Pause => self.node(node).process().signal(Signal::SIGCONT),
            Failure::SetBack => Ok(()),
            Failure::Link(net, _) => self.cluster.join(node, net),
            Failure::Gone(net) => self.cluster.connect_node_to(node, net),
            Failure::AllLinks(_) => Net::ALL.iter().try_for_each(|net| self.cluster.join(node, *net)),
        }
    }

    /// Separates these nodes from all others, on all networks; the hosts outside and inside stay
    /// with the others. Ended by [`crate::cluster::Cluster::heal`].
    pub fn split(&self, apart: &[u8]) -> Result<()> {
        self.cluster.split(apart)
    }

    /// Written in place, as a device changes its memory.
    fn next_generation(&self, node: u8) -> Result<()> {
        let lab = self.cluster.nodes[usize::from(node) - 1].lab();
        let path = lab.dir().join(format!("node{node}-state")).join(config::GENERATION);
        let failed = || Error::io(format!("write {}", path.display()));
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed())?;
        let mut word = [0; 8];
        file.read_exact_at(&mut word, 0).map_err(failed())?;
        let next = u64::from_ne_bytes(word) + 1;
        file.write_all_at(&next.to_ne_bytes(), 0).map_err(failed())
    }

    fn restart_corosync(&mut self, node: u8) -> Result<()> {
        self.corosync(node).restart()?;
        match &mut self.witness {
            Some(witness) => witness.restart_device(node, self.cluster.node(node)),
            None => Ok(()),
        }
    }

    fn restart_node(&mut self, node: u8) -> Result<()> {
        let testudod = self.node(node);
        testudod.restart()?;
        testudod.swanctl().run(["--load-all", "--noprompt"]).map(drop)
    }
}

//! The packets of spread tunnels on the untrusted network: what the nodes number and encrypt must
//! differ, and what the peer has sent must not be accepted once more.

use std::collections::HashSet;
use std::thread::sleep;
use std::time::Duration;
use testudo_lab::capture::{Capture, EspPacket};
use testudo_lab::cluster::Cluster;
use testudo_lab::inject::Injector;
use testudo_lab::topology::OUTER;
use testudo_lab::{Namespace, Result};

/// So many packets are sent one after the other, with this time between two bursts: what the nodes'
/// receive rings take even if the nodes wait for a processor.
const BURST: usize = 8;
const PAUSE: Duration = Duration::from_millis(2);

/// A running capture of ESP between the nodes and the first peer.
pub(super) struct Wire {
    nodes: Capture,
    peer: Capture,
}

/// The captured frames.
pub(super) struct Frames {
    /// Those of all nodes; `None` if the capture has lost some.
    pub(super) of_nodes: Option<Vec<Vec<u8>>>,
    /// Those of the peer.
    pub(super) of_peer: Vec<Vec<u8>>,
}

impl Wire {
    pub(super) fn capture(cluster: &Cluster) -> Result<Self> {
        let from = |ports: &[&str]| Capture::all_esp(&cluster.outer, ports, 0);
        let nodes: Vec<&str> = cluster.nodes.iter().map(Namespace::role).collect();
        Ok(Self { nodes: from(&nodes)?, peer: from(&[cluster.peers[0].role()])? })
    }

    pub(super) fn stop(self) -> Result<Frames> {
        let nodes = self.nodes.stop()?;
        let of_nodes = if nodes.lost == 0 { Some(nodes.frames()?) } else { None };
        Ok(Frames { of_nodes, of_peer: self.peer.stop()?.frames()? })
    }
}

/// Sends frames of the peer once more, to all nodes.
pub(super) fn replay(cluster: &Cluster, frames: &[Vec<u8>]) -> Result<()> {
    let injector = Injector::open(&cluster.peers[0], OUTER)?;
    for burst in frames.chunks(BURST) {
        burst.iter().try_for_each(|frame| injector.send(frame))?;
        sleep(PAUSE);
    }
    Ok(())
}

/// The sequence numbers and IVs that have been sent so far. An SPI stands for its SA's key.
#[derive(Debug, Default)]
pub(super) struct Used {
    numbers: HashSet<(u32, u32)>,
    ivs: HashSet<(u32, [u8; 8])>,
}

/// Packets whose number or IV was used before with the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Repeats {
    pub(super) numbers: u64,
    pub(super) ivs: u64,
}

impl Used {
    /// Adds frames, which may be in any order, and counts repeats.
    pub(super) fn add(&mut self, frames: &[Vec<u8>]) -> Repeats {
        let mut repeats = Repeats::default();
        for EspPacket { spi, sequence, iv } in frames.iter().filter_map(|frame| EspPacket::read(frame)) {
            repeats.numbers += u64::from(!self.numbers.insert((spi, sequence)));
            repeats.ivs += u64::from(!self.ivs.insert((spi, iv)));
        }
        repeats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_wire::ip::Protocol;
    use testudo_wire::ipv4::{self, Fields};

    fn frame(spi: u32, sequence: u32, iv: u64) -> Vec<u8> {
        let esp = [&spi.to_be_bytes()[..], &sequence.to_be_bytes(), &iv.to_be_bytes(), &[7; 24]].concat();
        let header = Fields {
            tos: 0,
            total_len: (ipv4::HEADER + esp.len()) as u16,
            id: 0,
            df: true,
            ttl: 64,
            protocol: Protocol::ESP,
            src: [192, 0, 2, 1].into(),
            dst: [192, 0, 2, 2].into(),
        };
        [&[0; 12][..], &[8, 0], &header.to_bytes(), &esp].concat()
    }

    #[test]
    fn what_is_used_twice_with_a_key_is_counted() {
        let mut used = Used::default();
        assert_eq!(used.add(&[frame(1, 5, 50), frame(1, 6, 51), frame(2, 5, 50)]), Repeats::default());
        let again = [frame(1, 7, 50), frame(1, 6, 52), frame(2, 5, 50), frame(2, 6, 51)];
        assert_eq!(used.add(&again), Repeats { numbers: 2, ivs: 2 });
        assert_eq!(used.add(&[vec![0; 40], Vec::new()]), Repeats::default(), "no ESP");
    }
}

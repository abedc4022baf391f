//! The queues and MTUs that ports were opened with, and whether their interfaces still have these.
//! Frames are made once, at the start, and sockets when a port is opened. An interface that gets
//! more queues or a larger MTU later has packets that they are not made for.

use std::collections::BTreeMap;
use testudo_fastpath::fib::{Fib, PortIndex};
use testudo_fastpath::port::{PortInfo, queues_of};

/// All ports.
#[derive(Default)]
pub(super) struct Opened(BTreeMap<PortIndex, Port>);

struct Port {
    name: String,
    /// Receive queues that have a socket.
    queues: u32,
    /// Receive queues that there were at the last look.
    queues_seen: u32,
    /// Largest IP packet that it can send.
    limit: u16,
    /// MTU at the last look.
    mtu_seen: u16,
}

impl Opened {
    /// A further queue of a port has got a socket.
    pub(super) fn add(&mut self, info: &PortInfo) {
        let port = self.0.entry(info.index).or_insert_with(|| Port {
            name: info.name.clone(),
            queues: 0,
            queues_seen: 0,
            limit: info.limit,
            mtu_seen: info.mtu,
        });
        port.queues += 1;
        port.queues_seen = port.queues;
    }

    /// A port's interface is gone, or is opened anew.
    pub(super) fn forget(&mut self, index: PortIndex) {
        self.0.remove(&index);
    }

    /// The largest packet that some port can send.
    pub(super) fn largest(&self) -> Option<u16> {
        self.0.values().map(|port| port.limit).max()
    }

    /// Warns of what ports cannot follow, once for each change.
    pub(super) fn check(&mut self, fib: &Fib) {
        for (index, port) in &mut self.0 {
            // A missing interface is reported elsewhere.
            let queues = queues_of(&port.name).map_or(port.queues_seen, |queues| queues.receive);
            let mtu = fib.port(*index).map_or(port.mtu_seen, |link| link.mtu);
            port.complaints(queues, mtu).for_each(|complaint| tracing::warn!("{complaint}"));
        }
    }
}

impl Port {
    /// The warnings about an interface that has that many queues and that MTU now.
    fn complaints(&mut self, queues: u32, mtu: u16) -> impl Iterator<Item = String> {
        let Self { name, queues: opened, limit, .. } = self;
        let news = std::mem::replace(&mut self.queues_seen, queues) != queues;
        let of_queues = (news && queues > *opened).then(|| {
            format!(
                "port {name}: {queues} receive queues, found {opened} at the start: what comes by the others is dropped \
                 (filter_drop_no_socket) until testudod starts again"
            )
        });
        let news = std::mem::replace(&mut self.mtu_seen, mtu) != mtu;
        let of_mtu = (news && mtu > *limit).then(|| {
            format!(
                "port {name}: MTU {mtu}, and what was set up at the start takes {limit}: larger packets are not sent, and those \
                 that come are dropped, until testudod starts again"
            )
        });
        of_queues.into_iter().chain(of_mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_fastpath::mac::MacAddr;

    fn opened(queues: usize) -> Opened {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let (index, name) = (PortIndex(3), "wan0".to_owned());
        let info = PortInfo { index, name, ifindex: 7, mac, mtu: 1500, limit: 1600 };
        let mut opened = Opened::default();
        (0..queues).for_each(|_| opened.add(&info));
        opened
    }

    fn said(opened: &mut Opened, queues: u32, mtu: u16) -> Vec<String> {
        opened.0.get_mut(&PortIndex(3)).unwrap().complaints(queues, mtu).collect()
    }

    #[test]
    fn queues_without_a_socket_are_named_once() {
        let mut opened = opened(2);
        assert_eq!(said(&mut opened, 2, 1500), [""; 0]);
        let first = said(&mut opened, 4, 1500);
        assert!(first[0].starts_with("port wan0: 4 receive queues, found 2 at the start"), "{first:?}");
        assert_eq!(said(&mut opened, 4, 1500), [""; 0]);
        assert_eq!(said(&mut opened, 1, 1500), [""; 0], "a queue less is no loss");
        assert_eq!(said(&mut opened, 3, 1500).len(), 1);
    }

    #[test]
    fn an_mtu_beyond_what_ports_can_send_is_named_once() {
        let mut opened = opened(1);
        assert_eq!(opened.largest(), Some(1600));
        assert_eq!(said(&mut opened, 1, 1600), [""; 0]);
        let first = said(&mut opened, 1, 9000);
        assert!(
            first[0].starts_with("port wan0: MTU 9000, and what was set up at the start takes 1600"),
            "{first:?}"
        );
        assert_eq!(said(&mut opened, 1, 9000), [""; 0]);
    }
}

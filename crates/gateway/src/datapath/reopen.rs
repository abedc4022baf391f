//! Ports follow their interfaces while the workers run: closed when an interface goes, opened as at
//! the start when it comes.
//!
//! The filter is attached first, before anything else is asked of the interface. Until then,
//! packets of a new interface pass to the kernel: routes (table 220) hold back what goes to a
//! protected prefix, but nothing refuses clear traffic from one. An interface that is set up only
//! afterwards has carried nothing by then.

use super::DataPath;
use super::ports::{Need, PortLine};
use crate::error::{Error, Result};
use crate::queue_assignment::{numbered, of_worker, queue_config, usual_port};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testudo_fastpath::fib::{Fib, PortIndex, PortLink};
use testudo_fastpath::filter::XdpMode;
use testudo_fastpath::port::xdp::{XdpConfig, XdpPort};
use testudo_fastpath::port::{Port, Queues, queues_of};
use testudo_fastpath::vip::host;
use testudo_fastpath::worker::{PortChange, WorkerCommand};

impl DataPath {
    /// Closes the ports whose interfaces are gone, opens those whose interfaces have come, and says
    /// which links have changed.
    pub(super) fn follow_ports(&mut self, fib: &Fib) {
        let now = Instant::now();
        for link in fib.ports() {
            if self.ports.need(link, now) == Need::Close {
                self.close_port(link.index, now);
            }
            if self.ports.need(link, now) == Need::Open {
                self.try_port(link, now);
            }
            self.ports.link(link, now).into_iter().for_each(PortLine::log);
        }
    }

    /// Closes ports whose interface was replaced by another one of the same name and number: the
    /// filter went with the former interface.
    pub(super) fn check_attached(&mut self) {
        let now = Instant::now();
        for index in self.guard.unattached() {
            if self.ports.is_in_use(index) {
                self.close_port(index, now);
            }
        }
    }

    /// True if the port's interface is there and in use, and its link is up.
    pub(crate) fn carries(&self, index: PortIndex) -> bool {
        self.ports.is_in_use(index) && self.fib.port(index).is_some_and(|link| link.up)
    }

    fn close_port(&mut self, index: PortIndex, now: Instant) {
        self.ports.lost(index, now).into_iter().for_each(PortLine::log);
        self.close_sockets(index);
        if let Err(error) = self.guard.leave(index) {
            tracing::debug!("pins of interfaces that are gone stay behind: {error}");
        }
    }

    /// Has the workers close their sockets of a port.
    fn close_sockets(&mut self, index: PortIndex) {
        for bay in self.workers.bays() {
            if bay.changes.push(PortChange::Close(index)).is_err() {
                tracing::error!(
                    "a worker does not take changes of its ports: restart testudod if this goes on"
                );
            }
        }
        self.workers.queue(WorkerCommand::Ports);
        self.flush();
    }

    fn try_port(&mut self, link: &PortLink, now: Instant) {
        let line = match self.open_port(link) {
            Ok(mode) => self.ports.opened(link, mode, now),
            Err(why) => {
                // Closes what was opened. The filter stays, and drops the packets for workers.
                self.close_sockets(link.index);
                self.ports.refused(link, why.to_string(), now)
            }
        };
        line.into_iter().for_each(PortLine::log);
    }

    fn open_port(&mut self, link: &PortLink) -> Result<XdpMode> {
        let mode = self.guard.attach_again(link)?;
        self.port_mtus.set(&link.name)?;
        if self.cluster.is_some() {
            host::silence(&link.name)?;
        }
        let queues = numbered(&link.name, queues_of(&link.name)?)?;
        let own = self.workers.bays().count();
        enough(&link.name, queues, own)?;
        let mut opened = Vec::new();
        for (worker, bay) in self.workers.bays().enumerate() {
            let mine: Vec<u16> = of_worker(queues.receive, worker, own).collect();
            for &queue in &mine {
                let usual = usual_port(link.index, &link.name, self.ring);
                let usual = XdpConfig { busy_poll: self.busy_poll, patience: Duration::ZERO, ..usual };
                let port = XdpPort::open(&queue_config(usual, queue, mine.len()), &bay.memory)?;
                if port.info().ifindex != link.ifindex {
                    return Err(Error::InterfaceReplaced);
                }
                opened.push((Arc::clone(&bay.changes), queue, port));
            }
        }
        // Another driver may have come under the same name.
        let fills = self.checksums.are_filled(link.index)?;
        for (_, queue, port) in &opened {
            self.guard.set_socket(*queue, port)?;
            self.ports.add_socket(link.index, port.losses());
        }
        for (changes, _, port) in opened {
            let pushed = changes.push(PortChange::Open { port, fills });
            pushed.map_err(|_| Error::WorkerBusy)?;
        }
        self.workers.queue(WorkerCommand::Ports);
        self.flush();
        Ok(mode)
    }
}

/// Every worker that has ports must be able to send by this one too.
fn enough(interface: &str, queues: Queues, workers: usize) -> Result<()> {
    let Queues { receive, send } = queues;
    if receive.min(send) as usize >= workers {
        return Ok(());
    }
    Err(Error::TooFewQueues { interface: interface.to_owned(), receive, send, workers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_needs_a_queue_for_every_worker_each_way() {
        enough("lan0", Queues { receive: 2, send: 4 }, 2).unwrap();
        for (receive, send) in [(1, 4), (4, 1)] {
            let refused = enough("lan0", Queues { receive, send }, 2).unwrap_err().to_string();
            assert!(refused.contains("expected at least 2 of each"), "{refused}");
            assert!(refused.contains("ethtool -L lan0 combined 2"), "{refused}");
        }
    }
}

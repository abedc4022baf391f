//! Events of SAs, published to the other nodes, so that listeners on any node receive them.

use super::Replication;
use crate::member::MemberOutput;
use crate::member::core::Core;
use crate::node::NodeId;
use crate::update::{Op, RemoteEvent};
use std::collections::BTreeMap;
use testudo_base::spi::Spi;
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{ChildSaId, Event, IkeSaId, Reason};

impl Replication {
    /// Turns an event of this node's endpoint into a remote event. Returns it as part of the events
    /// before the change of its SA, or of those after it. `gone`: the Child SAs that the same turn
    /// has removed.
    pub(in crate::member) fn as_remote_event(
        &self,
        core: &Core,
        event: &Event,
        gone: &BTreeMap<ChildSaId, Spi>,
    ) -> Option<(bool, Op)> {
        if !core.has_control_plane() {
            return None;
        }
        let ike = |id: &IkeSaId| self.spi_of(core, *id);
        let child = |id: &ChildSaId| self.replicas.spi_of_child(*id).or_else(|| gone.get(id).copied());
        let (goes, remote) = match event {
            Event::IkeUp(id) => (false, RemoteEvent::IkeUp(ike(id)?)),
            Event::IkeDown(id, reason) => {
                (true, RemoteEvent::IkeDown { ike: ike(id)?, renewed: *reason == Reason::Rekeyed })
            }
            Event::IkeRekeyed(old, new) => {
                (false, RemoteEvent::IkeRekeyed { old: ike(old)?, new: ike(new)? })
            }
            Event::ChildUp(of, id) => (false, RemoteEvent::ChildUp { ike: ike(of)?, child: child(id)? }),
            Event::ChildDown(of, id, reason) => {
                let renewed = *reason == Reason::Rekeyed;
                (true, RemoteEvent::ChildDown { ike: ike(of)?, child: child(id)?, renewed })
            }
            Event::ChildRekeyed(of, old, new) => {
                (false, RemoteEvent::ChildRekeyed { ike: ike(of)?, old: child(old)?, new: child(new)? })
            }
            Event::Log { .. }
            | Event::OtherVoucher { .. }
            | Event::InitiateMoved { .. }
            | Event::InitiateDone { .. } => return None,
        };
        Some((goes, Op::RemoteEvent(remote)))
    }

    fn spi_of(&self, core: &Core, id: IkeSaId) -> Option<IkeSpi> {
        let here = || core.endpoint.replication().outline(id).map(|outline| outline.spi);
        self.replicas.spi_of_ike(id).or_else(here)
    }

    /// An event of an SA of node `from` has been delivered.
    pub(in crate::member) fn remote_event(&self, core: &mut Core, from: NodeId, remote: RemoteEvent) {
        if from != core.node
            && let Some(event) = self.local_event(remote)
        {
            core.outputs.push_back(MemberOutput::RemoteEvent(event));
        }
    }

    /// The event with this node's numbers. `None` if this node does not know the SA.
    fn local_event(&self, remote: RemoteEvent) -> Option<Event> {
        let ike = |spi: IkeSpi| self.replicas.ikes.get(&spi).map(|ike| ike.id);
        let child = |spi: Spi| self.replicas.child(spi).map(|child| child.id);
        let reason = |renewed| if renewed { Reason::Rekeyed } else { Reason::Requested };
        Some(match remote {
            RemoteEvent::IkeUp(spi) => Event::IkeUp(ike(spi)?),
            RemoteEvent::IkeDown { ike: spi, renewed } => Event::IkeDown(ike(spi)?, reason(renewed)),
            RemoteEvent::IkeRekeyed { old, new } => Event::IkeRekeyed(ike(old)?, ike(new)?),
            RemoteEvent::ChildUp { ike: of, child: spi } => Event::ChildUp(ike(of)?, child(spi)?),
            RemoteEvent::ChildDown { ike: of, child: spi, renewed } => {
                Event::ChildDown(ike(of)?, child(spi)?, reason(renewed))
            }
            RemoteEvent::ChildRekeyed { ike: of, old, new } => {
                Event::ChildRekeyed(ike(of)?, child(old)?, child(new)?)
            }
        })
    }
}

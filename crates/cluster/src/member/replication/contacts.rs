//! A peer that makes a new IKE SA on some node: its older IKE SAs end, wherever they are.
//!
//! A lone node would compare times. Nodes compare positions in the total order: where an IKE SA was
//! first published, and where it was published as established. A node that was not in the cluster
//! then takes both from the update that informs it.

use super::Replication;
use super::replicas::Replicas;
use crate::group::Position;
use crate::member::core::Core;
use crate::update::Op;
use testudo_ike::endpoint::{Contact, Older};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::Time;
use testudo_planted::{Plant, planted};

impl Replication {
    /// Adds the end of a peer's older IKE SAs to the update in which its new one is established.
    pub(in crate::member) fn add_contacts(&self, core: &mut Core, ikes: &mut [Op]) {
        for contact in core.endpoint.replication_mut().take_contacts() {
            let of_it = ikes.iter_mut().find_map(|op| match op {
                Op::Ike(ike) if ike.outline.spi == contact.spi => Some(ike),
                _ => None,
            });
            // An IKE SA that has gone in the same turn was never published as established.
            if let Some(ike) = of_it {
                ike.contact = Some(Box::new(contact));
            }
        }
    }

    /// An IKE SA has been published to all nodes; `established` tells whether it is up.
    pub(in crate::member) fn ike_told(
        &mut self,
        core: &mut Core,
        now: Time,
        at: Position,
        spi: IkeSpi,
        established: bool,
        contact: Option<&Contact>,
    ) {
        self.replicas.ike_told(spi, established, at);
        if let Some(contact) = contact.filter(|_| !planted(Plant::OlderStay)) {
            self.contacted(core, now, at, contact);
        }
    }

    /// Ends the peer's older IKE SAs that this node speaks for. Those that it reads later end then.
    fn contacted(&mut self, core: &mut Core, now: Time, at: Position, contact: &Contact) {
        self.turn(core, now);
        let replicas = &self.replicas;
        let begun = replicas.ikes.get(&contact.spi).and_then(|new| new.begun).unwrap_or(at);
        let dead =
            core.endpoint.replication_mut().contacted(now, contact, |spi| replicas.is_older(spi, begun));
        // The peer would misread an answer that came only now.
        core.commits.withhold(&dead);
        self.turn(core, now);
        let replication = core.endpoint.replication();
        let concerns = |connection: &str| replication.are_alike(connection, &contact.connection);
        self.replicas.contacted(contact, begun, concerns);
    }
}

impl Replicas {
    /// Records the position of an IKE SA's update.
    fn ike_told(&mut self, spi: IkeSpi, established: bool, at: Position) {
        if let Some(ike) = self.ikes.get_mut(&spi) {
            ike.begun.get_or_insert(at);
            if established {
                ike.up.get_or_insert(at);
            }
        }
    }

    /// How an IKE SA relates to one that began at `begun`. `None` if it is younger.
    fn is_older(&self, spi: IkeSpi, begun: Position) -> Option<Older> {
        let up = self.ikes.get(&spi)?.up?;
        Some(if up < begun { Older::Known } else { Older::Meanwhile })
    }

    /// Marks the peer's older IKE SAs that are in no endpoint here: this node may still read them.
    fn contacted(&mut self, contact: &Contact, begun: Position, concerns: impl Fn(&str) -> bool) {
        // The new IKE SA is younger than all that was known before.
        if let Some(new) = self.ikes.get_mut(&contact.spi) {
            new.contact = None;
        }
        for spi in self.of_peer(&contact.remote) {
            let Some(older) = self.is_older(spi, begun).filter(|_| spi != contact.spi) else { continue };
            if let Some(old) = self.ikes.get_mut(&spi)
                && old.here.is_none()
                && concerns(&old.outline.connection)
            {
                old.contact = Some(Box::new((contact.clone(), older)));
            }
        }
    }
}

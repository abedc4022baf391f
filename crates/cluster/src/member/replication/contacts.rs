//! A peer that has a new IKE SA at some node: its older ones go, wherever they are.
//!
//! One node by itself would compare times. Nodes compare places in the total order: where an IKE SA
//! was first heard of, and where that it is up. Who was not there then knows both from when it was
//! told.

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
    /// What a peer's new IKE SA means for its older ones goes with the state in which it is up.
    pub(in crate::member) fn add_contacts(&self, core: &mut Core, ikes: &mut [Op]) {
        for contact in core.endpoint.replication_mut().take_contacts() {
            let of_it = ikes.iter_mut().find_map(|op| match op {
                Op::Ike(ike) if ike.outline.spi == contact.spi => Some(ike),
                _ => None,
            });
            // One that has gone in the same turn has never stood.
            if let Some(ike) = of_it {
                ike.contact = Some(Box::new(contact));
            }
        }
    }

    /// All have been told of an IKE SA; and whether it is up.
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

    /// Of what this node speaks for the older ones go at once; what it reads only later goes then.
    fn contacted(&mut self, core: &mut Core, now: Time, at: Position, contact: &Contact) {
        self.turn(core, now);
        let replicas = &self.replicas;
        let begun = replicas.ikes.get(&contact.spi).and_then(|new| new.begun).unwrap_or(at);
        let dead =
            core.endpoint.replication_mut().contacted(now, contact, |spi| replicas.is_older(spi, begun));
        // A peer that had an answer only now would take it for what it is not.
        core.commits.withhold(&dead);
        self.turn(core, now);
        let replication = core.endpoint.replication();
        let concerns = |connection: &str| replication.are_alike(connection, &contact.connection);
        self.replicas.contacted(contact, begun, concerns);
    }
}

impl Replicas {
    /// An IKE SA was told, to all.
    fn ike_told(&mut self, spi: IkeSpi, established: bool, at: Position) {
        if let Some(ike) = self.ikes.get_mut(&spi) {
            ike.begun.get_or_insert(at);
            if established {
                ike.up.get_or_insert(at);
            }
        }
    }

    /// What it is to one that was begun there. `None`: it is younger.
    fn is_older(&self, spi: IkeSpi, begun: Position) -> Option<Older> {
        let up = self.ikes.get(&spi)?.up?;
        Some(if up < begun { Older::Known } else { Older::Meanwhile })
    }

    /// Those that the peer had, and that are in no endpoint here, may be read by this node yet.
    fn contacted(&mut self, contact: &Contact, begun: Position, concerns: impl Fn(&str) -> bool) {
        // It is younger than all that was heard of before.
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

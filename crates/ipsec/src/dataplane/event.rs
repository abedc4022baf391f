//! Events of a worker, for control.

use crate::packet_selector::PacketSelector;
use crate::sa::SaCounters;
use crate::spd::PolicyId;
use arrayvec::ArrayVec;
use std::net::SocketAddr;
use testudo_base::spi::Spi;

/// How often one missing SA is reported, in milliseconds.
pub(super) const NO_SA_INTERVAL_MS: u64 = 1000;
/// How often it is reported that the same numbers run low, in milliseconds.
pub(super) const LOW_INTERVAL_MS: u64 = 30_000;
/// How often it is reported that an SA waits for its next block, in milliseconds.
pub(super) const NO_BLOCK_INTERVAL_MS: u64 = 1000;
/// Bound on the events kept until control takes them. All of them are raised again or show in
/// counters, so that the loss of one does no harm.
const MAX_EVENTS: usize = 64;

/// Something that control should know, and may have to act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Traffic matches a policy that has no SA: initiate, if the policy is a trap. At most once a
    /// second and policy.
    NoSa {
        /// The policy.
        policy: PolicyId,
        /// The packet that found no SA, for the first traffic selector (RFC 7296 §2.9).
        packet: PacketSelector,
    },
    /// An authentic UDP-encapsulated packet came from another outer address than the SA's: a NAT
    /// has changed its mapping (RFC 7296 §2.23). Once a second and SA until control knows the
    /// address ([`crate::sa::InboundSa::set_known_source`]).
    AddressChanged {
        /// The inbound SA.
        spi: Spi,
        /// The peer's new address.
        remote: SocketAddr,
    },
    /// Half of an outbound SA's last block of sequence numbers is used; of a spread SA, half of the
    /// rows of its latest stripe have passed. Raised once a block or stripe, then twice a minute as
    /// long as the SA sends, and once a second while it lacks numbers.
    SequenceLow {
        /// SPI of the inbound half, by which control finds the outbound one.
        spi: Spi,
        /// Packets a second since the last event, or since the SA was set; of a spread SA, rows.
        rate: u64,
    },
    /// Packets use an SA whose key has no schedule yet. Until control makes one, each packet costs
    /// a schedule of its own. Raised once a tick of the clock as long as that is so.
    KeyWanted {
        /// SPI of the inbound half; the outbound half is in use too, or soon will be.
        spi: Spi,
    },
    /// A half of a Child SA has carried as much as control asked for. Until control sets another
    /// mark, it is raised once more with each eighth on top of that.
    Carried {
        /// SPI of the inbound half.
        spi: Spi,
    },
    /// Seven eighths of the sender ID's IVs are used. Raised twice a minute until there is a new
    /// sender ID.
    IvLow,
}

/// Events that wait for control.
#[derive(Debug)]
pub(super) struct Events(ArrayVec<Event, MAX_EVENTS>);

impl Events {
    /// Raises [`Event::Carried`] if the SA with these counters has reached its mark.
    #[inline]
    pub(super) fn note_mark(&mut self, counters: &SaCounters, spi: Spi) {
        if counters.is_at_mark() && self.raise(Event::Carried { spi }) {
            counters.move_mark();
        }
    }

    pub(super) fn new() -> Self {
        Self(ArrayVec::new())
    }

    /// Returns false if there is no room; the event should then be raised again when its cause
    /// recurs.
    #[cold]
    pub(super) fn raise(&mut self, event: Event) -> bool {
        self.0.try_push(event).is_ok()
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.0.drain(..)
    }
}

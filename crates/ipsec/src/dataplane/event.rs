//! What a worker tells control.

use crate::packet_selector::PacketSelector;
use crate::sa::SaCounters;
use crate::spd::PolicyId;
use arrayvec::ArrayVec;
use std::net::SocketAddr;
use testudo_base::spi::Spi;

/// How often control hears about one missing SA, in milliseconds.
pub(super) const NO_SA_INTERVAL_MS: u64 = 1000;
/// How often control hears that the same numbers run low, in milliseconds.
pub(super) const LOW_INTERVAL_MS: u64 = 30_000;
/// How often control hears that an SA waits for its next block, in milliseconds.
pub(super) const NO_BLOCK_INTERVAL_MS: u64 = 1000;
/// Events kept until control takes them. All of them are raised again or can be seen in counters,
/// so that losing one does no harm.
const MAX_EVENTS: usize = 64;

/// Something that control should know, and perhaps act upon.
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
    /// has changed its mapping (RFC 7296 §2.23). Once a second and SA until control says that it
    /// knows ([`crate::sa::InboundSa::set_known_source`]).
    AddressChanged {
        /// The inbound SA.
        spi: Spi,
        /// Where the peer is now.
        remote: SocketAddr,
    },
    /// Half of an outbound SA's last block of sequence numbers is used. Once a block; twice a
    /// minute as long as the SA sends, and once a second when it cannot for want of a block.
    SequenceLow {
        /// The inbound half, by which control finds the outbound one.
        spi: Spi,
        /// Packets a second since it was told last, or since the SA is there.
        rate: u64,
    },
    /// Packets use an SA whose key has no schedule yet: until control has made it, each packet
    /// costs one of its own. Once a tick of the clock as long as that is so.
    KeyWanted {
        /// The inbound half; the outbound one will soon be used too, or is.
        spi: Spi,
    },
    /// A half of a Child SA has carried as much as control wants to hear of. Until control sets
    /// another mark, once more with each eighth on top of that.
    Carried {
        /// The inbound half.
        spi: Spi,
    },
    /// Seven eighths of the sender ID's IVs are used. Twice a minute until there is a new one.
    IvLow,
}

/// Events that wait for control.
#[derive(Debug)]
pub(super) struct Events(ArrayVec<Event, MAX_EVENTS>);

impl Events {
    /// Tells control if the SA with these counters has carried what it wants to hear of.
    #[inline]
    pub(super) fn note_mark(&mut self, counters: &SaCounters, spi: Spi) {
        if counters.is_at_mark() && self.raise(Event::Carried { spi }) {
            counters.move_mark();
        }
    }

    pub(super) fn new() -> Self {
        Self(ArrayVec::new())
    }

    /// False if there is no room; the event should then be raised again when its cause comes up
    /// again.
    #[cold]
    pub(super) fn raise(&mut self, event: Event) -> bool {
        self.0.try_push(event).is_ok()
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.0.drain(..)
    }
}

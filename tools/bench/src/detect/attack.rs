//! What the attacker does, one frame or some at a time.

use super::site::Spied;
use serde::Serialize;
use testudo_lab::forgeries;
use testudo_lab::frames::{Random, Road};
use testudo_lab::inject::announcement;
use testudo_lab::topology::{Family, Side};

/// Frames that are sent in one go.
const BURST: u32 = 16;
/// Packets whose order is reversed. Of neighbouring numbers in one burst only the newest matters.
const REVERSED: usize = 128;
/// How far forged numbers lie ahead.
const AHEAD: u32 = 1 << 20;

/// An attack that is noticed by counters, samples, or one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Attack {
    /// Packets of the SA again, beside its traffic.
    Replay,
    /// Packets of the SA again, and none that are new.
    Reversal,
    /// Packets of the SA with a wrong ICV.
    Forge,
    /// Packets with unknown SPIs.
    Scan,
    /// Clear text as if from behind the peer.
    Clear,
    /// Messages in the IKE SA with a guessed key.
    Guess,
    /// IKE_SA_INIT requests that nobody goes on with.
    Flood,
    /// Fragments that contradict each other.
    Overlap,
    /// ARP that claims the gateway's own address.
    Claim,
    /// ARP replies that put the peer at the attacker's MAC address.
    Steal,
    /// ICMP errors about packets that were never sent.
    Lie,
    /// The peer's packets, some at a time in the opposite order.
    Reorder,
}

impl Attack {
    pub(super) const ALL: [Self; 12] = [
        Self::Replay,
        Self::Reversal,
        Self::Forge,
        Self::Scan,
        Self::Clear,
        Self::Guess,
        Self::Flood,
        Self::Overlap,
        Self::Claim,
        Self::Steal,
        Self::Lie,
        Self::Reorder,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Reversal => "reversal",
            Self::Forge => "forge",
            Self::Scan => "scan",
            Self::Clear => "clear",
            Self::Guess => "guess",
            Self::Flood => "flood",
            Self::Overlap => "overlap",
            Self::Claim => "claim",
            Self::Steal => "steal",
            Self::Lie => "lie",
            Self::Reorder => "reorder",
        }
    }

    /// The kind of the alarm that it raises.
    pub(super) fn alarm(self) -> &'static str {
        match self {
            Self::Replay => "replay-burst",
            Self::Reversal => "counter-reversal",
            Self::Forge => "forged-packets",
            Self::Scan => "spi-scan",
            Self::Clear => "clear-text",
            Self::Guess => "ike-brute-force",
            Self::Flood => "half-open-flood",
            Self::Overlap => "fragment-overlap",
            Self::Claim | Self::Steal => "address-spoofing",
            Self::Lie => "path-mtu",
            Self::Reorder => "reordering",
        }
    }

    /// True if it needs a tunnel without traffic.
    pub(super) fn is_alone(self) -> bool {
        matches!(self, Self::Reversal | Self::Reorder)
    }

    /// The frames of its next part, of which the first has number 0.
    pub(super) fn part(self, number: u32, spied: &Spied, random: &mut Random) -> Vec<Vec<u8>> {
        let Spied { road, spi, ike_spis, theirs, ours, thief, held } = spied;
        let burst = number * BURST..(number + 1) * BURST;
        let again = || theirs.iter().take(BURST as usize).cloned().collect();
        match self {
            Self::Replay | Self::Reversal => again(),
            Self::Forge => {
                let forged = burst.zip(theirs).filter_map(|(n, frame)| forgeries::ahead(frame, AHEAD + n));
                forged.collect()
            }
            Self::Scan => burst.map(|_| forgeries::unknown_spi(random, road)).collect(),
            Self::Clear => {
                let ends = [Side::Two, Side::One].map(|side| side.host(Family::V4));
                burst.map(|_| forgeries::in_clear(road, ends)).collect()
            }
            Self::Guess => burst.map(|_| forgeries::guessed(random, road, *ike_spis)).collect(),
            Self::Flood => burst.map(|_| road.datagram(500, &forgeries::ike_sa_init(random))).collect(),
            Self::Overlap => burst.flat_map(|id| forgeries::overlapping(road, *spi, id as u16)).collect(),
            Self::Claim => vec![claim(road, *thief)],
            Self::Steal => {
                ours.first().and_then(|frame| forgeries::arp_reply(frame, *thief)).into_iter().collect()
            }
            Self::Lie => burst.map(|number| forgeries::about_nothing(road, number)).collect(),
            Self::Reorder => {
                let part = held.chunks(REVERSED).nth(number as usize).unwrap_or_default();
                part.iter().rev().cloned().collect()
            }
        }
    }
}

/// The victim's address is the attacker's.
fn claim(road: &Road, thief: [u8; 6]) -> Vec<u8> {
    match road.to {
        std::net::IpAddr::V4(victim) => announcement(thief, victim),
        std::net::IpAddr::V6(_) => Vec::new(),
    }
}

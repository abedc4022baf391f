//! Blocks of sequence numbers: which node may use which.
//!
//! **Only the owner of a shard grants its numbers**, to itself and to its standby, each time above
//! all that were granted before. Its messages are delivered in order and no other node's count, so
//! all nodes know how far the grants reach: [`Ledger::noted`]. A new owner has received all
//! messages of the former one, or those that it lacks were not stable. A block is used only once
//! the message that granted it is stable, so no two nodes ever use the same number.
//!
//! The standby's block always lies above all that the owner may use. So when the standby's first
//! packet moves the peer's window, no other node can still send a number above it.

use crate::update::Grant;
use testudo_base::spi::Spi;
use testudo_ipsec::number::SequenceBlock;
use testudo_planted::{Plant, planted};

/// The first size: about two seconds at 32 thousand packets a second.
const MIN_BLOCK_LOG2: u8 = 16;
/// With extended numbers there are enough of them.
const MAX_BLOCK_LOG2: u8 = 24;
/// A block takes no more of the 2^32 numbers than this, so that changes of owners do not use them
/// up.
const MAX_BLOCK_LOG2_WITHOUT_ESN: u8 = 20;

/// How far the numbers of a Child SA are granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// All numbers below this are granted.
    pub(crate) reserved: u64,
    /// Size of a block, as a power of two.
    pub(crate) log2: u8,
}

impl Ledger {
    /// The ledger of a new SA. No packet has number 0 (RFC 4303 §3.3.3).
    pub(crate) const NEW: Self = Self { reserved: 1, log2: MIN_BLOCK_LOG2 };

    /// Grants the next two blocks; called by the owner only. `None`: no numbers are left for them,
    /// and the SA must be rekeyed.
    pub(crate) fn grant(&mut self, spi: Spi, esn: bool) -> Option<Grant> {
        let grant = Grant { spi, start: self.reserved, log2: self.log2 };
        let end = standbys(grant).end;
        if end > SequenceBlock::whole(esn).end {
            return None;
        }
        self.reserved = end;
        Some(grant)
    }

    /// Skips this many numbers, then grants like [`Ledger::grant`]. `None`, and no change, if there
    /// are not enough numbers.
    pub(crate) fn skip(&mut self, spi: Spi, by: u64, esn: bool) -> Option<Grant> {
        let mut ahead = Self { reserved: self.reserved.checked_add(by)?, ..*self };
        let grant = ahead.grant(spi, esn)?;
        *self = ahead;
        Some(grant)
    }

    /// True if an eighth of the numbers is left, or less: the SA should be rekeyed. At a million
    /// packets a second that is nine minutes ahead.
    pub(crate) fn ends_soon(&self, esn: bool) -> bool {
        let end = SequenceBlock::whole(esn).end;
        self.reserved > end - end / 8
    }

    /// The owner has published this grant. A late one takes nothing back.
    pub(crate) fn noted(&mut self, grant: Grant) {
        self.reserved = self.reserved.max(standbys(grant).end);
        self.log2 = grant.log2;
    }

    /// Makes the next blocks last two seconds at this rate, in packets a second.
    pub(crate) fn fit(&mut self, rate: u64, esn: bool) {
        let wanted = rate.saturating_mul(2).max(1).checked_next_power_of_two().unwrap_or(u64::MAX);
        let wanted = u8::try_from(wanted.ilog2()).unwrap_or(u8::MAX);
        self.log2 =
            wanted.clamp(MIN_BLOCK_LOG2, if esn { MAX_BLOCK_LOG2 } else { MAX_BLOCK_LOG2_WITHOUT_ESN });
    }
}

/// The owner's block of a grant.
pub(crate) fn owners(grant: Grant) -> SequenceBlock {
    SequenceBlock { next: grant.start, end: grant.start.saturating_add(size(grant)) }
}

/// The standby's block of a grant.
pub(crate) fn standbys(grant: Grant) -> SequenceBlock {
    let SequenceBlock { end, .. } = owners(grant);
    if planted(Plant::SameBlock) {
        return owners(grant);
    }
    SequenceBlock { next: end, end: end.saturating_add(size(grant)) }
}

fn size(grant: Grant) -> u64 {
    // Bounded, so that a damaged message of a member cannot cause an overflow.
    1_u64 << grant.log2.min(MAX_BLOCK_LOG2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPI: Spi = Spi(0x0100_0400);

    #[test]
    fn blocks_grow_with_the_rate_within_bounds() {
        for (rate, esn, log2) in [
            (0, true, 16),
            (32_768, true, 16),
            (32_769, true, 17),
            (1_000_000, true, 21),
            (1_000_000, false, 20),
            (u64::MAX, true, 24),
        ] {
            let mut ledger = Ledger::NEW;
            ledger.fit(rate, esn);
            assert_eq!(ledger.log2, log2, "{rate}");
        }
    }

    #[test]
    fn the_last_numbers_are_not_granted_in_part() {
        let mut ledger = Ledger { reserved: (1 << 32) - (1 << 18), log2: 16 };
        assert!(ledger.grant(SPI, false).is_some());
        assert!(ledger.grant(SPI, false).is_some());
        assert_eq!(ledger.grant(SPI, false), None);
        assert!(ledger.grant(SPI, true).is_some());
    }

    #[test]
    fn an_sa_without_esn_is_rekeyed_long_before_its_last_number() {
        let at = |reserved| Ledger { reserved, log2: 20 };
        assert!(!Ledger::NEW.ends_soon(false));
        assert!(!at(7 << 29).ends_soon(false) && at((7 << 29) + 1).ends_soon(false));
        assert!(!at(1 << 33).ends_soon(true));
        let mut last = at((7 << 29) + 1);
        assert!((0..200).all(|_| last.grant(SPI, false).is_some()), "enough for more than a peer needs");
    }

    #[test]
    fn skipped_numbers_precede_the_next_blocks() {
        let mut ledger = Ledger::NEW;
        let before = ledger.grant(SPI, false).unwrap();
        let after = ledger.skip(SPI, 1_000_000, false).unwrap();
        assert_eq!(after.start, standbys(before).end + 1_000_000);
        assert_eq!(ledger.reserved, standbys(after).end);
        let all = ledger;
        for by in [1 << 32, u64::MAX] {
            assert_eq!(ledger.skip(SPI, by, false), None);
            assert_eq!(ledger, all);
        }
    }

    /// An event in the life of one SA's numbers.
    #[derive(Clone, Debug)]
    enum Step {
        /// The owner grants blocks to itself and to a standby.
        Grant { standby: usize, rate: u64 },
        /// All published grants are delivered in order to some nodes, or to all if they are to be
        /// stable.
        Deliver { stable: bool },
        /// The owner dies; grants that not every node has received are lost. One of the nodes that
        /// received most takes over.
        Crash { to: usize },
        /// The owner hands over.
        Handover { to: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0_usize..3, 0_u64..10_000_000).prop_map(|(standby, rate)| Step::Grant { standby, rate }),
            any::<bool>().prop_map(|stable| Step::Deliver { stable }),
            (0_usize..3).prop_map(|to| Step::Crash { to }),
            (0_usize..3).prop_map(|to| Step::Handover { to }),
        ]
    }

    proptest! {
        /// Checked against a plain list of all blocks that any node was ever free to use.
        #[test]
        fn no_two_blocks_in_use_overlap(steps in prop::collection::vec(step(), 1..60)) {
            let mut ledgers = [Ledger::NEW; 3];
            let mut owner = 0;
            // Published by the owner, but not known to all.
            let mut said: Vec<(Grant, usize)> = Vec::new();
            let mut used: Vec<(u64, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Grant { standby, rate } => {
                        let ledger = &mut ledgers[owner];
                        ledger.fit(rate, false);
                        said.extend(ledger.grant(SPI, false).map(|grant| (grant, standby)));
                    }
                    Step::Deliver { stable } => {
                        for (grant, standby) in said.iter().filter(|_| stable) {
                            (0..3).filter(|node| *node != owner).for_each(|node| ledgers[node].noted(*grant));
                            let own = owners(*grant);
                            used.push((own.next, own.end));
                            if *standby != owner {
                                let theirs = standbys(*grant);
                                used.push((theirs.next, theirs.end));
                            }
                        }
                        if stable {
                            said.clear();
                        }
                    }
                    Step::Crash { to } => {
                        // It comes back with the state of the others.
                        said.clear();
                        ledgers[owner] = ledgers[(owner + 1) % 3];
                        owner = to;
                    }
                    Step::Handover { to } => {
                        for (grant, _) in said.drain(..) {
                            (0..3).filter(|node| *node != owner).for_each(|node| ledgers[node].noted(grant));
                        }
                        owner = to;
                    }
                }
            }
            used.sort_unstable();
            prop_assert!(used.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{used:?}");
            prop_assert!(used.iter().all(|(next, end)| *next >= 1 && *end <= 1 << 32));
        }
    }
}

//! Stripes: the sequence numbers of a spread Child SA, dealt out to several nodes at once.

use crate::node::NodeId;
use serde::{Deserialize, Serialize};
use testudo_base::lane::Spread;
use testudo_base::spi::Spi;
use testudo_ipsec::number;

/// Rows of numbers of a spread Child SA. Each row has one number for each of the nodes: the class
/// of a node is its place among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stripe {
    pub(crate) spi: Spi,
    pub(crate) by: Spread,
    /// The first row, and how many there are.
    pub(crate) first_row: u64,
    pub(crate) rows: u64,
    /// The first number of the first row.
    pub(crate) start: u64,
    pub(crate) nodes: Vec<NodeId>,
}

impl Stripe {
    /// The first row behind it.
    pub(crate) fn end_row(&self) -> u64 {
        self.first_row.saturating_add(self.rows)
    }

    /// The first number behind it.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.rows.saturating_mul(self.nodes.len() as u64))
    }

    /// The part of a node. `None` if it has none.
    pub(crate) fn part_of(&self, node: NodeId) -> Option<number::Stripe> {
        let class = self.nodes.iter().position(|other| *other == node)?;
        Some(number::Stripe {
            first_row: self.first_row,
            rows: self.rows,
            start: self.start,
            classes: u8::try_from(self.nodes.len()).ok()?,
            class: u8::try_from(class).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// The parts of a stripe have no number in common, and fill it.
        #[test]
        fn every_number_of_a_stripe_is_one_nodes(
            numbers in prop::collection::btree_set(1_u32..31, 1..6), rows in 1_u64..20, start in 1_u64..1000,
        ) {
            let nodes: Vec<NodeId> = numbers.into_iter().filter_map(NodeId::new).collect();
            let stripe =
                Stripe { spi: Spi(0x0100_0400), by: Spread::PacketHash, first_row: 7, rows, start, nodes: nodes.clone() };
            let mut all = BTreeSet::new();
            for node in &nodes {
                let part = stripe.part_of(*node).unwrap();
                for row in part.first_row..part.first_row + part.rows {
                    let number = part.start + (row - part.first_row) * u64::from(part.classes) + u64::from(part.class);
                    prop_assert!(all.insert(number), "{number} twice");
                }
            }
            prop_assert_eq!((all.first(), all.last()), (Some(&start), Some(&(stripe.end() - 1))));
            prop_assert_eq!(all.len() as u64, stripe.end() - start);
            prop_assert_eq!(stripe.part_of(NodeId::new(31).unwrap()), None);
        }
    }
}

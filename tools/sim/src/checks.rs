//! The invariants, checked from outside: on the wire, and on what nodes let pass.

use crate::engine::Nanos;
use crate::probe::Esp;
use crate::trace::{Who, digest};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::ops::Range;
use testudo_ike::message::{ExchangeType, Message};

/// An invariant, by its number in `design.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// 1: no (key, IV) is used twice.
    Iv = 1,
    /// 2: no sequence number is accepted twice.
    Accepted = 2,
    /// 3: no sequence number is sent twice, nor two different IKE messages of the same number.
    Sent = 3,
    /// 4: every survivor knows each answer that a peer has seen; no tunnel is lost.
    Answered = 4,
    /// 5: every packet is accounted for.
    Accounting = 5,
    /// 6: clear text never leaves a protected path.
    Clear = 6,
    /// Once the faults stop, traffic flows, and all nodes agree.
    Recovery = 7,
}

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The time.
    pub at: Nanos,
    /// The host.
    pub who: Who,
    /// The description.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, at, who, what } = self;
        write!(
            f,
            "invariant {} ({invariant:?}) at {:.6} s, {who}: {what}",
            *invariant as u8,
            *at as f64 / 1e9
        )
    }
}

/// The observations, and the violations among them.
#[derive(Debug, Default)]
pub struct Checks {
    ivs: BTreeSet<(u64, u64)>,
    sequences: BTreeSet<(u64, u32)>,
    /// Ranges of numbers that were used without examining each packet, by key.
    spent: BTreeMap<u64, Vec<Range<u64>>>,
    ike_ivs: BTreeMap<(u64, u64, bool, [u8; 8]), u64>,
    ike_numbers: BTreeMap<IkeNumber, u64>,
    accepted: BTreeMap<(u64, u32), Accepted>,
    violations: Vec<Violation>,
    /// Packets accepted by two nodes during a provisional takeover.
    pub provisional_doubles: u64,
    /// Packets accepted twice because the new owner had never seen them.
    pub unseen_doubles: u64,
    /// ESP packets seen.
    pub esp_packets: u64,
    /// Sealed IKE messages seen.
    pub ike_messages: u64,
}

/// SPIs, the I and R flags, Message ID, number of the fragment and how many there are.
type IkeNumber = (u64, u64, bool, bool, u32, u16, u16);

/// A packet accepted by a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The node.
    pub node: usize,
    /// How often the node has started.
    pub boot: u64,
    /// The node is not the owner by the view.
    pub provisional: bool,
    /// The node had not seen that number, nor a later one: it could not know of it.
    pub unseen: bool,
}

impl Checks {
    /// The violations found.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Two partitions have been told that they have the majority. The consequences are not counted,
    /// except for invariants that must hold even then.
    pub fn excuse(&mut self) {
        let holds = [Invariant::Iv, Invariant::Accounting, Invariant::Clear];
        self.violations.retain(|violation| holds.contains(&violation.invariant));
    }

    /// Records a violation.
    pub fn violate(&mut self, invariant: Invariant, at: Nanos, who: Who, what: String) {
        self.violations.push(Violation { invariant, at, who, what });
    }

    /// A host sends an ESP packet, encrypted with the key of that fingerprint.
    pub fn esp_sent(&mut self, at: Nanos, who: Who, key: u64, esp: &Esp) {
        self.esp_packets += 1;
        if !self.ivs.insert((key, esp.iv)) {
            let what = format!(
                "IV {:016x} twice under one key, SPI {:08x} number {}",
                esp.iv, esp.spi, esp.sequence
            );
            self.violate(Invariant::Iv, at, who, what);
        }
        let number = u64::from(esp.sequence);
        let mut spent = self.spent.get(&key).into_iter().flatten();
        if !self.sequences.insert((key, esp.sequence)) || spent.any(|used| used.contains(&number)) {
            let what = format!("number {} sent twice, SPI {:08x}", esp.sequence, esp.spi);
            self.violate(Invariant::Sent, at, who, what);
        }
    }

    /// A host uses all of these numbers under the key of that fingerprint.
    pub fn esp_spent(&mut self, at: Nanos, who: Who, key: u64, numbers: Range<u64>) {
        let one = |number: u64| (key, u32::try_from(number).unwrap_or(u32::MAX));
        let again = self.sequences.range(one(numbers.start)..one(numbers.end)).next().is_some();
        let spent = self.spent.entry(key).or_default();
        let overlap = |used: &Range<u64>| used.start < numbers.end && numbers.start < used.end;
        if again || spent.iter().any(overlap) {
            let what = format!("of the numbers {numbers:?} some were sent before");
            self.violations.push(Violation { invariant: Invariant::Sent, at, who, what });
        }
        spent.push(numbers);
    }

    /// A host sends an IKE message.
    pub fn ike_sent(&mut self, at: Nanos, who: Who, bytes: &[u8]) {
        let Ok(message) = Message::parse(bytes) else {
            return self.violate(Invariant::Sent, at, who, "an IKE message that cannot be read".into());
        };
        let header = message.header;
        let Some(encrypted) = message.encrypted else { return };
        let Some((iv, _)) = encrypted.body.split_first_chunk::<8>() else { return };
        self.ike_messages += 1;
        let content = digest(bytes);
        let (spi_i, spi_r) = (header.initiator_spi.0, header.responder_spi.0);
        let key = (spi_i, spi_r, header.from_initiator, *iv);
        if *self.ike_ivs.entry(key).or_insert(content) != content {
            let what = format!("IV {iv:02x?} twice in IKE SA {spi_i:016x}");
            self.violate(Invariant::Iv, at, who, what);
        }
        let (fragment, total) = encrypted.fragment.map_or((0, 0), |part| (part.number, part.total));
        let id = header.message_id.0;
        let number = (spi_i, spi_r, header.from_initiator, header.response, id, fragment, total);
        // There may be several beside the windows (RFC 6311 §5.1).
        let beside = id == 0 && header.exchange == ExchangeType::Informational;
        if !beside && *self.ike_numbers.entry(number).or_insert(content) != content {
            let kind = if header.response { "response" } else { "request" };
            let what =
                format!("{kind} {id} ({:?}) of IKE SA {spi_i:016x} with other content", header.exchange);
            self.violate(Invariant::Sent, at, who, what);
        }
    }

    /// A node accepts an ESP packet from a peer.
    pub fn accepted(&mut self, at: Nanos, key: u64, sequence: u32, by: Accepted) {
        let Some(first) = self.accepted.insert((key, sequence), by) else { return };
        let another = (first.node, first.boot) != (by.node, by.boot);
        // While two nodes carry a shard, both see each packet for the first time: "unseen"
        // explains only the other cases.
        if another && (first.provisional || by.provisional) {
            self.provisional_doubles += 1;
        } else if another && by.unseen {
            self.unseen_doubles += 1;
        } else {
            let what = format!("number {sequence} accepted twice, first by {first:?}, then by {by:?}");
            self.violate(Invariant::Accepted, at, Who::Node(by.node), what);
        }
    }

    /// A packet leaves a node's outer port: only ESP and IKE may.
    pub fn left_outside(&mut self, at: Nanos, who: Who, esp: Option<&Esp>, to: Option<Ipv4Addr>) {
        if esp.is_none() {
            self.violate(Invariant::Clear, at, who, format!("clear text on the way to {to:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_accepted_by_two_nodes_are_counted_by_their_reason() {
        let by = |node, provisional, unseen| Accepted { node, boot: 1, provisional, unseen };
        let twice = |first, second| {
            let mut checks = Checks::default();
            checks.accepted(0, 1, 7, first);
            checks.accepted(1, 1, 7, second);
            (checks.provisional_doubles, checks.unseen_doubles, checks.violations().len())
        };
        for (first, second) in [(false, true), (true, false)] {
            for unseen in [false, true] {
                assert_eq!(twice(by(0, first, true), by(1, second, unseen)), (1, 0, 0));
            }
        }
        assert_eq!(twice(by(0, false, true), by(1, false, true)), (0, 1, 0));
        assert_eq!(twice(by(0, false, true), by(1, false, false)), (0, 0, 1), "it knew");
        assert_eq!(twice(by(0, true, true), by(0, true, true)), (0, 0, 1), "the same node");
    }
}

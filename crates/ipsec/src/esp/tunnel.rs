//! Traffic class across the tunnel: DSCP_MASK by RFC 4301 §5.1.2, ECN by RFC 6040.

use crate::sa::HeaderCopy;
use testudo_wire::ip::Ecn;

const DSCP_MASK: u8 = 0xfc;

/// Traffic class of the outer header (RFC 6040 §4.1: normal mode copies ECN, compatibility mode
/// sends Not-ECT).
#[inline]
pub(crate) fn outer_class(copy: HeaderCopy, inner: u8) -> u8 {
    let dscp = if copy.dscp_out { inner & DSCP_MASK } else { 0 };
    let ecn = if copy.ecn { inner & !DSCP_MASK } else { 0 };
    dscp | ecn
}

/// Traffic class of the inner header after decapsulation. `None`: drop the packet, because it was
/// marked for congestion and the inner header cannot carry the mark (RFC 6040 §4.2).
#[inline]
pub(crate) fn inner_class(copy: HeaderCopy, outer: u8, inner: u8) -> Option<u8> {
    let dscp = if copy.dscp_in { outer & DSCP_MASK } else { inner & DSCP_MASK };
    Some(dscp | decapsulated(Ecn::of(outer), Ecn::of(inner))?.bits())
}

/// Figure 4 of RFC 6040.
#[inline]
fn decapsulated(outer: Ecn, inner: Ecn) -> Option<Ecn> {
    match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => None,
        (Ecn::NotEct, _) => Some(Ecn::NotEct),
        (_, Ecn::Ce) => Some(Ecn::Ce),
        (Ecn::Ect0, Ecn::Ect1) => Some(Ecn::Ect1),
        (inner, _) => Some(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_wire::ip::Ecn::{Ce, Ect0, Ect1, NotEct};

    const ON: HeaderCopy = HeaderCopy { dscp_out: true, dscp_in: true, ecn: true, df: true };
    const OFF: HeaderCopy = HeaderCopy { dscp_out: false, dscp_in: false, ecn: false, df: false };

    #[test]
    fn every_combination_of_rfc_6040_figure_4() {
        let table = [
            // The inner field, then the result for an outer Not-ECT, ECT(0), ECT(1), CE.
            (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
            (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
            (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
            (Ce, [Some(Ce), Some(Ce), Some(Ce), Some(Ce)]),
        ];
        for (inner, results) in table {
            for (outer, expected) in [NotEct, Ect0, Ect1, Ce].into_iter().zip(results) {
                for copy in [ON, OFF] {
                    let found = inner_class(copy, outer.bits(), inner.bits());
                    assert_eq!(found, expected.map(Ecn::bits), "inner {inner:?}, outer {outer:?}");
                }
            }
        }
    }

    #[test]
    fn encapsulation_copies_what_it_is_told_to() {
        for ecn in [NotEct, Ect0, Ect1, Ce] {
            let inner = 0xb8 | ecn.bits();
            assert_eq!(outer_class(ON, inner), inner);
            assert_eq!(outer_class(OFF, inner), 0);
            assert_eq!(outer_class(HeaderCopy { ecn: true, ..OFF }, inner), ecn.bits());
            assert_eq!(outer_class(HeaderCopy { dscp_out: true, ..OFF }, inner), 0xb8);
        }
    }

    #[test]
    fn dscp_crosses_inwards_only_if_told_to() {
        assert_eq!(inner_class(ON, 0xb8, 0x28), Some(0xb8));
        assert_eq!(inner_class(OFF, 0xb8, 0x28), Some(0x28));
        assert_eq!(inner_class(OFF, 0xb8 | 3, 0x28 | 2), Some(0x28 | 3));
    }
}

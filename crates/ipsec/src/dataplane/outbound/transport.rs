//! Transport mode: packets that this host itself sends to the other end of an SA.

use super::plan::{OutboundPlan, Planner, reported_mtu};
use crate::dataplane::burst::{Item, Verdict};
use crate::drops::DropReason;
use crate::inner::Inner;
use crate::sa::OutboundSa;
use testudo_wire::ah;
use testudo_wire::fragment::Fragment;
use testudo_wire::icmp::Kind;
use testudo_wire::ip::Protocol;
use testudo_wire::seam::Seam;

impl<'s> Planner<'s, '_> {
    /// Plans a packet as in tunnel mode, except that fragments are reassembled first (RFC 4303
    /// §3.1.1) and nothing is split before. A packet that is too big and must not be refused is
    /// fragmented outside.
    #[cold]
    pub(super) fn protect_own(
        &mut self,
        item: &mut Item<'_>,
        inner: &Inner,
        at: u8,
        sa: &'s OutboundSa,
    ) -> Option<OutboundPlan<'s>> {
        let room = self.room(item, sa)?;
        let counters = &self.counters.outbound;
        let refuse = |item: &mut Item<'_>, reason| {
            sa.counters().add_drop(reason);
            item.refuse(reason, counters);
            None
        };
        if !item.ingress.is_host() || item.ingress.is_relayed() {
            return refuse(item, DropReason::NotFromHost);
        }
        match Fragment::parse(item.buf.data()) {
            Ok(None) => {}
            Ok(Some(_)) => {
                counters.to_join.add(1);
                item.verdict = Verdict::Reassemble;
                return None;
            }
            Err(_) => return refuse(item, DropReason::Malformed),
        }
        let seam = Seam::find(item.buf.data()).ok();
        let seam = seam.and_then(|seam| Some((seam.offset(), seam.protocol(item.buf.data())?)));
        let Some((clear, next_header)) = seam else {
            return refuse(item, DropReason::Malformed);
        };
        // The peer takes a packet without a next header for a dummy (RFC 4303 §2.6).
        if next_header == Protocol::NO_NEXT && !sa.outer.is_ah() {
            return refuse(item, DropReason::Dummy);
        }
        // The AH of a bundle in transport mode stands behind the same headers.
        let gets_ah = sa.outer.is_ah() || room.cover.is_some_and(|cover| cover.outer.is_transport());
        if gets_ah && ah::check_headers(item.buf.data(), clear).is_err() {
            return refuse(item, DropReason::AhNotCovered);
        }
        let mtu = sa.outer.mtu_behind(clear, room.mtu);
        let too_big = inner.len > mtu;
        // A sender of fragments has learned the MTU, or does without it.
        let may_shrink = inner.df && !item.ingress.is_joined();
        if too_big && may_shrink && inner.len > reported_mtu(inner, mtu) {
            sa.counters().add_drop(DropReason::TooBig);
            let kind = Kind::TooBig { mtu: reported_mtu(inner, mtu) };
            self.replier.refuse(item, kind, DropReason::TooBig, counters);
            return None;
        }
        let behind = sa.outer.sizes().behind(usize::from(inner.len).saturating_sub(clear));
        if item.buf.headroom() < room.prefix || item.buf.tailroom() < behind {
            return refuse(item, DropReason::NoRoom);
        }
        self.clamp(item, inner, sa, mtu);
        Some(OutboundPlan {
            sa,
            sequence: 0,
            iv: 0,
            len: inner.len,
            at,
            class: inner.class,
            df: inner.df,
            pieces: if too_big { room.pieces(sa, usize::from(inner.len) + behind) } else { None },
            next_header,
        })
    }
}

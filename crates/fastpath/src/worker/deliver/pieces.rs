//! Packets that are larger than their path or link takes: they are split, or refused.

use super::super::channel::WorkerEvent;
use super::super::classify::Direction;
use super::super::drops::WorkerDrop;
use super::super::host::HostPort;
use super::super::origin::{Context, Source};
use super::super::pipeline::Pipeline;
use super::super::route::{Hop, SendHop, destination};
use super::super::split::split;
use super::{Delivery, NO_SOURCES};
use crate::frame::Frame;
use crate::port::Port;
use testudo_wire::icmp::{self, Kind};
use testudo_wire::{ip, ipv4, ipv6};

/// How long no other worker may steal from a worker after it has split packets, in milliseconds.
const SPLITTING_HOLDOFF_MS: u64 = 1000;

impl<P: Port, H: HostPort> Delivery<P, H> {
    /// Forwards in pieces a packet of our own that is larger than the path's MTU, or a packet that
    /// came in fragments and must go on in fragments.
    #[cold]
    pub(super) fn forward_in_pieces(
        &mut self,
        frame: Frame,
        path: u16,
        context: Context,
        pipeline: &impl Pipeline,
    ) {
        let mtu = match self.router.hop_of(frame.data()) {
            Some(Hop::Send(hop)) => path.min(hop.mtu),
            // A packet that must wait for a neighbour then fits any link.
            _ if context.clear => path.min(ipv6::MIN_MTU),
            _ => path,
        };
        if usize::from(frame.len()) <= usize::from(mtu) {
            return self.forward(frame, context, pipeline);
        }
        if mtu < path && !context.clear {
            self.tell_too_big(&frame, mtu);
        }
        self.in_pieces(frame, mtu, |this, piece| this.forward(piece, context, pipeline));
    }

    pub(super) fn resubmit_in_pieces(&mut self, frame: Frame, mtu: u16, context: Context) {
        if context.source == Source::Again {
            return self.discard(frame, WorkerDrop::Resubmitted);
        }
        self.split_at = Some(self.now);
        self.in_pieces(frame, mtu, Self::submit_again);
    }

    /// True while packets are split to be protected, and for some time after. Pieces are queued
    /// behind all tasks that are out. With many bursts out, a later packet that is not split would
    /// leave long before the pieces, and a Linux receiver gives up a datagram whose fragments
    /// arrive more than `ipfrag_max_dist` (64) fragments apart.
    #[inline]
    pub(in crate::worker) fn is_splitting(&self) -> bool {
        self.split_at.is_some_and(|at| self.now.saturating_sub(at) < SPLITTING_HOLDOFF_MS)
    }

    /// Splits a packet and gives each piece to `next`.
    fn in_pieces(&mut self, frame: Frame, mtu: u16, mut next: impl FnMut(&mut Self, Frame)) {
        match split(&frame, mtu, &mut self.ids, &mut self.pool) {
            Ok(pieces) => {
                self.counters.split.add(pieces.len() as u64 - 1);
                self.pool.give(frame);
                pieces.into_iter().for_each(|piece| next(self, piece));
            }
            Err(reason) => self.discard(frame, reason),
        }
    }

    /// Handles a packet that is larger than the MTU of its next hop's link.
    #[cold]
    pub(super) fn too_big(&mut self, mut frame: Frame, hop: &SendHop, context: Context) {
        let mtu = hop.mtu;
        let own_v6 = !context.clear && ip::version(frame.data()) == Some(6);
        if own_v6 {
            self.tell_too_big(&frame, mtu);
        }
        // Only the source may fragment an IPv6 packet; of an outer packet we are the source (RFC
        // 8200 §5).
        if own_v6 || ip::version(frame.data()) == Some(4) && !ipv4::is_df(frame.data()) {
            return self.in_pieces(frame, mtu, |this, piece| {
                this.egress.send(piece, hop, &mut this.pool, &this.counters);
            });
        }
        self.counters.count_drop(WorkerDrop::LinkTooBig);
        if !context.clear {
            self.tell_too_big(&frame, mtu);
            return self.pool.give(frame);
        }
        let kind = Kind::TooBig { mtu };
        if self.answers_left == 0 || context.source == Source::Again || !icmp::may_answer(frame.data(), kind)
        {
            return self.pool.give(frame);
        }
        self.answers_left -= 1;
        let sources = match context.direction {
            Direction::Outbound | Direction::Clear => self.error_sources(context.source),
            Direction::Inbound => &NO_SOURCES,
        };
        let mut packet = frame.packet();
        let answered = icmp::answer(&mut packet, kind, sources);
        let (start, len) = (packet.start(), packet.len());
        if answered.is_err() || !frame.set_extent(start, len) {
            return self.pool.give(frame);
        }
        self.counters.generated.add(1);
        self.reply(frame, context);
    }

    fn tell_too_big(&mut self, frame: &Frame, mtu: u16) {
        if let Some(remote) = destination(frame.data())
            && !self.told_too_big
        {
            self.told_too_big = true;
            self.tell(WorkerEvent::PathTooBig { remote, mtu });
        }
    }
}

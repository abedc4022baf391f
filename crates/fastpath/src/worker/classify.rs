//! Classifies received frames by the filter's stamp and an Ethernet header that carries IP.
//!
//! The stamp is a hint. The pipeline parses strictly again and drops a frame with a wrong stamp.

use super::drops::WorkerDrop;
use crate::fib::PortIndex;
use crate::filter::{Class, STAMP_LEN, Stamp};
use crate::frame::Frame;
use testudo_base::spi::Shard;
use testudo_wire::ethernet::{EtherType, Ethernet, HEADER};

/// The two halves of the pipeline, and the check of clear packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Towards the peer: to be protected.
    Outbound,
    /// From the peer: to be verified and decrypted.
    Inbound,
    /// In clear, from where a peer's packets come protected: the SPD decides.
    Clear,
}

/// The direction of a frame, and what other nodes of the cluster have to do with it (of frames to be
/// protected).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    Outbound,
    OutboundFlooded,
    /// Its lane is in the octet before the packet.
    OutboundInTurn,
    Inbound,
    Clear,
}

/// A port's settings for the clear packets that come in by it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The routes to the sources of packets to be protected must lead out of this port.
    pub(super) checked: Option<PortIndex>,
    /// True if open checksums are filled in.
    pub(super) fills: bool,
}

/// Classifies the frame and strips its Ethernet header. On an error the frame is unchanged.
#[inline]
pub(super) fn classify(frame: &mut Frame) -> Result<Arrived, WorkerDrop> {
    let stamp = stamp(frame).ok_or(WorkerDrop::NoStamp)?;
    let arrived = match stamp.class {
        Class::Protect => Arrived::Outbound,
        Class::ProtectInTurn => Arrived::OutboundInTurn,
        Class::ProtectFlooded => Arrived::OutboundFlooded,
        Class::Esp | Class::EspInUdp => Arrived::Inbound,
        Class::Clear => Arrived::Clear,
    };
    let (ethernet, packet) = Ethernet::parse(frame.data()).map_err(|_| WorkerDrop::BadEthernet)?;
    let len = packet.len();
    let is_ip = matches!(ethernet.ethertype, EtherType::IPV4 | EtherType::IPV6);
    if is_ip && frame.set_extent(usize::from(frame.start()) + HEADER, len) {
        if arrived == Arrived::OutboundInTurn {
            keep_lane(frame, stamp.lane);
        }
        Ok(arrived)
    } else {
        Err(WorkerDrop::BadEthernet)
    }
}

/// Puts the lane where the pipeline expects it, over the Ethernet header that is no longer needed.
fn keep_lane(frame: &mut Frame, lane: Shard) {
    let before = usize::from(frame.start()).checked_sub(1);
    if let Some(octet) = before.and_then(|at| frame.bytes_mut().get_mut(at)) {
        *octet = lane.0;
    }
}

/// The stamp lies directly before the packet.
#[inline]
fn stamp(frame: &Frame) -> Option<Stamp> {
    let (before, _) = frame.bytes().split_at_checked(usize::from(frame.start()))?;
    Stamp::read(*before.last_chunk::<STAMP_LEN>()?)
}

//! Which way a received frame goes: what the filter has stamped on it, and an Ethernet header that
//! carries IP.
//!
//! The stamp is a hint. The pipeline parses strictly again, and a frame with a wrong stamp is
//! dropped there.

use super::drops::WorkerDrop;
use crate::fib::PortIndex;
use crate::filter::{Class, STAMP_LEN, Stamp};
use crate::frame::Frame;
use testudo_wire::ethernet::{EtherType, Ethernet, HEADER};

/// The two halves of the pipeline, and what stands before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Towards the peer: to be protected.
    Outbound,
    /// From the peer: to be verified and opened.
    Inbound,
    /// In clear, from where a peer's packets come protected: to be judged.
    Clear,
}

/// What a frame is for, and, if it is to be protected, whether all nodes of the cluster have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    Outbound,
    OutboundFlooded,
    Inbound,
    Clear,
}

/// What a port's settings ask of clear packets that come in by it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Routes to the sources of what is to be protected must lead back to this port.
    pub(super) checked: Option<PortIndex>,
    /// Checksums that were left open are filled in.
    pub(super) fills: bool,
}

/// Says where the frame goes and strips its Ethernet header. On an error the frame is as it was.
#[inline]
pub(super) fn classify(frame: &mut Frame) -> Result<Arrived, WorkerDrop> {
    let arrived = match stamp(frame).ok_or(WorkerDrop::NoStamp)?.class {
        Class::Protect => Arrived::Outbound,
        Class::ProtectFlooded => Arrived::OutboundFlooded,
        Class::Esp | Class::EspInUdp => Arrived::Inbound,
        Class::Clear => Arrived::Clear,
    };
    let (ethernet, packet) = Ethernet::parse(frame.data()).map_err(|_| WorkerDrop::BadEthernet)?;
    let len = packet.len();
    let is_ip = matches!(ethernet.ethertype, EtherType::IPV4 | EtherType::IPV6);
    if is_ip && frame.set_extent(usize::from(frame.start()) + HEADER, len) {
        Ok(arrived)
    } else {
        Err(WorkerDrop::BadEthernet)
    }
}

/// The stamp lies directly before the packet.
#[inline]
fn stamp(frame: &Frame) -> Option<Stamp> {
    let (before, _) = frame.bytes().split_at_checked(usize::from(frame.start()))?;
    Stamp::read(*before.last_chunk::<STAMP_LEN>()?)
}

//! Frames that a port has received, before the pipeline gets them.

use super::super::classify::{Arrived, Rules, classify};
use super::super::drops::WorkerDrop;
use super::super::host::HostPort;
use super::Delivery;
use crate::frame::Frame;
use crate::port::Port;
use testudo_wire::offload::fill_open;

impl<P: Port, H: HostPort> Delivery<P, H> {
    /// Decides where a frame goes by the port's rules, and strips its Ethernet header. The checksum
    /// of a clear packet is complete after this, wherever the packet goes. The checksum inside ESP
    /// is not touched: the ICV protects it.
    #[inline]
    pub(in super::super) fn admit(&mut self, frame: &mut Frame, rules: Rules) -> Result<Arrived, WorkerDrop> {
        let arrived = classify(frame)?;
        let checked = match arrived {
            Arrived::Inbound => return Ok(arrived),
            Arrived::Clear => None,
            Arrived::Outbound | Arrived::OutboundFlooded | Arrived::OutboundInTurn => rules.checked,
        };
        if checked.is_some_and(|port| !self.router.leads_back(frame.data(), port)) {
            return Err(WorkerDrop::SpoofedSource);
        }
        if rules.fills && fill_open(frame.data_mut()) {
            self.counters.checksum_filled.add(1);
        }
        Ok(arrived)
    }
}

//! Taking packets: from a port, from the kernel, and from those that came before their SA.

use super::classify::{Arrived, Direction, Rules};
use super::origin::{Copies, Source};
use super::{HostPort, Pipeline, Worker};
use crate::port::{FrameBurst, Port};

impl<P: Port, H: HostPort, D: Pipeline> Worker<P, H, D> {
    /// Works on the packets that came before their SA, in the order of their arrival.
    pub(super) fn receive_early(&mut self) {
        while let Some((frame, source)) = self.delivery.take_early() {
            let mut burst = FrameBurst::new();
            burst.push(frame);
            self.run(&mut burst, Direction::Inbound, source);
            self.run_again();
        }
    }

    /// Takes one burst from a port through the pipeline.
    #[inline]
    pub(super) fn receive(&mut self, place: usize) -> bool {
        let mut received = FrameBurst::new();
        let delivery = &mut self.delivery;
        delivery.egress.receive(place, &mut received, &mut delivery.pool, &delivery.counters);
        if received.is_empty() {
            return false;
        }
        if self.offer(&mut received, place) {
            return true;
        }
        let rules = self.rules(place);
        let (mut outbound, mut inbound) = (FrameBurst::new(), FrameBurst::new());
        let (mut flooded, mut clear) = (FrameBurst::new(), FrameBurst::new());
        let mut in_turn = FrameBurst::new();
        for mut frame in received.drain(..) {
            match self.delivery.admit(&mut frame, rules) {
                Ok(Arrived::Inbound) => inbound.push(frame),
                Ok(Arrived::Clear) => clear.push(frame),
                Ok(Arrived::Outbound) => outbound.push(frame),
                Ok(Arrived::OutboundFlooded) => flooded.push(frame),
                Ok(Arrived::OutboundInTurn) => in_turn.push(frame),
                Err(reason) => self.delivery.discard(frame, reason),
            }
        }
        // There are at most `MAX_PORTS_PER_WORKER`.
        let from = |copies| Source::Port { place: place as u8, copies, joined: false };
        self.run_here(&mut outbound, Direction::Outbound, from(Copies::Here));
        self.run_here(&mut in_turn, Direction::Outbound, from(Copies::InTurn));
        self.run_here(&mut flooded, Direction::Outbound, from(Copies::Flooded));
        self.run_here(&mut inbound, Direction::Inbound, from(Copies::Here));
        self.run_here(&mut clear, Direction::Clear, from(Copies::Here));
        self.run_again();
        true
    }

    /// The port's settings for received packets.
    #[inline]
    pub(super) fn rules(&self, place: usize) -> Rules {
        let port = self.delivery.port(place);
        Rules {
            checked: port.filter(|port| !self.config.unchecked.contains(*port)),
            fills: port.is_some_and(|port| self.config.fills.contains(port)),
        }
    }

    /// Takes one burst from the kernel through the pipeline, as large as a port's. While there is
    /// more, the next turn reads again. Each time that the TUN is empty, it is left alone for
    /// longer.
    pub(super) fn receive_from_host(&mut self) -> bool {
        let mut burst = FrameBurst::new();
        let delivery = &mut self.delivery;
        if let Some(host) = &mut delivery.host {
            self.inbox.fill(host, &mut delivery.pool, &delivery.counters, &mut burst);
        }
        if burst.is_empty() {
            self.tun_rest = (self.tun_rest * 2).clamp(1, self.config.tun_interval.max(1));
            self.turns_to_tun = self.tun_rest;
            return false;
        }
        self.tun_rest = 0;
        self.run(&mut burst, Direction::Outbound, Source::Tun);
        self.run_again();
        true
    }
}

//! A server without a socket.

use super::{Gateway, message};
use std::time::Duration;
use testudo_ike::config::SharedSecret;
use testudo_ike::output::Time;
use testudo_vici::Error;
use testudo_vici::codec::{Deframer, MAX_READ, Packet};
use testudo_vici::message::Message;
use testudo_vici::server::{ClientId, Server};

pub(crate) fn at(seconds: u64) -> Time {
    Time(Duration::from_secs(seconds))
}

/// A server, a gateway and one client, without anything between them.
pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) gateway: Gateway,
    pub(crate) client: ClientId,
    pub(crate) now: Time,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let mut server = Server::new();
        let client = server.connect().unwrap();
        Self { server, gateway: Gateway::default(), client, now: at(0) }
    }

    pub(crate) fn send(&mut self, packet: &Packet) -> Result<(), Error> {
        let mut bytes = Vec::new();
        packet.encode(&mut bytes).unwrap();
        bytes.chunks(MAX_READ).try_for_each(|chunk| {
            assert!(self.server.wants_input(self.client));
            self.server.receive(self.client, chunk, self.now, &mut self.gateway)
        })
    }

    /// All packets that wait for the client, who reads as much as there is.
    pub(crate) fn receive(&mut self) -> Vec<Packet> {
        let mut deframer = Deframer::default();
        let mut packets = Vec::new();
        loop {
            let output = self.server.poll_output(self.client, self.now, &mut self.gateway).unwrap();
            let len = output.len().min(MAX_READ);
            deframer.push(&output[..len]).unwrap();
            self.server.sent(self.client, len);
            if len == 0 && !self.server.is_busy(self.client) {
                return packets;
            }
            while let Some(bytes) = deframer.next_packet().unwrap() {
                packets.push(Packet::parse(&bytes).unwrap());
            }
        }
    }

    pub(crate) fn exchange(&mut self, packet: &Packet) -> Packet {
        self.send(packet).unwrap();
        let mut packets = self.receive();
        assert_eq!(packets.len(), 1, "{packets:?}");
        packets.remove(0)
    }

    pub(crate) fn request(&mut self, name: &str, arguments: Message) -> Message {
        match self.exchange(&Packet::CmdRequest(name.to_owned(), arguments)) {
            Packet::CmdResponse(message) => message,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn errmsg(&mut self, name: &str, arguments: &[(&str, &str)]) -> String {
        let answer = self.request(name, message(arguments));
        assert_eq!(answer.text("success"), Some("no"), "{name}");
        answer.text("errmsg").unwrap().to_owned()
    }
}

pub(crate) fn register(event: &str) -> Packet {
    Packet::EventRegister(event.to_owned())
}

pub(crate) fn unregister(event: &str) -> Packet {
    Packet::EventUnregister(event.to_owned())
}

pub(crate) fn command(name: &str, arguments: &[(&str, &str)]) -> Packet {
    Packet::CmdRequest(name.to_owned(), message(arguments))
}

pub(crate) fn secret(name: &str) -> SharedSecret {
    SharedSecret {
        name: name.to_owned(),
        kind: Default::default(),
        owners: Vec::new(),
        secret: b"key".to_vec(),
    }
}

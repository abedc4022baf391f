//! Packets and messages, and the stream that carries them.

use crate::input::Input;
use testudo_vici::Error;
use testudo_vici::codec::{self, Deframer, Packet};

/// `cut:8 | octets`: as a message, as a packet, and as a stream that arrives in pieces of `cut +
/// 1`.
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let cut = usize::from(input.u8()) + 1;
    let octets = input.rest();
    if let Ok(message) = codec::parse(octets) {
        // There is only one encoding, so it must be the one that was read.
        let mut again = Vec::new();
        codec::encode(&message, &mut again).expect("what was read can be written");
        assert_eq!(again, octets);
        assert_eq!(codec::encoded_len(&message), octets.len());
    }
    if let Ok(packet) = Packet::parse(octets) {
        assert_eq!(framed(&packet)[4..], *octets);
        assert_eq!(octets.first(), Some(&packet.kind()));
    }
    let (whole, pieces) = (deframe(octets, octets.len().max(1)), deframe(octets, cut));
    assert_eq!(whole, pieces, "where the stream is cut makes no difference");
}

fn framed(packet: &Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes).expect("what was read can be written");
    bytes
}

/// The packets of a stream, and the error that ends it.
fn deframe(stream: &[u8], cut: usize) -> (Vec<Vec<u8>>, Option<String>) {
    let mut deframer = Deframer::default();
    let mut packets = Vec::new();
    let mut feed = |piece: &[u8]| -> Result<(), Error> {
        deframer.push(piece)?;
        while let Some(packet) = deframer.next_packet()? {
            packets.push(packet.to_vec());
        }
        Ok(())
    };
    let error = stream.chunks(cut).try_for_each(&mut feed).err();
    (packets, error.map(|error| error.to_string()))
}

//! Fragmentation of IPv4: reassembling the fragments yields the packet.

use crate::input::Input;
use testudo_wire::Error;
use testudo_wire::ipv4::{Ipv4, fragment};

/// `flags:8 | mtu:16 | packet`.
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let (flags, mtu) = (input.u8(), input.u16());
    let packet = super::packet(&mut input, flags);
    let Ok(mut fragments) = fragment(&packet, mtu) else { return };
    let whole = Ipv4::parse(&packet).expect("only a packet is split");
    assert!(!whole.df());
    // Pieces of a fragment near the highest offset wrap around; a receiver refuses them.
    let fits = whole.fragment_offset() + whole.payload().len() < 65_536;
    let mut payload: Vec<u8> = Vec::new();
    for left in (0..fragments.remaining()).rev() {
        let len = fragments.next_len().expect("as many as were announced");
        assert!(len <= usize::from(mtu));
        let mut out = vec![0xee; len];
        let short = fragments.write_next(&mut out[..len - 1]);
        assert_eq!(short, Err(Error::NoRoom { found: len - 1, expected: len }));
        assert_eq!(fragments.write_next(&mut out), Ok(Some(len)));
        let piece = Ipv4::parse_verified(&out).expect("a piece is a packet");
        assert_eq!(piece.total_len(), len);
        assert_eq!((piece.id(), piece.protocol(), piece.ttl()), (whole.id(), whole.protocol(), whole.ttl()));
        assert_eq!((piece.src(), piece.dst(), piece.tos()), (whole.src(), whole.dst(), whole.tos()));
        assert_eq!(piece.mf(), left > 0 || whole.mf());
        assert!(left == 0 || piece.payload().len().is_multiple_of(8));
        if fits {
            assert_eq!(piece.fragment_offset(), whole.fragment_offset() + payload.len());
        }
        payload.extend(piece.payload());
    }
    assert_eq!(payload, whole.payload());
    assert_eq!((fragments.remaining(), fragments.next_len()), (0, None));
    assert_eq!(fragments.write_next(&mut []), Ok(None));
}

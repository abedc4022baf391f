//! The numbers of a captured ESP packet.

const ETHERNET: usize = 14;
const UDP: usize = 8;
const IPV4: [u8; 2] = [8, 0];
const IPV6: [u8; 2] = [0x86, 0xdd];
const IP_ESP: u8 = 50;
const IP_UDP: u8 = 17;
/// The port of ESP in UDP, and of IKE behind four octets of zero (RFC 3948 §2.2).
const NAT_PORT: [u8; 2] = 4500_u16.to_be_bytes();

/// What no two packets of an SA may have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EspPacket {
    /// The SPI, which is not 0.
    pub spi: u32,
    /// The sequence number, or its lower half.
    pub sequence: u32,
    /// The eight octets behind it: the IV of AES-GCM (RFC 4106 §3.1).
    pub iv: [u8; 8],
}

impl EspPacket {
    /// Reads a frame with plain ESP, or ESP in UDP. `None` for anything else, for a later fragment,
    /// and for IPv6 with extension headers.
    pub fn read(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(ETHERNET..)?;
        let (protocol, payload) = match *frame.get(12..ETHERNET)?.first_chunk()? {
            IPV4 => {
                let offset = u16::from_be_bytes(*packet.get(6..)?.first_chunk()?) & 0x1fff;
                let header = usize::from(packet.first()? & 0xf) * 4;
                (*packet.get(9)?, (offset == 0).then_some(packet.get(header..)?)?)
            }
            IPV6 => (*packet.get(6)?, packet.get(40..)?),
            _ => return None,
        };
        match protocol {
            IP_ESP => Self::of(payload),
            IP_UDP if [payload.get(..2)?, payload.get(2..4)?].contains(&&NAT_PORT[..]) => {
                Self::of(payload.get(UDP..)?)
            }
            _ => None,
        }
    }

    fn of(esp: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(*esp.get(at..)?.first_chunk()?));
        let (spi, sequence, iv) = (word(0)?, word(4)?, *esp.get(8..)?.first_chunk()?);
        (spi != 0).then_some(Self { spi, sequence, iv })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESP: [u8; 17] = [0xc0, 0, 0, 1, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0xff];
    const READ: EspPacket = EspPacket { spi: 0xc000_0001, sequence: 7, iv: [1, 2, 3, 4, 5, 6, 7, 8] };

    fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut header = [0_u8; 24];
        (header[0], header[9]) = (0x46, protocol);
        [&[0; 12][..], &IPV4, &header, payload].concat()
    }

    fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut header = [0_u8; 40];
        (header[0], header[6]) = (0x60, protocol);
        [&[0; 12][..], &IPV6, &header, payload].concat()
    }

    fn udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
        [&ports[0].to_be_bytes()[..], &ports[1].to_be_bytes(), &[0; 4], payload].concat()
    }

    #[test]
    fn esp_is_read_plain_and_in_udp_over_both_families() {
        for ip in [ipv4, ipv6] {
            assert_eq!(EspPacket::read(&ip(IP_ESP, &ESP)), Some(READ));
            for ports in [[4500, 4500], [4500, 1024], [1024, 4500]] {
                assert_eq!(EspPacket::read(&ip(IP_UDP, &udp(ports, &ESP))), Some(READ));
            }
        }
    }

    #[test]
    fn what_is_no_whole_beginning_of_esp_is_not_read() {
        for length in 0..16 {
            assert_eq!(EspPacket::read(&ipv4(IP_ESP, &ESP[..length])), None, "{length}");
        }
        let ike = [&[0; 4][..], &ESP].concat();
        assert_eq!(EspPacket::read(&ipv4(IP_UDP, &udp([4500, 4500], &ike))), None);
        assert_eq!(EspPacket::read(&ipv4(IP_UDP, &udp([4500, 4500], &[0xff]))), None);
        assert_eq!(EspPacket::read(&ipv4(IP_UDP, &udp([500, 500], &ESP))), None);
        assert_eq!(EspPacket::read(&ipv4(6, &ESP)), None);
        let mut fragment = ipv4(IP_ESP, &ESP);
        fragment[ETHERNET + 7] = 1;
        assert_eq!(EspPacket::read(&fragment), None);
        assert_eq!(EspPacket::read(&[]), None);
    }
}

//! Clear traffic to deal out: sessions whose packets are headers, without the data behind them.

use std::net::Ipv4Addr;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4;

/// Octets of the IPv4 and TCP headers.
pub(super) const HEADERS: usize = ipv4::HEADER + 20;
/// The packets of the traffic that [FLAT] took from a campus router: its mean and deviation are
/// those of these two sizes.
const LARGE: u16 = 1500;
const SMALL: u16 = 306;
/// How many of a thousand are large.
const LARGE_OF_1000: u64 = 738;
/// Octets of a session of that traffic.
const MEAN: f64 = 72_615.0;
const DEVIATION: f64 = 460_311.287;
/// Its sessions.
const SESSIONS: u32 = 18_229;

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// As many sessions and packets as [FLAT] has, with their means and deviations. Sessions are
    /// log-normal.
    Campus,
    /// Many equal sessions.
    Equal,
    /// One session.
    One,
}

/// A session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    number: u32,
    pub(super) packets: u32,
    is_mixed: bool,
}

/// Pseudorandom numbers, reproducible: SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Above 0, at most 1.
    fn fraction(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Of the standard normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.fraction().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.fraction()).cos()
    }
}

impl Traffic {
    pub(super) const ALL: [Self; 3] = [Self::Campus, Self::Equal, Self::One];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Campus => "18 229 sessions as in [FLAT]",
            Self::Equal => "1000 equal sessions",
            Self::One => "one TCP stream",
        }
    }

    /// The sessions of one sample.
    pub(super) fn sessions(self, seed: u64) -> Vec<Session> {
        let session = |number, packets| Session { number, packets, is_mixed: self == Self::Campus };
        match self {
            Self::Campus => {
                let mut random = Random(seed);
                (0..SESSIONS).map(|number| session(number, random.packets())).collect()
            }
            Self::Equal => (0..1000).map(|number| session(number, 200)).collect(),
            Self::One => vec![session(0, 200_000)],
        }
    }
}

impl Random {
    /// The packets of a session whose octets are log-normal with mean and deviation of [FLAT].
    fn packets(&mut self) -> u32 {
        let variance = (1.0 + (DEVIATION / MEAN).powi(2)).ln();
        let octets = (MEAN.ln() - variance / 2.0 + variance.sqrt() * self.normal()).exp();
        let share = LARGE_OF_1000 as f64 / 1000.0;
        let packet = share * f64::from(LARGE) + (1.0 - share) * f64::from(SMALL);
        (octets / packet).round().max(1.0) as u32
    }
}

impl Session {
    /// Its number: no two of a sample have the same.
    pub(super) fn number(self) -> u32 {
        self.number
    }

    /// Calls `each` with the headers of every packet and its octets, the first one first.
    pub(super) fn for_each(self, mut each: impl FnMut(&[u8; HEADERS], u16)) {
        let Self { number, packets, is_mixed } = self;
        let mut random = Random(u64::from(number) ^ 0x5EED_5EED);
        let mut sequence = random.next() as u32;
        for packet in 0..packets {
            let is_small = is_mixed && random.next() % 1000 >= LARGE_OF_1000;
            let octets = if is_small { SMALL } else { LARGE };
            each(&headers(number, packet, sequence, octets), octets);
            sequence = sequence.wrapping_add(u32::from(octets) - HEADERS as u32);
        }
    }
}

/// A segment of a session: each has a port of its own, and one of 4096 hosts.
fn headers(session: u32, packet: u32, sequence: u32, octets: u16) -> [u8; HEADERS] {
    let [_, _, high, low] = (session % 4096).to_be_bytes();
    let header = ipv4::Fields {
        tos: 0,
        total_len: octets,
        id: packet as u16,
        df: true,
        ttl: 64,
        protocol: Protocol::TCP,
        src: Ipv4Addr::new(10, 1, high, low),
        dst: Ipv4Addr::new(10, 2, 0, 20),
    };
    let mut packet = [0; HEADERS];
    let (ip, tcp) = packet.split_at_mut(ipv4::HEADER);
    ip.copy_from_slice(&header.to_bytes());
    tcp[..2].copy_from_slice(&(1024 + (session % 60_000) as u16).to_be_bytes());
    tcp[2..4].copy_from_slice(&443_u16.to_be_bytes());
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    tcp[12] = 5 << 4;
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_traffic_is_met() {
        let sessions = Traffic::Campus.sessions(1);
        assert_eq!(sessions.len(), 18_229);
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for session in sessions {
            session.for_each(|_, octets| {
                count += 1.0;
                sum += f64::from(octets);
                squares += f64::from(octets).powi(2);
            });
        }
        let mean: f64 = sum / count;
        let deviation = (squares / count - mean * mean).sqrt();
        assert!((mean - 1187.8).abs() < 10.0 && (deviation - 524.6).abs() < 10.0, "{mean}, {deviation}");
        // Of so heavy a tail the sum differs from sample to sample.
        assert!((900_000.0..1_500_000.0).contains(&count), "{count} packets");
    }

    #[test]
    fn packets_of_a_session_have_their_ports_in_common_and_nothing_else_that_matters() {
        let mut seen: Vec<[u8; HEADERS]> = Vec::new();
        Traffic::Equal.sessions(1)[7].for_each(|packet, _| seen.push(*packet));
        assert_eq!(seen.len(), 200);
        assert!(seen.iter().all(|packet| packet[12..24] == seen[0][12..24]));
        let mut numbers: Vec<&[u8]> = seen.iter().map(|packet| &packet[24..28]).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 200);
    }
}

//! How many packets the ports can bring in: an SA cannot have carried more unheard.

use testudo_fastpath::fib::PortLink;
use testudo_fastpath::port::speed_of;

/// Octets that the smallest frame takes on the wire, with its preamble and the gap behind it
/// (IEEE 802.3 §4.2.7, §4.4.2).
const MIN_FRAME_OCTETS: u64 = 84;
/// Mb/s of a port whose driver does not tell: as fast as one host could possibly handle.
const ASSUMED_MEGABITS: u32 = 100_000;

/// Packets a second, of all ports together: those of one SA may come by several.
pub(super) fn of(ports: &[PortLink]) -> u64 {
    let speed = |port: &PortLink| {
        // The speed of a missing interface is not known: another device may come.
        speed_of(&port.name).unwrap_or_else(|error| {
            tracing::debug!("{error}");
            None
        })
    };
    at(ports.iter().map(speed))
}

fn at(speeds: impl Iterator<Item = Option<u32>>) -> u64 {
    speeds
        .map(|speed| u64::from(speed.unwrap_or(ASSUMED_MEGABITS)) * 1_000_000 / (8 * MIN_FRAME_OCTETS))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_carry_as_many_of_the_smallest_frames_as_their_speed_allows() {
        assert_eq!(at([Some(1000)].into_iter()), 1_488_095);
        assert_eq!(at([Some(10_000), Some(1000)].into_iter()), 14_880_952 + 1_488_095);
        assert_eq!(at([None].into_iter()), 148_809_523);
        assert_eq!(at([].into_iter()), 0);
    }
}

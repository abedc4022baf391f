//! Anti-replay: the accepted sequence numbers of an inbound SA, and the floor for a node that takes
//! the SA over.

mod lanes;
#[cfg(test)]
mod tests;
mod window;

pub use lanes::{LaneFloor, Lanes};
pub use window::{MAX_WINDOW, ReplayWindow, WindowSnapshot};

/// The floor for a node that takes an inbound SA over: numbers up to it count as seen. It is the
/// higher one of two: the high-water mark that the former owner last reported, and the highest
/// number that this node itself has seen. That packet was not verified: if it claims to be more
/// than `reach` ahead, it counts as that far ahead. This is more than the former owner can have
/// accepted since its report, and bounds the harm of a forged packet.
///
/// The number seen has the true low 32 bits. With ESN its high ones may be too low, on a node that
/// has not seen all of the SA's life.
pub fn floor(high_water_mark: u64, seen: Option<u64>, reach: u64, esn: bool) -> u64 {
    let Some(seen) = seen else { return high_water_mark };
    let whole = if esn && seen < high_water_mark {
        // Of the numbers with these low bits, the one nearest to the mark.
        let ahead = (seen as u32).wrapping_sub(high_water_mark as u32) as i32;
        high_water_mark.saturating_add_signed(ahead.into())
    } else {
        seen
    };
    whole.clamp(high_water_mark, high_water_mark.saturating_add(reach))
}

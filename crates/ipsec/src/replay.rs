//! Anti-replay: the accepted sequence numbers of an inbound SA, and the floor for a node that takes
//! the SA over.

mod lanes;
#[cfg(test)]
mod tests;
mod window;

pub use lanes::Lanes;
pub use window::{MAX_WINDOW, ReplayWindow, WindowSnapshot};

/// The floor for a node that takes an inbound SA over: numbers up to it count as seen. It is the
/// higher one of two: the high-water mark that the former owner last reported, and the highest
/// number that this node itself has seen, of which it knows the low 32 bits. That packet was not
/// verified: if it claims to be more than `reach` ahead, it counts as that far ahead. This is more
/// than the former owner can have accepted since its report, and bounds the harm of a forged
/// packet.
pub fn floor(high_water_mark: u64, seen: Option<u32>, reach: u64, esn: bool) -> u64 {
    let Some(low) = seen else { return high_water_mark };
    let whole = if esn {
        // Of the numbers with these low bits, the one nearest to the mark.
        let ahead = low.wrapping_sub(high_water_mark as u32) as i32;
        high_water_mark.saturating_add_signed(ahead.into())
    } else {
        u64::from(low)
    };
    whole.clamp(high_water_mark, high_water_mark.saturating_add(reach))
}

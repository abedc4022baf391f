//! Anti-replay: which sequence numbers of an inbound SA have been accepted, and above which number
//! a node accepts them that takes the SA over.

#[cfg(test)]
mod tests;
mod window;

pub use window::{MAX_WINDOW, ReplayWindow, WindowSnapshot};

/// Up to where numbers count as seen for a node that takes an inbound SA over: up to the high-water
/// mark that the former owner has told last, and up to the highest number that this node itself has
/// seen pass, of which it knows the low 32 bits. It has not verified that packet: one that claims
/// to be more than `reach` ahead counts as that far ahead, which is more than the former owner can
/// have accepted since it told, and all that a forged one can cost.
pub fn floor(high_water_mark: u64, seen: Option<u32>, reach: u64, esn: bool) -> u64 {
    let Some(low) = seen else { return high_water_mark };
    let whole = if esn {
        // Of the numbers with these low bits the one that is nearest to the mark.
        let ahead = low.wrapping_sub(high_water_mark as u32) as i32;
        high_water_mark.saturating_add_signed(ahead.into())
    } else {
        u64::from(low)
    };
    whole.clamp(high_water_mark, high_water_mark.saturating_add(reach))
}

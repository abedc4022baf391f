//! Anti-replay: which sequence numbers of an inbound SA have been accepted, and from where on a node accepts them that takes the SA
//! over.

#[cfg(test)]
mod tests;
mod window;

pub use window::{MAX_WINDOW, ReplayWindow, WindowSnapshot};

/// Up to where numbers count as seen for a node that takes an inbound SA over: as far as its former owner has told (`edge`), and
/// as far as the highest number goes that this node itself has seen pass, of which it knows the low 32 bits. It has not verified
/// that packet: one that claims to be more than `reach` ahead counts as that far ahead, which is more than the former owner can
/// have accepted since it told, and all that a forged one can cost.
pub fn floor(edge: u64, seen: Option<u32>, reach: u64, esn: bool) -> u64 {
    let Some(low) = seen else { return edge };
    let whole = if esn {
        // Of the numbers with these low bits the one that is nearest to the edge.
        let ahead = low.wrapping_sub(edge as u32) as i32;
        edge.saturating_add_signed(ahead.into())
    } else {
        u64::from(low)
    };
    whole.clamp(edge, edge.saturating_add(reach))
}

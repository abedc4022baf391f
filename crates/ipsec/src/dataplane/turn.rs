//! Bursts in several workers' hands at once, so that one SA gets more than one core.
//!
//! Each worker has a data plane of its own, and all have the same SAs, so any of them may take any
//! burst. Two things depend on the order in which bursts came: their sequence numbers, and the
//! replay checks. If several workers have bursts of one queue in hand, each does these two at the
//! burst's turn, and everything else, the look-ups and the cipher among it, at any time. Both are
//! short, so that no worker waits for long. The owner that sends the packets restores their order.

/// The turn of a burst.
pub trait Turn {
    /// Waits until all earlier bursts have had their turn.
    fn begin(&mut self);

    /// Ends the turn: the next burst has its turn. Later calls do nothing.
    fn end(&mut self);
}

//! Bursts in several hands at once, so that one SA gets more than one core.
//!
//! Each worker has a data plane of its own, and all have the same SAs; so any of them may take any
//! burst. Two things depend on the order in which bursts came: their sequence numbers, and what
//! replay windows say of them. Where several workers have bursts of one queue in hand, each does
//! these at its turn, and all else, the look-ups and the cipher among it, whenever it comes to it.
//! Both are short, so that nobody waits for long. Who sends the packets on restores their order.

/// When it is a burst's turn.
pub trait Turn {
    /// Waits until all bursts that came earlier have had theirs.
    fn begin(&mut self);

    /// It is the next one's turn. Whatever is called from then on does nothing.
    fn end(&mut self);
}

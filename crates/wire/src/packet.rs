//! A packet inside a larger frame, so that headers and a trailer can be added in place.
#![cfg_attr(
    not(test),
    expect(
        clippy::indexing_slicing,
        reason = "`start..end` lies in the frame: each method that moves them checks that"
    )
)]

/// Octets of a packet with room on both sides; the frame belongs to its owner (an AF_XDP UMEM, a
/// test).
#[derive(Debug)]
pub struct PacketBuf<'a> {
    frame: &'a mut [u8],
    start: usize,
    end: usize,
}

impl<'a> PacketBuf<'a> {
    /// The packet is `frame[start..start + len]`. `None` if that is outside the frame.
    pub fn new(frame: &'a mut [u8], start: usize, len: usize) -> Option<Self> {
        let end = start.checked_add(len)?;
        (end <= frame.len()).then_some(Self { frame, start, end })
    }

    /// The packet's bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.frame[self.start..self.end]
    }

    /// The packet's bytes, to be changed.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.frame[self.start..self.end]
    }

    /// Offset of the packet in its frame.
    #[inline]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Octets in the packet.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// True if the packet has no octets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The octet directly before the packet, where its owner may keep a note on it.
    #[inline]
    pub fn octet_before(&self) -> Option<u8> {
        self.frame.get(self.start.checked_sub(1)?).copied()
    }

    /// Octets free before the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Octets free behind the packet.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.frame.len() - self.end
    }

    /// Grows the packet by `n` octets at its front. Returns false, and changes nothing, if the
    /// headroom is too small.
    #[inline]
    #[must_use]
    pub fn grow_front(&mut self, n: usize) -> bool {
        let fits = n <= self.start;
        if fits {
            self.start -= n;
        }
        fits
    }

    /// Grows the packet by `n` octets at its end. Returns false, and changes nothing, if the
    /// tailroom is too small.
    #[inline]
    #[must_use]
    pub fn grow_back(&mut self, n: usize) -> bool {
        let fits = n <= self.tailroom();
        if fits {
            self.end += n;
        }
        fits
    }

    /// Removes `n` octets from the front. Returns false, and changes nothing, if the packet is
    /// shorter.
    #[inline]
    #[must_use]
    pub fn shrink_front(&mut self, n: usize) -> bool {
        let fits = n <= self.len();
        if fits {
            self.start += n;
        }
        fits
    }

    /// Removes `n` octets from the end. Returns false, and changes nothing, if the packet is
    /// shorter.
    #[inline]
    #[must_use]
    pub fn shrink_back(&mut self, n: usize) -> bool {
        let fits = n <= self.len();
        if fits {
            self.end -= n;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_inside_its_frame() {
        let mut frame = [0; 10];
        assert!(PacketBuf::new(&mut frame, 4, 7).is_none());
        assert!(PacketBuf::new(&mut frame, usize::MAX, 1).is_none());
        let buf = PacketBuf::new(&mut frame, 10, 0).unwrap();
        assert!(buf.is_empty());
        assert_eq!((buf.headroom(), buf.tailroom()), (10, 0));
    }

    #[test]
    fn grows_and_shrinks_at_both_ends() {
        let mut frame = *b"0123456789";
        let mut buf = PacketBuf::new(&mut frame, 4, 3).unwrap();
        assert_eq!((buf.data(), buf.len(), buf.start()), (&b"456"[..], 3, 4));
        assert!(buf.grow_front(4) && buf.grow_back(3));
        assert_eq!(buf.data(), b"0123456789");
        assert!(!buf.grow_front(1) && !buf.grow_back(1));
        assert!(buf.shrink_front(2) && buf.shrink_back(3));
        assert_eq!(buf.data(), b"23456");
        assert!(!buf.shrink_front(6) && !buf.shrink_back(6));
        assert_eq!(buf.data(), b"23456");
        buf.data_mut().fill(b'x');
        assert_eq!(&frame, b"01xxxxx789");
    }
}

//! The links of this node: 0 is the cluster's own, 1 and up are the ports.

/// Which of them are up, by carrier and driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Links {
    /// A bit each, link 0 lowest.
    up: u32,
    count: u8,
}

impl Links {
    /// All are up.
    pub(super) fn new(count: u8) -> Self {
        Self { up: u32::MAX, count }
    }

    /// A link is up from now on, or down.
    pub(super) fn set(&mut self, link: u8, up: bool) {
        let bit = 1_u32.checked_shl(link.into()).unwrap_or(0);
        self.up = if up { self.up | bit } else { self.up & !bit };
    }

    /// Those that are up, lowest first.
    pub(super) fn up(self) -> impl Iterator<Item = u8> {
        (0..self.count).filter(move |link| self.up.checked_shr((*link).into()).is_some_and(|up| up & 1 == 1))
    }

    /// True if a port is down.
    pub(super) fn lacks_port(self) -> bool {
        let ports = self.up().filter(|link| *link > 0).count();
        ports < usize::from(self.count.saturating_sub(1))
    }

    /// As heartbeats say it.
    pub(super) fn bits(self) -> u32 {
        self.up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_of_links_that_there_are_not() {
        let mut links = Links::new(3);
        assert_eq!((links.up().collect(), links.lacks_port()), (vec![0, 1, 2], false));
        links.set(0, false);
        assert_eq!((links.up().collect(), links.lacks_port()), (vec![1, 2], false));
        links.set(2, false);
        links.set(9, false);
        links.set(77, false);
        assert_eq!((links.up().collect(), links.lacks_port()), (vec![1], true));
        assert_eq!(links.bits(), !0b10_0000_0101);
        links.set(2, true);
        assert!(!links.lacks_port());
        assert!(!Links::new(0).lacks_port());
    }
}

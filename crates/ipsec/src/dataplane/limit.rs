//! A token bucket without a division.

/// Allows `per_second` events a second, up to a second's worth at once.
#[derive(Debug)]
pub(super) struct TokenBucket {
    per_second: u64,
    /// In thousandths of a token, so that a millisecond brings `per_second` of them.
    thousandths: u64,
    filled: u64,
}

impl TokenBucket {
    pub(super) fn new(per_second: u32) -> Self {
        let per_second = u64::from(per_second);
        Self { per_second, thousandths: per_second * 1000, filled: 0 }
    }

    /// Adds the tokens for the time since the last call.
    #[inline]
    pub(super) fn refill(&mut self, now: u64) {
        // More than a second fills the bucket anyway.
        let passed = now.saturating_sub(self.filled).min(1000);
        self.thousandths = (self.thousandths + passed * self.per_second).min(self.per_second * 1000);
        self.filled = now;
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self) -> bool {
        let allowed = self.thousandths >= 1000;
        if allowed {
            self.thousandths -= 1000;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(bucket: &mut TokenBucket) -> usize {
        std::iter::repeat_with(|| bucket.take()).take(1000).filter(|taken| *taken).count()
    }

    #[test]
    fn allows_its_rate_and_no_more() {
        let mut bucket = TokenBucket::new(100);
        assert_eq!(take_all(&mut bucket), 100);
        bucket.refill(10);
        assert_eq!(take_all(&mut bucket), 1);
        bucket.refill(515);
        assert_eq!(take_all(&mut bucket), 50);
        bucket.refill(519);
        assert_eq!(take_all(&mut bucket), 0);
        // Half a token was left, and is completed now.
        bucket.refill(520);
        assert_eq!(take_all(&mut bucket), 1);
    }

    #[test]
    fn a_long_pause_is_worth_one_second() {
        let mut bucket = TokenBucket::new(100);
        assert_eq!(take_all(&mut bucket), 100);
        bucket.refill(u64::MAX);
        assert_eq!(take_all(&mut bucket), 100);
    }

    #[test]
    fn time_that_runs_backwards_gives_nothing() {
        let mut bucket = TokenBucket::new(100);
        bucket.refill(5000);
        assert_eq!(take_all(&mut bucket), 100);
        bucket.refill(1000);
        assert_eq!(take_all(&mut bucket), 0);
    }

    #[test]
    fn zero_forbids() {
        assert!(!TokenBucket::new(0).take());
    }
}

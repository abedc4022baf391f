//! Time for code without a clock.

use serde::{Deserialize, Serialize};

/// Time since an arbitrary origin, monotonic, chosen by the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub std::time::Duration);

impl Time {
    /// This time, later by `wait`.
    #[must_use]
    pub fn plus(self, wait: std::time::Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// Time passed since `earlier`, zero if it lies ahead.
    pub fn since(self, earlier: Self) -> std::time::Duration {
        self.0.saturating_sub(earlier.0)
    }
}

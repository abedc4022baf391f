//! The deadline until which a worker may send packets.
//!
//! A node of a cluster that was stopped or cut off must not carry on shards that others have taken
//! over meanwhile. It would learn of the takeover too late, so it may send only up to a deadline.
//! Its cluster thread extends the deadline as long as a majority proves to hear the node. Other
//! nodes take over only after the deadline.
//!
//! The worker checks the fence before it takes packets from the ports: packets that waited there
//! while the process was stopped are dropped unseen. It checks again right before frames go to a
//! port's ring, and before each packet for the kernel: packets that were in the worker when it was
//! stopped are dropped too. **What remains** are the instants between that check and the system
//! call that sends, and frames that wait in the ring because the kernel would not take them at
//! once. A process that is stopped there still sends them when it goes on. They do no harm: all of
//! them were this node's when it worked on them, under numbers and IVs that no other node is ever
//! given. They are late, not duplicated.
//!
//! A lone gateway has no fence and reads no clock for it.

use nix::time::{ClockId, clock_gettime};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

/// No deadline.
const NO_DEADLINE: u64 = u64::MAX;

/// A fence. The worker reads it and the cluster thread moves its deadline.
#[derive(Debug)]
pub struct Fence {
    /// In nanoseconds of CLOCK_BOOTTIME, which continues while the machine sleeps.
    deadline: AtomicU64,
    /// Reads the generation of the virtual machine, which changes each time that the machine is set
    /// back to an earlier state.
    generation: Option<fn() -> u64>,
    /// The generation in which this node's state was granted.
    granted_in: AtomicU64,
}

impl Fence {
    /// A fence that is always open, for a lone gateway.
    pub fn open() -> Self {
        Self { deadline: AtomicU64::new(NO_DEADLINE), generation: None, granted_in: AtomicU64::new(0) }
    }

    /// A fence that is shut until [`Self::extend`] opens it.
    pub fn shut() -> Self {
        Self { deadline: AtomicU64::new(0), ..Self::open() }
    }

    /// Has the fence watch a generation. The fence is shut unless `generation` returns what it
    /// returned at this call or at the last [`Self::renewed`]. Workers call `generation` at every
    /// check of the fence, so it must be as quick as a read of memory.
    #[must_use]
    pub fn watching(self, generation: fn() -> u64) -> Self {
        Self { generation: Some(generation), granted_in: AtomicU64::new(generation()), ..self }
    }

    /// Lets packets leave until `deadline`, on the clock [`boottime`]. A deadline in the past, such
    /// as zero, shuts the fence.
    pub fn extend(&self, deadline: Duration) {
        let nanoseconds = u64::try_from(deadline.as_nanos()).unwrap_or(NO_DEADLINE);
        // A worker that sees this deadline finds the commands that were sent before it in its
        // queue.
        self.deadline.store(nanoseconds.min(NO_DEADLINE - 1), Release);
    }

    /// The state that this node held before the machine was set back has been granted anew, in this
    /// generation.
    pub fn renewed(&self, generation: u64) {
        self.granted_in.store(generation, Release);
    }

    /// True if packets may leave now.
    #[inline]
    pub fn is_open(&self) -> bool {
        // Read the deadline before the clock: a thread that is stopped between the two reads a late
        // clock, and the fence stays shut. The other way round it would compare a later deadline
        // with an earlier time.
        let deadline = self.deadline.load(Acquire);
        (deadline == NO_DEADLINE || deadline > now()) && self.is_same_machine()
    }

    #[inline]
    fn is_same_machine(&self) -> bool {
        self.generation.is_none_or(|generation| generation() == self.granted_in.load(Acquire))
    }
}

/// The clock of deadlines.
pub fn boottime() -> Duration {
    Duration::from_nanos(now())
}

/// The time in nanoseconds. Without such a clock the fence stays shut.
#[inline]
fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map_or(NO_DEADLINE, |now| (now.tv_sec() as u64).saturating_mul(1_000_000_000) + now.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_open_up_to_its_deadline() {
        assert!(Fence::open().is_open());
        let fence = Fence::shut();
        assert!(!fence.is_open());
        fence.extend(boottime() + Duration::from_secs(100));
        assert!(fence.is_open());
        fence.extend(boottime());
        assert!(!fence.is_open());
        fence.extend(Duration::MAX);
        assert!(fence.is_open(), "far away, and still a deadline");
        assert_ne!(fence.deadline.into_inner(), NO_DEADLINE);
    }

    #[test]
    fn shuts_when_the_machine_is_set_back() {
        static GENERATION: AtomicU64 = AtomicU64::new(7);
        let fence = Fence::open().watching(|| GENERATION.load(Acquire));
        assert!(fence.is_open());
        GENERATION.store(8, Release);
        assert!(!fence.is_open());
        fence.renewed(7);
        assert!(!fence.is_open(), "granted before it was set back once more");
        fence.renewed(8);
        assert!(fence.is_open());
        fence.extend(Duration::ZERO);
        assert!(!fence.is_open());
    }
}

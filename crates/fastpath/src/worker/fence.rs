//! Until when a worker may let packets out.
//!
//! A node of a cluster that has been stopped, or cut off, must not go on with what others have
//! taken over meanwhile. It learns of that too late: so it may send only up to a deadline, which
//! its cluster thread moves on as long as a majority proves to hear it. Others begin only after it.
//!
//! The worker looks at the fence before it takes packets from the ports: what waited there while
//! the process was stopped is dropped unseen. It looks again right before frames go to a port's
//! ring, and before each packet for the kernel: what was on its way through the worker when it was
//! stopped is dropped too. **What remains**: the instants between that look and the system call
//! that sends, and frames that the kernel would not take at once and that wait in the ring; a
//! process that is stopped there still sends them when it goes on. They do no harm: all of them
//! were this node's when it worked on them, under numbers and IVs that nobody else is ever given.
//! They are late, not double.
//!
//! A gateway that stands alone has no fence and reads no clock for it.

use nix::time::{ClockId, clock_gettime};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

/// No deadline.
const NO_DEADLINE: u64 = u64::MAX;

/// What a worker looks at and the cluster thread moves.
#[derive(Debug)]
pub struct Fence {
    /// In nanoseconds of CLOCK_BOOTTIME, which goes on while the machine sleeps.
    deadline: AtomicU64,
    /// Tells the generation of the virtual machine: another one each time that it was set back to
    /// an earlier state.
    generation: Option<fn() -> u64>,
    /// The generation that what this node holds was granted in.
    granted_in: AtomicU64,
}

impl Fence {
    /// Always open: the gateway stands alone.
    pub fn open() -> Self {
        Self { deadline: AtomicU64::new(NO_DEADLINE), generation: None, granted_in: AtomicU64::new(0) }
    }

    /// Shut until [`Self::extend`] opens it.
    pub fn shut() -> Self {
        Self { deadline: AtomicU64::new(0), ..Self::open() }
    }

    /// Shut too while `generation` does not tell what it told when [`Self::renewed`] was called
    /// last, or now. It is asked whenever the worker looks at the fence, and must be as quick as a
    /// read of memory.
    #[must_use]
    pub fn watching(self, generation: fn() -> u64) -> Self {
        Self { generation: Some(generation), granted_in: AtomicU64::new(generation()), ..self }
    }

    /// Packets may leave until then, on the clock [`boottime`]. A deadline that has passed, zero
    /// for instance, shuts the fence.
    pub fn extend(&self, deadline: Duration) {
        let nanoseconds = u64::try_from(deadline.as_nanos()).unwrap_or(NO_DEADLINE);
        // Whoever sees the deadline finds the commands that were sent before it in the queue.
        self.deadline.store(nanoseconds.min(NO_DEADLINE - 1), Release);
    }

    /// What this node held before the machine was set back has been granted anew, in that
    /// generation.
    pub fn renewed(&self, generation: u64) {
        self.granted_in.store(generation, Release);
    }

    /// True if packets may leave now.
    #[inline]
    pub fn is_open(&self) -> bool {
        // The deadline before the clock: who is stopped between the two reads a clock that is late,
        // and stays shut. The other way round a deadline of later would be compared with the time
        // before.
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

/// Shut, if there is no such clock.
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

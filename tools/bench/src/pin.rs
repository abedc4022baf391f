//! One core for the measuring thread.

use crate::error::BenchError;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The thread could not be bound to a CPU.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PinError {
    /// The CPU is not among those of this process.
    #[error("CPU {found} is not available to this process, expected one of {expected:?}")]
    NotAllowed {
        /// The CPU requested.
        found: usize,
        /// The CPUs available.
        expected: Vec<usize>,
    },
    /// The kernel refused.
    #[error("the kernel does not let this thread choose its CPU: {0}")]
    Refused(#[from] nix::Error),
}

/// Measures on one CPU, in a thread of its own: the caller is not bound to its processor.
pub(crate) fn pinned<T: Send>(
    wanted: Option<usize>,
    measure: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            pin(wanted)?;
            measure()
        });
        measured.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Binds the calling thread to `wanted`, or else to the last CPU that it may use: the first one
/// serves most interrupts. Returns the CPU.
pub(crate) fn pin(wanted: Option<usize>) -> Result<usize, PinError> {
    let allowed = allowed()?;
    let cpu = match (wanted, allowed.last()) {
        (Some(cpu), _) if allowed.contains(&cpu) => cpu,
        (None, Some(last)) => *last,
        (found, _) => {
            return Err(PinError::NotAllowed { found: found.unwrap_or_default(), expected: allowed });
        }
    };
    let mut only = CpuSet::new();
    only.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &only)?;
    Ok(cpu)
}

/// The CPUs that the calling thread may use.
pub(crate) fn allowed() -> Result<Vec<usize>, PinError> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu) == Ok(true)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a separate thread: otherwise the binding would outlive the test.
    #[test]
    fn the_thread_ends_up_on_the_cpu_asked_for() {
        std::thread::spawn(|| {
            let last = pin(None).expect("some CPU is allowed");
            let bound = sched_getaffinity(Pid::from_raw(0)).expect("readable");
            let cpus: Vec<_> = (0..CpuSet::count()).filter(|cpu| bound.is_set(*cpu) == Ok(true)).collect();
            assert_eq!(cpus, [last]);
            assert!(matches!(pin(Some(CpuSet::count() - 1)), Err(PinError::NotAllowed { .. })));
        })
        .join()
        .expect("no assertion failed");
    }
}

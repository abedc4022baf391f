//! The scheduling of threads beside workers.

use crate::error::{Error, Result};
use crate::sys::thread as sys;
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io;

/// Nice value of threads that give way: on a processor that they share with a worker they get a
/// tenth of it.
const WORKER_NICE: libc::c_int = 10;

/// Lowers the calling thread's priority below that of workers, and keeps it off the processors to
/// which workers are pinned, unless there is no other.
pub fn give_way(pinned: &[usize]) -> Result<()> {
    sys::set_nice(WORKER_NICE).map_err(failed("lowering a priority"))?;
    if pinned.is_empty() {
        return Ok(());
    }
    let this = Pid::from_raw(0);
    let failed = |error: nix::Error| failed("leaving a worker's processor")(error.into());
    let mut allowed = sched_getaffinity(this).map_err(failed)?;
    pinned.iter().try_for_each(|cpu| allowed.unset(*cpu)).map_err(failed)?;
    let any = (0..nix::sched::CpuSet::count()).any(|cpu| allowed.is_set(cpu).unwrap_or(false));
    if any { sched_setaffinity(this, &allowed).map_err(failed) } else { Ok(()) }
}

/// Nice value of threads that must decide within milliseconds and compute little.
const PROMPT_NICE: libc::c_int = -10;

/// Raises the calling thread's priority above that of workers and others. Needs CAP_SYS_NICE.
pub fn go_ahead() -> Result<()> {
    sys::set_nice(PROMPT_NICE).map_err(failed("raising a priority"))
}

/// The time slice of a worker, in nanoseconds: the least that the kernel grants.
const WORKER_SLICE_NS: u64 = 100_000;

/// Requests short time slices for the calling thread. When packets wake it while other threads
/// compute, the kernel gives it the processor at once, not when the other's slice of some
/// milliseconds is over, as long as the thread has not had more than its fair part: its total stays
/// the same. Kernels before 6.12 ignore the request. A priority above 0, up to 20, raises its total
/// too, which needs CAP_SYS_NICE.
pub fn be_prompt(priority: u8) -> Result<()> {
    let nice = sys::nice() - i32::from(priority);
    sys::set_scheduling(nice.max(-20), WORKER_SLICE_NS).map_err(failed("asking for short time slices"))
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::System { call, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_leaves_the_processor_of_a_worker() {
        let own = sys::nice;
        let before = own();
        std::thread::spawn(move || {
            let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
            let cpus = |set: &nix::sched::CpuSet| -> Vec<usize> {
                (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap()).collect()
            };
            let mut expected = cpus(&before);
            let first = expected[0];
            give_way(&[first]).unwrap();
            if expected.len() > 1 {
                expected.remove(0);
            }
            assert_eq!(cpus(&sched_getaffinity(Pid::from_raw(0)).unwrap()), expected);
            assert_eq!(own(), WORKER_NICE);
        })
        .join()
        .unwrap();
        assert_eq!(own(), before, "of that thread alone");
    }

    #[test]
    fn a_thread_gets_short_slices_and_the_priority_asked_for() {
        std::thread::spawn(|| {
            sys::set_nice(3).unwrap();
            be_prompt(5).unwrap();
            let (nice, slice) = sys::scheduling().unwrap();
            assert_eq!(nice, -2);
            // Kernels before 6.12 report 0.
            assert!([0, WORKER_SLICE_NS].contains(&slice), "{slice}");
        })
        .join()
        .unwrap();
    }
}

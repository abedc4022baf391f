//! Threads that must not get in the way of workers.

use crate::error::{Error, Result};
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io;

/// Where a worker and another thread want the same processor, this leaves a tenth of it to the other.
const WORKER_NICE: libc::c_int = 10;

/// The calling thread runs at a lower priority than workers from now on, and not on the processors that they are pinned to,
/// unless there is no other.
pub fn give_way(pinned: &[usize]) -> Result<()> {
    // SAFETY: the call takes numbers only. On Linux 0 is the calling thread, not its process (setpriority(2)).
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, WORKER_NICE) } != 0 {
        return Err(Error::System { call: "lowering a priority", source: io::Error::last_os_error() });
    }
    if pinned.is_empty() {
        return Ok(());
    }
    let this = Pid::from_raw(0);
    let failed =
        |error: nix::Error| Error::System { call: "leaving a worker's processor", source: error.into() };
    let mut allowed = sched_getaffinity(this).map_err(failed)?;
    pinned.iter().try_for_each(|cpu| allowed.unset(*cpu)).map_err(failed)?;
    let any = (0..nix::sched::CpuSet::count()).any(|cpu| allowed.is_set(cpu).unwrap_or(false));
    if any { sched_setaffinity(this, &allowed).map_err(failed) } else { Ok(()) }
}

/// What decides for others within milliseconds and computes little.
const PROMPT_NICE: libc::c_int = -10;

/// The calling thread is preferred to workers and others from now on. Needs CAP_SYS_NICE.
pub fn go_ahead() -> Result<()> {
    // SAFETY: the call takes numbers only. On Linux 0 is the calling thread, not its process (setpriority(2)).
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, PROMPT_NICE) } != 0 {
        return Err(Error::System { call: "raising a priority", source: io::Error::last_os_error() });
    }
    Ok(())
}

/// The time slice of a worker, in nanoseconds: the least that the kernel grants.
const WORKER_SLICE_NS: u64 = 100_000;

/// The calling thread asks for short time slices. When packets wake it while others compute, the kernel gives it the processor at once
/// instead of when the other's slice of some milliseconds is over, as long as it has not had more than its share: what it gets in
/// all stays the same. Kernels before 6.12 grant no such thing and change nothing. With a priority above 0, 20 at most, its share is
/// larger too, which needs CAP_SYS_NICE.
pub fn be_prompt(priority: u8) -> Result<()> {
    let failed =
        || Error::System { call: "asking for short time slices", source: io::Error::last_os_error() };
    // SAFETY: the call takes numbers only. On Linux 0 is the calling thread, not its process (getpriority(2)).
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) } - i32::from(priority);
    let wanted = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: nice.max(-20),
        sched_priority: 0,
        sched_runtime: WORKER_SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads `size` octets of a live structure; 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    if result == 0 { Ok(()) } else { Err(failed()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_leaves_the_processor_of_a_worker() {
        // SAFETY: the call takes numbers only.
        let own = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
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
            // SAFETY: the call takes numbers only.
            assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 3) }, 0);
            be_prompt(5).unwrap();
            // SAFETY: numbers only, any bits valid.
            let mut now: libc::sched_attr = unsafe { std::mem::zeroed() };
            let size = size_of::<libc::sched_attr>();
            // SAFETY: the kernel writes at most `size` octets into a live structure; 0 is the calling thread.
            let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) };
            assert_eq!((result, now.sched_nice), (0, -2));
            // Kernels before 6.12 tell 0.
            assert!([0, WORKER_SLICE_NS].contains(&now.sched_runtime), "{}", now.sched_runtime);
        })
        .join()
        .unwrap();
    }
}

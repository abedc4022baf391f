//! Threads that must not get in the way of workers.

use crate::error::{Error, Result};
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io;

/// Where a worker and another thread want the same processor, this leaves a tenth of it to the other.
const NICE: libc::c_int = 10;

/// The calling thread runs at a lower priority than workers from now on, and not on the processors that they are pinned to,
/// unless there is no other.
pub fn give_way(pinned: &[usize]) -> Result<()> {
    // SAFETY: the call takes numbers only. On Linux 0 is the calling thread, not its process (setpriority(2)).
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } != 0 {
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
const AHEAD: libc::c_int = -10;

/// The calling thread is preferred to workers and others from now on. Needs CAP_SYS_NICE.
pub fn go_ahead() -> Result<()> {
    // SAFETY: the call takes numbers only. On Linux 0 is the calling thread, not its process (setpriority(2)).
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, AHEAD) } != 0 {
        return Err(Error::System { call: "raising a priority", source: io::Error::last_os_error() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_leaves_the_processor_of_a_worker() {
        std::thread::spawn(|| {
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
            // SAFETY: the call takes numbers only.
            assert_eq!(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }, NICE);
        })
        .join()
        .unwrap();
        // SAFETY: the call takes numbers only.
        assert_eq!(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }, 0, "of that thread alone");
    }
}

//! The scheduling of threads beside workers.

use crate::error::{Error, Result};
use crate::sys::thread as sys;
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, getsid};
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

/// The share of the processors that the kernel gives to the session of this process.
const AUTOGROUP: &str = "/proc/self/autogroup";

/// Raises the calling process above other sessions by so many nice levels, up to 20. Where each
/// session is scheduled as one (autogroups, sched(7)), the nice values of threads compare only threads
/// of the same session. Does nothing where there are no autogroups, and in a session that another
/// process leads, such as a shell: its other processes would be raised too. Needs CAP_SYS_NICE.
pub fn raise_session(levels: u8) -> Result<()> {
    if getsid(None) != Ok(Pid::this()) {
        return Ok(());
    }
    match std::fs::write(AUTOGROUP, format!("-{}", levels.min(20))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written.map_err(failed("raising the session's priority")),
    }
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::System { call, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set for a process that leads a session.
    const LEADER: &str = "TESTUDO_LEADER";

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
    fn a_process_raises_its_own_session_and_no_other() {
        let group = || std::fs::read_to_string(AUTOGROUP).unwrap_or_default();
        let before = group();
        raise_session(7).unwrap();
        assert_eq!(group(), before, "a test program leads no session");
        let helper = "thread::tests::helper_that_raises_its_session";
        let mut leader = std::process::Command::new("setsid");
        leader.arg("--wait").arg(std::env::current_exe().unwrap()).args(["--exact", "--ignored", helper]);
        let output = leader.env(LEADER, "").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    #[ignore = "another test starts it in a process of its own"]
    fn helper_that_raises_its_session() {
        if std::env::var_os(LEADER).is_none() {
            return;
        }
        raise_session(7).unwrap();
        // A kernel may have none.
        if let Ok(group) = std::fs::read_to_string(AUTOGROUP) {
            assert!(group.ends_with("nice -7\n"), "{group}");
        }
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

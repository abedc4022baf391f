//! How the kernel schedules the calling thread, and the processor time that a thread has used.

use super::done;
use nix::time::ClockId;
use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// The nice value of the calling thread.
pub(crate) fn nice() -> libc::c_int {
    // SAFETY: the call takes numbers only. On Linux 0 is the calling thread, not its process
    // (getpriority(2)).
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Sets the nice value of the calling thread.
pub(crate) fn set_nice(nice: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes numbers only. On Linux 0 is the calling thread, not its process
    // (setpriority(2)).
    done(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) })
}

/// Sets the calling thread to the normal scheduling policy, with a nice value and a time slice in
/// nanoseconds.
pub(crate) fn set_scheduling(nice: libc::c_int, slice_ns: u64) -> io::Result<()> {
    let wanted = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice_ns,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads `size` octets of a live structure; 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The nice value and the time slice of the calling thread.
#[cfg(test)]
pub(crate) fn scheduling() -> io::Result<(libc::c_int, u64)> {
    // SAFETY: numbers only, any bits valid.
    let mut now: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` octets into a live structure; 0 is the calling
    // thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) };
    if result == 0 { Ok((now.sched_nice, now.sched_runtime)) } else { Err(io::Error::last_os_error()) }
}

/// The clock of the processor time that a thread uses. `None` if the thread has ended.
pub(crate) fn cpu_clock<T>(thread: &JoinHandle<T>) -> Option<ClockId> {
    let mut clock = 0;
    // SAFETY: the thread has not been joined, so its handle is valid; the clock's number is written
    // to a live variable.
    let failed = unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t(), &raw mut clock) };
    (failed == 0).then(|| ClockId::from_raw(clock))
}

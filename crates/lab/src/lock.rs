//! Who may have a lab on this machine, in the order in which they came.
//!
//! Each lab takes a ticket with the next number. One that wants to be [alone](Company::Alone) waits until all before it are gone; one
//! that [shares](Company::Shared) waits until no lone one and fewer than [`SLOTS`] others are before it. Nobody overtakes, so that
//! nobody starves.
//!
//! A ticket is a lock on one octet of a file, of the kind that belongs to an open file (F_OFD_SETLK, fcntl(2)): the kernel frees it when
//! its owner dies, and threads of one process stand in the queue like strangers. A ticket of who wants to be alone is a write lock,
//! one of who shares a read lock. The octets:
//!
//! ```text
//! 0            the door: held by whoever takes a ticket, so that numbers only grow
//! 1 ..= SLOTS  the slots of those who share: each names what it makes after its slot
//! FIRST ..     the tickets
//! ```

use crate::{Error, Result, interrupt, wait_until};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, flock};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

/// Only root has labs, and only root can write there.
const PATH: &str = "/run/testudo-lab.lock";
const POLL: Duration = Duration::from_millis(50);
/// Nobody stands in the door for longer than a few system calls take.
const DOOR_LIMIT: Duration = Duration::from_secs(10);

/// How many labs may be there at the same time, if each of them shares.
pub(crate) const SLOTS: u8 = 2;

const DOOR: i64 = 0;
const FIRST: i64 = 16;
const END: i64 = i64::MAX / PID_WIDTH as i64;
/// Beside the locks the file tells who holds them: for each ticket a process id.
const PID_WIDTH: usize = 8;

/// Whether a lab bears others beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// It measures time, takes all processors, or uses what exists only once on a machine.
    Alone,
    /// Others may be there who say the same.
    Shared,
}

/// Held as long as it lives.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    /// The slots that are its own.
    slots: Range<u8>,
}

/// A ticket before one's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticket {
    number: i64,
    company: Company,
}

impl Lock {
    /// Waits for its turn, at most `limit`.
    pub(crate) fn wait(company: Company, limit: Duration) -> Result<Self> {
        // Two labs on one processor only slow each other down.
        let shared = available_parallelism().map_or(1, |n| n.get().min(SLOTS.into()));
        Self::wait_at(Path::new(PATH), shared, company, limit)
    }

    fn wait_at(path: &Path, shared: usize, company: Company, limit: Duration) -> Result<Self> {
        // Whoever may read it could take a ticket, and keep it.
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(Error::io(format!("open {}", path.display())))?;
        // From here on a drop gives back what has been taken.
        let mut lock = Self { file, slots: 0..0 };
        let start = Instant::now();
        let number = lock.take_ticket(company)?;
        loop {
            interrupt::check()?;
            let before = lock.tickets(FIRST..number)?;
            if may_enter(company, &before, shared)
                && let Some(slots) = lock.take_slots(company)?
            {
                lock.slots = slots;
                return Ok(lock);
            }
            if start.elapsed() >= limit {
                let what = format!("the lab that {} holds", lock.owners(&before));
                return Err(Error::Timeout { what, after: limit, last: String::new() });
            }
            sleep(POLL);
        }
    }

    /// The slots whose names belong to this lab: all of them if it is alone.
    pub(crate) fn slots(&self) -> Range<u8> {
        self.slots.clone()
    }

    fn take_ticket(&self, company: Company) -> Result<i64> {
        wait_until("the door to the labs", DOOR_LIMIT, || {
            let open = self.try_lock(DOOR, libc::F_WRLCK)?;
            Ok(open.then_some(()).ok_or_else(|| "somebody stands in it".into()))
        })?;
        let last = self.tickets(FIRST..END)?.iter().map(|ticket| ticket.number).max();
        let number = last.map_or(FIRST, |last| last + 1);
        let kind = match company {
            Company::Alone => libc::F_WRLCK,
            Company::Shared => libc::F_RDLCK,
        };
        let pid = format!("{:>PID_WIDTH$}", std::process::id());
        self.file.write_all_at(pid.as_bytes(), pid_offset(number)).map_err(failed())?;
        if !self.try_lock(number, kind)? {
            return Err(Error::unexpected(format!("ticket {number}"), "nobody's", "somebody's"));
        }
        self.unlock(DOOR..DOOR + 1)?;
        Ok(number)
    }

    /// `None` if somebody has not given back his slot yet.
    fn take_slots(&self, company: Company) -> Result<Option<Range<u8>>> {
        if company == Company::Alone {
            return Ok(Some(0..SLOTS));
        }
        for slot in 0..SLOTS {
            if self.try_lock(1 + i64::from(slot), libc::F_WRLCK)? {
                return Ok(Some(slot..slot + 1));
            }
        }
        Ok(None)
    }

    /// The tickets of others in that range. Some may go while it looks; none comes to a range that ends with its own.
    fn tickets(&self, range: Range<i64>) -> Result<Vec<Ticket>> {
        let mut found = Vec::new();
        let mut ranges = vec![range];
        while let Some(range) = ranges.pop() {
            if range.is_empty() {
                continue;
            }
            // The kernel tells of any one lock in the range: the others are before and behind it.
            let mut asked = octets(libc::F_WRLCK, &range);
            fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut asked)).map_err(|e| failed()(e.into()))?;
            if asked.l_type == libc::F_UNLCK as i16 {
                continue;
            }
            let company = if asked.l_type == libc::F_RDLCK as i16 { Company::Shared } else { Company::Alone };
            found.push(Ticket { number: asked.l_start, company });
            ranges.push(range.start..asked.l_start);
            ranges.push(asked.l_start + 1..range.end);
        }
        Ok(found)
    }

    fn owners(&self, tickets: &[Ticket]) -> String {
        let of = |ticket: &Ticket| {
            let mut pid = [0; PID_WIDTH];
            let read = self.file.read_exact_at(&mut pid, pid_offset(ticket.number));
            read.map_or_else(|_| "?".into(), |()| String::from_utf8_lossy(&pid).trim().to_owned())
        };
        let pids: Vec<String> = tickets.iter().map(of).collect();
        format!("process {}", pids.join(", "))
    }

    /// False if somebody else has it.
    fn try_lock(&self, octet: i64, kind: i32) -> Result<bool> {
        match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&octets(kind, &(octet..octet + 1)))) {
            Ok(_) => Ok(true),
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
            Err(e) => Err(failed()(e.into())),
        }
    }

    fn unlock(&self, range: Range<i64>) -> Result<()> {
        let nothing = octets(libc::F_UNLCK, &range);
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&nothing)).map(drop).map_err(|e| failed()(e.into()))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing frees it too, but not while a child that another thread has just forked still has a copy.
        let _closing_frees_it = self.unlock(0..END);
    }
}

fn may_enter(company: Company, before: &[Ticket], shared: usize) -> bool {
    match company {
        Company::Alone => before.is_empty(),
        Company::Shared => {
            before.len() < shared && before.iter().all(|ticket| ticket.company == Company::Shared)
        }
    }
}

fn octets(kind: i32, range: &Range<i64>) -> flock {
    flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: range.start,
        l_len: range.end - range.start,
        l_pid: 0,
    }
}

fn pid_offset(number: i64) -> u64 {
    number.unsigned_abs() * PID_WIDTH as u64
}

fn failed() -> impl FnOnce(std::io::Error) -> Error {
    Error::io(format!("use the labs' lock {PATH}"))
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;

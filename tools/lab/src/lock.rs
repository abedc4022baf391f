//! The queue for labs on this machine: first come, first served.
//!
//! The machine has [`PLACES_PER_PROCESSOR`] places for each of its processors, and each lab takes a
//! number of them. A lab takes a ticket with the next number. A lab that wants to be
//! [alone](Company::Alone) waits until all labs before it are gone. A lab that
//! [shares](Company::Places) waits until no lone lab is before it, and the labs before it leave as
//! many places as it takes. No lab overtakes another, so that none starves.
//!
//! A ticket is a lock on some octets of a file, of the kind that belongs to an open file
//! (F_OFD_SETLK, fcntl(2)): the kernel frees it when its owner dies, and it works between threads
//! of one process as between processes. The ticket of a lone lab is a write lock, that of a lab
//! that shares is a read lock; its length in octets is the number of places. The octets:
//!
//! ```text
//! 0            the door: locked while a ticket is taken, so that numbers only grow
//! 1 ..= SLOTS  the slots of labs that share: the names that a lab uses contain its slot
//! FIRST ..     the tickets, STRIDE octets for each number
//! ```

use crate::{Error, Result, interrupt, wait_until};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, flock};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

/// Only root has labs, and only root can write there.
const PATH: &str = "/run/testudo-lab.lock";
const POLL: Duration = Duration::from_millis(50);
/// The door is locked only for a few system calls.
const DOOR_LIMIT: Duration = Duration::from_secs(10);

/// Most labs at the same time, each with one place.
pub(crate) const SLOTS: u8 = 16;
/// Labs mostly wait: two gateways with a ping between them leave most of a processor idle.
const PLACES_PER_PROCESSOR: usize = 2;
/// The test runner sets this to another number of places of the whole machine.
const ALL_PLACES: &str = "TESTUDO_LAB_ALL_PLACES";
/// How often a waiting lab reports that it waits.
const TELL_EACH: Duration = Duration::from_secs(60);

const DOOR: i64 = 0;
const FIRST: i64 = 32;
/// Octets of a ticket, and so the most places of a lab.
const STRIDE: i64 = SLOTS as i64;
/// The number after the last ticket.
const END: i64 = (i64::MAX - FIRST) / STRIDE;
/// The file also names the owners of the locks: a process id for each ticket.
const PID_WIDTH: usize = 8;

/// Whether other labs may run beside this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// No: it measures time, takes all processors, or uses something that exists only once on a
    /// machine.
    Alone,
    /// Yes: it takes this many places, at least one.
    Places(u8),
}

/// A place in the queue, held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    /// Its slots.
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
        Self::wait_at(Path::new(PATH), places()?, company, limit)
    }

    fn wait_at(path: &Path, places: u8, company: Company, limit: Duration) -> Result<Self> {
        let company = company.within(places);
        // A user who can read the file could take a ticket and keep it.
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(Error::io(format!("open {}", path.display())))?;
        // From here on a drop frees what has been taken.
        let mut lock = Self { file, slots: 0..0 };
        let start = Instant::now();
        let number = lock.take_ticket(company)?;
        let mut told = start;
        loop {
            interrupt::check()?;
            let before = lock.tickets(0..number)?;
            if may_enter(company, &before, places)
                && let Some(slots) = lock.take_slots(company)?
            {
                lock.slots = slots;
                return Ok(lock);
            }
            if told.elapsed() >= TELL_EACH {
                told = Instant::now();
                // Without output the wait would look like a hang.
                let waited = start.elapsed().as_secs();
                let _unseen = writeln!(
                    std::io::stderr(),
                    "lab: waits for its turn since {waited} s, behind {}",
                    lock.owners(&before)
                );
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
            let open = self.try_lock(DOOR..DOOR + 1, libc::F_WRLCK)?;
            Ok(open.then_some(()).ok_or_else(|| "somebody stands in it".into()))
        })?;
        let last = self.tickets(0..END)?.iter().map(|ticket| ticket.number).max();
        let number = last.map_or(0, |last| last + 1);
        let (kind, length) = match company {
            Company::Alone => (libc::F_WRLCK, 1),
            Company::Places(places) => (libc::F_RDLCK, i64::from(places)),
        };
        let pid = format!("{:>PID_WIDTH$}", std::process::id());
        self.file.write_all_at(pid.as_bytes(), pid_offset(number)).map_err(failed())?;
        let start = FIRST + number * STRIDE;
        if !self.try_lock(start..start + length, kind)? {
            return Err(Error::unexpected(format!("ticket {number}"), "nobody's", "somebody's"));
        }
        self.unlock(DOOR..DOOR + 1)?;
        Ok(number)
    }

    /// `None` if an earlier owner has not freed its slot yet.
    fn take_slots(&self, company: Company) -> Result<Option<Range<u8>>> {
        if company == Company::Alone {
            return Ok(Some(0..SLOTS));
        }
        for slot in 0..SLOTS {
            let octet = 1 + i64::from(slot);
            if self.try_lock(octet..octet + 1, libc::F_WRLCK)? {
                return Ok(Some(slot..slot + 1));
            }
        }
        Ok(None)
    }

    /// The tickets of others with those numbers. Some may go meanwhile; no new one appears in a
    /// range that ends with one's own.
    fn tickets(&self, numbers: Range<i64>) -> Result<Vec<Ticket>> {
        let mut found = Vec::new();
        let all = FIRST + numbers.start * STRIDE..FIRST + numbers.end * STRIDE;
        let mut ranges = vec![all];
        while let Some(range) = ranges.pop() {
            if range.is_empty() {
                continue;
            }
            // The kernel reports one lock in the range: the search continues before and after it.
            let mut asked = octets(libc::F_WRLCK, &range);
            fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut asked)).map_err(|e| failed()(e.into()))?;
            if asked.l_type == libc::F_UNLCK as i16 {
                continue;
            }
            let company = if asked.l_type == libc::F_RDLCK as i16 {
                Company::Places(u8::try_from(asked.l_len).unwrap_or(SLOTS))
            } else {
                Company::Alone
            };
            found.push(Ticket { number: (asked.l_start - FIRST) / STRIDE, company });
            ranges.push(range.start..asked.l_start);
            ranges.push(asked.l_start + asked.l_len..range.end);
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

    /// False if another lab has it.
    fn try_lock(&self, range: Range<i64>, kind: i32) -> Result<bool> {
        match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&octets(kind, &range))) {
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
        // Closing frees it too, but not while a forked child still has a copy of the descriptor.
        let _closing_frees_it = self.unlock(0..i64::MAX);
    }
}

impl Company {
    /// Limits a lab to the number of places on the machine.
    fn within(self, places: u8) -> Self {
        match self {
            Self::Alone => Self::Alone,
            Self::Places(wanted) => Self::Places(wanted.clamp(1, places)),
        }
    }
}

/// Places of this machine.
fn places() -> Result<u8> {
    let usual = || available_parallelism().map_or(1, usize::from) * PLACES_PER_PROCESSOR;
    let told = places_in::<NonZeroUsize>(ALL_PLACES, "a number of places")?;
    Ok(u8::try_from(told.map_or_else(usual, usize::from)).unwrap_or(SLOTS).min(SLOTS))
}

/// The number of places in an environment variable; `None` if it is not set.
pub(crate) fn places_in<N: FromStr>(variable: &str, expected: &str) -> Result<Option<N>> {
    let Some(found) = std::env::var_os(variable) else { return Ok(None) };
    match found.to_str().and_then(|places| places.parse().ok()) {
        Some(places) => Ok(Some(places)),
        None => Err(Error::unexpected(variable, expected, found.to_string_lossy())),
    }
}

fn may_enter(company: Company, before: &[Ticket], places: u8) -> bool {
    let Company::Places(wanted) = company else { return before.is_empty() };
    let mut free = u32::from(places);
    for ticket in before {
        // Waiting labs count like running ones: they came first.
        let Company::Places(taken) = ticket.company else { return false };
        free = free.saturating_sub(taken.into());
    }
    u32::from(wanted) <= free
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
mod tests;

//! A connection to corosync's closed process groups.

use crate::error::{Error, Status};
use crate::ffi::{self, CpgAddress, CpgModel, CpgName, Functions, Handle, IoVec, RingId};
use crate::library::Libraries;
use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::{ptr, slice};

/// A connection, which ends when it is dropped.
#[derive(Debug)]
pub struct Cpg {
    functions: &'static Functions,
    handle: Handle,
    /// Callbacks come to the thread that dispatches: a connection is used by one thread.
    _of_one_thread: PhantomData<*const ()>,
}

/// A process of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The node on which it runs.
    pub nodeid: u32,
    /// As its node counts.
    pub pid: u32,
}

/// An event of CPG, in the order that all members of the group see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpgEvent {
    /// The processes that are in the group from here on.
    Members(Vec<Address>),
    /// The order has come to this ring.
    Ring(RingId),
    /// A message, and who has sent it.
    Message(Address, Vec<u8>),
}

thread_local! {
    /// What a callback has left on this thread for the [`Cpg::dispatch`] that it is within.
    static CALLED_BACK: Cell<Option<CpgEvent>> = const { Cell::new(None) };
}

impl Cpg {
    /// Connects to the corosync of the calling thread's network namespace.
    pub fn connect(libraries: Libraries) -> Result<Self, Error> {
        let functions = libraries.0;
        let mut model = CpgModel {
            model: ffi::CPG_MODEL_V1,
            deliver: Some(deliver),
            confchg: Some(members_changed),
            totem_confchg: Some(ring_changed),
            flags: 0,
        };
        let mut handle = 0;
        // SAFETY: the library writes the handle and copies the model, which is of the version said,
        // within the call. The context is never read.
        let answer = unsafe {
            (functions.cpg_model_initialize)(&mut handle, ffi::CPG_MODEL_V1, &mut model, ptr::null_mut())
        };
        Status::check(answer)?;
        Ok(Self { functions, handle, _of_one_thread: PhantomData })
    }

    /// The number that corosync has for this node.
    pub fn nodeid(&self) -> Result<u32, Error> {
        let mut nodeid = 0;
        // SAFETY: the library writes one integer within the call.
        Status::check(unsafe { (self.functions.cpg_local_get)(self.handle, &mut nodeid) })?;
        Ok(nodeid)
    }

    /// Readable when there is something to dispatch. It belongs to the library, which closes it.
    pub fn fd(&self) -> Result<RawFd, Error> {
        let mut fd = -1;
        // SAFETY: the library writes one integer within the call.
        Status::check(unsafe { (self.functions.cpg_fd_get)(self.handle, &mut fd) })?;
        Ok(fd)
    }

    /// Asks to join a group. [`CpgEvent::Members`] tells when this process is in it.
    pub fn join(&self, group: &str) -> Result<(), Error> {
        let name = CpgName::new(group).ok_or(Error::Call(Status::NAME_TOO_LONG))?;
        // SAFETY: the library reads the name within the call.
        Status::check(unsafe { (self.functions.cpg_join)(self.handle, &name) })
    }

    /// Sends to all members of the group, this process included, in agreed order.
    pub fn multicast(&self, message: &[u8]) -> Result<(), Error> {
        let parts = IoVec::reading(message);
        // SAFETY: the library reads one part, which lives as long as `message`, within the call.
        let answer =
            unsafe { (self.functions.cpg_mcast_joined)(self.handle, ffi::CPG_TYPE_AGREED, &parts, 1) };
        Status::check(answer)
    }

    /// Takes what the daemon has sent next; `None` for a part of a long message.
    /// [`Status::TRY_AGAIN`]: nothing waits.
    pub fn dispatch(&self) -> Result<Option<CpgEvent>, Error> {
        // SAFETY: within the call the library calls one of the functions below at most.
        let answer = unsafe { (self.functions.cpg_dispatch)(self.handle, ffi::DISPATCH_ONE_NONBLOCKING) };
        let event = CALLED_BACK.take();
        Status::check(answer)?;
        Ok(event)
    }
}

impl Drop for Cpg {
    fn drop(&mut self) {
        // SAFETY: nothing uses the handle afterwards.
        let _gone_before = unsafe { (self.functions.cpg_finalize)(self.handle) };
    }
}

fn put_event(event: CpgEvent) {
    // The slot exists as long as the thread dispatches. A panic here would end the process.
    let _outside = CALLED_BACK.try_with(|slot| slot.set(Some(event)));
}

/// An array of C as a slice.
///
/// # Safety
///
/// Unless `count` is 0, `first` must point to `count` elements, which do not change during `'a`.
unsafe fn array<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if first.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller vouches for the elements.
    unsafe { slice::from_raw_parts(first, count) }
}

unsafe extern "C" fn deliver(
    _: Handle,
    _group: *const CpgName,
    nodeid: u32,
    pid: u32,
    message: *mut c_void,
    length: usize,
) {
    // SAFETY: libcpg points to a message of that length, and waits for this function.
    let message = unsafe { array(message.cast::<u8>().cast_const(), length) };
    put_event(CpgEvent::Message(Address { nodeid, pid }, message.to_vec()));
}

unsafe extern "C" fn members_changed(
    _: Handle,
    _group: *const CpgName,
    members: *const CpgAddress,
    count: usize,
    _left: *const CpgAddress,
    _: usize,
    _joined: *const CpgAddress,
    _: usize,
) {
    // SAFETY: libcpg points to `count` members, and waits for this function.
    let members = unsafe { array(members, count) };
    let members = members.iter().map(|member| Address { nodeid: member.nodeid, pid: member.pid });
    put_event(CpgEvent::Members(members.collect()));
}

unsafe extern "C" fn ring_changed(_: Handle, ring: RingId, _nodes: u32, _: *const u32) {
    put_event(CpgEvent::Ring(ring));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callbacks_copy_what_they_are_given() {
        let mut message = *b"state";
        let address_of_message = message.as_mut_ptr().cast();
        // SAFETY: the pointer and the length are those of `message`.
        unsafe { deliver(1, ptr::null(), 3, 70, address_of_message, 5) };
        message.fill(0);
        let address = Address { nodeid: 3, pid: 70 };
        assert_eq!(CALLED_BACK.take(), Some(CpgEvent::Message(address, b"state".to_vec())));

        let members =
            [CpgAddress { nodeid: 3, pid: 70, reason: 1 }, CpgAddress { nodeid: 4, pid: 71, reason: 0 }];
        // SAFETY: the pointer and the number are those of `members`.
        unsafe { members_changed(1, ptr::null(), members.as_ptr(), 2, ptr::null(), 0, ptr::null(), 0) };
        let expected = vec![address, Address { nodeid: 4, pid: 71 }];
        assert_eq!(CALLED_BACK.take(), Some(CpgEvent::Members(expected)));

        let ring = RingId { nodeid: 3, seq: 1 << 40 };
        // SAFETY: it reads no pointer.
        unsafe { ring_changed(1, ring, 1, ptr::null()) };
        assert_eq!(CALLED_BACK.take(), Some(CpgEvent::Ring(ring)));
        assert_eq!(CALLED_BACK.take(), None);
    }

    #[test]
    fn an_empty_array_may_have_no_address() {
        // SAFETY: both arrays are empty.
        unsafe {
            deliver(1, ptr::null(), 3, 70, ptr::null_mut(), 0);
            assert_eq!(
                CALLED_BACK.take(),
                Some(CpgEvent::Message(Address { nodeid: 3, pid: 70 }, Vec::new()))
            );
            members_changed(1, ptr::null(), ptr::null(), 0, ptr::null(), 0, ptr::null(), 0);
        }
        assert_eq!(CALLED_BACK.take(), Some(CpgEvent::Members(Vec::new())));
    }

    #[test]
    fn a_group_has_at_most_128_octets() {
        let name = CpgName::new("gateways").unwrap();
        assert_eq!((name.length, &name.value[..9]), (8, &b"gateways\0"[..]));
        assert_eq!(CpgName::new(&"g".repeat(128)).unwrap().length, 128);
        assert!(CpgName::new(&"g".repeat(129)).is_none());
    }
}

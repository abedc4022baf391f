//! A connection to corosync's quorum service.

use crate::error::{Error, Status};
use crate::ffi::{self, Functions, Handle, QuorumModel, RingId};
use crate::library::Libraries;
use std::cell::Cell;
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::ptr;
use std::slice;

/// A connection, which ends when it is dropped.
#[derive(Debug)]
pub struct Quorum {
    functions: &'static Functions,
    handle: Handle,
    counts_votes: bool,
    /// Callbacks come to the thread that dispatches: a connection is used by one thread.
    _of_one_thread: PhantomData<*const ()>,
}

/// Whether a ring is quorate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumEvent {
    /// The ring.
    pub ring: RingId,
    /// Whether corosync calls it quorate.
    pub quorate: bool,
    /// The nodes that are in it.
    pub nodes: Vec<u32>,
}

thread_local! {
    /// What a callback has left on this thread for the [`Quorum::dispatch`] that it is within.
    static CALLED_BACK: Cell<Option<QuorumEvent>> = const { Cell::new(None) };
}

impl Quorum {
    /// Connects to the corosync of the calling thread's network namespace.
    pub fn connect(libraries: Libraries) -> Result<Self, Error> {
        let functions = libraries.0;
        let mut model =
            QuorumModel { model: ffi::QUORUM_MODEL_V1, quorum: Some(quorum_changed), nodelist: None };
        let (mut handle, mut kind) = (0, 0);
        // SAFETY: the library writes handle and kind, and copies the model, which is of the version
        // said, within the call. The context is never read.
        let answer = unsafe {
            (functions.quorum_model_initialize)(
                &mut handle,
                ffi::QUORUM_MODEL_V1,
                &mut model,
                &mut kind,
                ptr::null_mut(),
            )
        };
        Status::check(answer)?;
        let counts_votes = kind == ffi::QUORUM_SET;
        Ok(Self { functions, handle, counts_votes, _of_one_thread: PhantomData })
    }

    /// Whether corosync has a provider of quorum. Without one it calls every ring quorate.
    pub fn counts_votes(&self) -> bool {
        self.counts_votes
    }

    /// Asks to be told the present state, and each change from then on.
    pub fn follow(&self) -> Result<(), Error> {
        // SAFETY: no pointer is passed.
        Status::check(unsafe { (self.functions.quorum_trackstart)(self.handle, ffi::TRACK_CHANGES) })
    }

    /// Readable when there is something to dispatch. It belongs to the library, which closes it.
    pub fn fd(&self) -> Result<RawFd, Error> {
        let mut fd = -1;
        // SAFETY: the library writes one integer within the call.
        Status::check(unsafe { (self.functions.quorum_fd_get)(self.handle, &mut fd) })?;
        Ok(fd)
    }

    /// Takes what the daemon has sent next. [`Status::TRY_AGAIN`]: nothing waits.
    pub fn dispatch(&self) -> Result<Option<QuorumEvent>, Error> {
        // SAFETY: within the call the library calls the function below at most.
        let answer = unsafe { (self.functions.quorum_dispatch)(self.handle, ffi::DISPATCH_ONE_NONBLOCKING) };
        let event = CALLED_BACK.take();
        Status::check(answer)?;
        Ok(event)
    }
}

impl Drop for Quorum {
    fn drop(&mut self) {
        // SAFETY: nothing uses the handle afterwards.
        let _gone_before = unsafe { (self.functions.quorum_finalize)(self.handle) };
    }
}

unsafe extern "C" fn quorum_changed(_: Handle, quorate: u32, ring: RingId, count: u32, first: *const u32) {
    let nodes = match usize::try_from(count) {
        // SAFETY: the library points to as many numbers as it says, within the call.
        Ok(count) if !first.is_null() => unsafe { slice::from_raw_parts(first, count) }.to_vec(),
        _ => Vec::new(),
    };
    let event = QuorumEvent { ring, quorate: quorate == 1, nodes };
    // The slot exists as long as the thread dispatches. A panic here would end the process.
    let _outside = CALLED_BACK.try_with(|slot| slot.set(Some(event)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_says_which_ring_is_quorate() {
        let ring = RingId { nodeid: 2, seq: 1 << 40 };
        for (said, quorate) in [(0, false), (1, true), (2, false)] {
            let nodes = [1, 3, 9];
            // SAFETY: there are three numbers.
            unsafe { quorum_changed(1, said, ring, 3, nodes.as_ptr()) };
            assert_eq!(CALLED_BACK.take(), Some(QuorumEvent { ring, quorate, nodes: nodes.to_vec() }));
        }
        // SAFETY: there is no number.
        unsafe { quorum_changed(1, 1, ring, 0, ptr::null()) };
        assert_eq!(CALLED_BACK.take(), Some(QuorumEvent { ring, quorate: true, nodes: vec![] }));
        assert_eq!(CALLED_BACK.take(), None);
    }
}

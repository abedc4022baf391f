//! A connection to corosync's votequorum, which counts votes.

use crate::error::{Error, Status};
use crate::ffi::{self, Functions, Handle, RawVoteInfo, VoteCallbacks};
use crate::library::Libraries;
use std::marker::PhantomData;

/// A connection, which ends when it is dropped. It is only asked, and tells nothing by itself.
#[derive(Debug)]
pub struct Votes {
    functions: &'static Functions,
    handle: Handle,
    /// As the other connections.
    _of_one_thread: PhantomData<*const ()>,
}

/// What votequorum knows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoteInfo {
    /// Votes that make the cluster quorate.
    pub quorum: u32,
    /// Votes that the cluster has when all nodes are there.
    pub highest_expected: u32,
    /// Votes that a quorum device may cast for this node; 0 without a device.
    pub device_votes: u32,
    /// Whether the device casts them.
    pub device_casts: bool,
    /// The options of corosync.conf that change how votes are counted.
    pub options: VoteOptions,
}

/// Options of votequorum(5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VoteOptions {
    /// `wait_for_all`: nothing is quorate before all nodes have been there at once.
    pub wait_for_all: bool,
    /// `last_man_standing`: nodes that are gone do not count any more after a while.
    pub last_man_standing: bool,
    /// `auto_tie_breaker`: of two halves one is quorate.
    pub auto_tie_breaker: bool,
}

impl Votes {
    /// Connects to the corosync of the calling thread's network namespace.
    pub fn connect(libraries: Libraries) -> Result<Self, Error> {
        let functions = libraries.0;
        let mut handle = 0;
        // SAFETY: the library writes the handle and copies the callbacks, all of which are absent,
        // within the call.
        let answer = unsafe { (functions.votequorum_initialize)(&mut handle, &mut VoteCallbacks::default()) };
        Status::check(answer)?;
        Ok(Self { functions, handle, _of_one_thread: PhantomData })
    }

    /// Asks about a node.
    pub fn info(&self, nodeid: u32) -> Result<VoteInfo, Error> {
        let mut info = RawVoteInfo::EMPTY;
        // SAFETY: the library fills the structure within the call.
        Status::check(unsafe { (self.functions.votequorum_getinfo)(self.handle, nodeid, &mut info) })?;
        Ok(info.into())
    }
}

impl Drop for Votes {
    fn drop(&mut self) {
        // SAFETY: nothing uses the handle afterwards.
        let _gone_before = unsafe { (self.functions.votequorum_finalize)(self.handle) };
    }
}

impl From<RawVoteInfo> for VoteInfo {
    fn from(raw: RawVoteInfo) -> Self {
        Self {
            quorum: raw.quorum,
            highest_expected: raw.highest_expected,
            device_votes: raw.qdevice_votes,
            device_casts: raw.flags & ffi::INFO_QDEVICE_CAST_VOTE != 0,
            options: VoteOptions {
                wait_for_all: raw.flags & ffi::INFO_WAIT_FOR_ALL != 0,
                last_man_standing: raw.flags & ffi::INFO_LAST_MAN_STANDING != 0,
                auto_tie_breaker: raw.flags & ffi::INFO_AUTO_TIE_BREAKER != 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_a_flag_of_its_own() {
        let options = |flags| VoteInfo::from(RawVoteInfo { flags, ..RawVoteInfo::EMPTY }).options;
        let set = |wait_for_all, last_man_standing, auto_tie_breaker| VoteOptions {
            wait_for_all,
            last_man_standing,
            auto_tie_breaker,
        };
        assert_eq!(options(2 | 64 | 128 | 256), VoteOptions::default());
        assert_eq!(options(2 | 4), set(true, false, false));
        assert_eq!(options(2 | 8), set(false, true, false));
        assert_eq!(options(2 | 16), set(false, false, true));
        assert_eq!(options(4 | 8 | 16), set(true, true, true));
    }

    #[test]
    fn a_device_casts_its_vote_whatever_other_flags_there_are() {
        let info = |flags| {
            let raw =
                RawVoteInfo { quorum: 2, highest_expected: 3, qdevice_votes: 1, flags, ..RawVoteInfo::EMPTY };
            VoteInfo::from(raw)
        };
        let options = VoteOptions::default();
        let without =
            VoteInfo { quorum: 2, highest_expected: 3, device_votes: 1, device_casts: false, options };
        // Quorate; with a device that is registered, and alive.
        for flags in [0, 2, 2 | 64, 2 | 64 | 128] {
            assert_eq!(info(flags), without, "{flags}");
        }
        // The last is one that no corosync has yet.
        for flags in [256, 2 | 64 | 128 | 256, 256 | 1 << 20] {
            assert_eq!(info(flags), VoteInfo { device_casts: true, ..without }, "{flags}");
        }
    }
}

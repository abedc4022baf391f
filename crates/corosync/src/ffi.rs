//! The types and constants of corosync's headers that are used here: `corotypes.h`, `cpg.h`,
//! `quorum.h`, `votequorum.h` and `cmap.h` of corosync 3.1. A C `enum` of these is an `unsigned int`.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

#[cfg(test)]
mod tests;

/// `cpg_handle_t`, `quorum_handle_t`, `votequorum_handle_t` and `cmap_handle_t`.
pub(crate) type Handle = u64;
/// `cs_error_t`
pub(crate) type Answer = c_uint;

/// `CS_DISPATCH_ONE_NONBLOCKING`: at most one callback.
pub(crate) const DISPATCH_ONE_NONBLOCKING: c_uint = 4;
/// `CS_TRACK_CHANGES`: the present state, then each change.
pub(crate) const TRACK_CHANGES: c_uint = 2;
/// `CPG_MODEL_V1`
pub(crate) const CPG_MODEL_V1: c_uint = 1;
/// `CPG_TYPE_AGREED`: in the same order at all members.
pub(crate) const CPG_TYPE_AGREED: c_uint = 2;
/// `CPG_MAX_NAME_LENGTH`
pub(crate) const CPG_MAX_NAME_LENGTH: usize = 128;
/// `QUORUM_MODEL_V1`
pub(crate) const QUORUM_MODEL_V1: c_uint = 1;
/// `QUORUM_SET`: corosync has a provider of quorum.
pub(crate) const QUORUM_SET: u32 = 1;
/// `VOTEQUORUM_INFO_WAIT_FOR_ALL`
pub(crate) const INFO_WAIT_FOR_ALL: c_uint = 4;
/// `VOTEQUORUM_INFO_LAST_MAN_STANDING`
pub(crate) const INFO_LAST_MAN_STANDING: c_uint = 8;
/// `VOTEQUORUM_INFO_AUTO_TIE_BREAKER`
pub(crate) const INFO_AUTO_TIE_BREAKER: c_uint = 16;
/// `VOTEQUORUM_INFO_QDEVICE_CAST_VOTE`
pub(crate) const INFO_QDEVICE_CAST_VOTE: c_uint = 256;
/// `VOTEQUORUM_QDEVICE_MAX_NAME_LEN`
const QDEVICE_MAX_NAME_LEN: usize = 255;

/// A membership as corosync's protocol forms it: `cpg_ring_id` and `quorum_ring_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RingId {
    /// The representative of the ring.
    pub nodeid: u32,
    /// Grows with every ring.
    pub seq: u64,
}

/// `cpg_name`: a group. The name needs no closing NUL.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CpgName {
    pub(crate) length: u32,
    pub(crate) value: [u8; CPG_MAX_NAME_LENGTH],
}

/// `cpg_address`: a process of a group.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CpgAddress {
    pub(crate) nodeid: u32,
    pub(crate) pid: u32,
    pub(crate) reason: u32,
}

/// `iovec`
#[derive(Debug)]
#[repr(C)]
pub(crate) struct IoVec {
    pub(crate) base: *mut c_void,
    pub(crate) len: usize,
}

/// `cpg_deliver_fn_t`
pub(crate) type CpgDeliver =
    unsafe extern "C" fn(Handle, *const CpgName, nodeid: u32, pid: u32, *mut c_void, usize);
/// `cpg_confchg_fn_t`
pub(crate) type CpgConfchg = unsafe extern "C" fn(
    Handle,
    *const CpgName,
    members: *const CpgAddress,
    usize,
    left: *const CpgAddress,
    usize,
    joined: *const CpgAddress,
    usize,
);
/// `cpg_totem_confchg_fn_t`
pub(crate) type CpgTotemConfchg = unsafe extern "C" fn(Handle, RingId, u32, *const u32);

/// `cpg_model_v1_data_t`
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CpgModel {
    pub(crate) model: c_uint,
    pub(crate) deliver: Option<CpgDeliver>,
    pub(crate) confchg: Option<CpgConfchg>,
    pub(crate) totem_confchg: Option<CpgTotemConfchg>,
    pub(crate) flags: c_uint,
}

/// `quorum_v1_quorum_notification_fn_t`
pub(crate) type QuorumNotify = unsafe extern "C" fn(Handle, quorate: u32, RingId, members: u32, *const u32);

/// `quorum_model_v1_data_t`. The callback for lists of nodes is never set, so its arguments do not
/// matter here.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct QuorumModel {
    pub(crate) model: c_uint,
    pub(crate) quorum: Option<QuorumNotify>,
    pub(crate) nodelist: Option<unsafe extern "C" fn()>,
}

/// `votequorum_callbacks_t`. None of them is ever set.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct VoteCallbacks {
    pub(crate) quorum: Option<unsafe extern "C" fn()>,
    pub(crate) expected_votes: Option<unsafe extern "C" fn()>,
    pub(crate) nodelist: Option<unsafe extern "C" fn()>,
}

/// `votequorum_info`
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RawVoteInfo {
    pub(crate) node_id: c_uint,
    pub(crate) node_state: c_uint,
    pub(crate) node_votes: c_uint,
    pub(crate) node_expected_votes: c_uint,
    pub(crate) highest_expected: c_uint,
    pub(crate) total_votes: c_uint,
    pub(crate) quorum: c_uint,
    pub(crate) flags: c_uint,
    pub(crate) qdevice_votes: c_uint,
    pub(crate) qdevice_name: [c_char; QDEVICE_MAX_NAME_LEN],
}

impl RawVoteInfo {
    /// For a call to fill.
    pub(crate) const EMPTY: Self = Self {
        node_id: 0,
        node_state: 0,
        node_votes: 0,
        node_expected_votes: 0,
        highest_expected: 0,
        total_votes: 0,
        quorum: 0,
        flags: 0,
        qdevice_votes: 0,
        qdevice_name: [0; QDEVICE_MAX_NAME_LEN],
    };
}

impl CpgName {
    /// `None`: the name is longer than corosync allows.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let mut value = [0; CPG_MAX_NAME_LENGTH];
        value.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Some(Self { length: u32::try_from(name.len()).ok()?, value })
    }
}

impl IoVec {
    /// Octets that are read alone, although C's type lets them be written.
    pub(crate) fn reading(octets: &[u8]) -> Self {
        Self { base: ptr::from_ref(octets).cast_mut().cast(), len: octets.len() }
    }
}

/// The functions that are called: their addresses in the libraries that were loaded.
#[derive(Debug)]
pub(crate) struct Functions {
    pub(crate) cpg_model_initialize:
        unsafe extern "C" fn(*mut Handle, model: c_uint, *mut CpgModel, *mut c_void) -> Answer,
    pub(crate) cpg_local_get: unsafe extern "C" fn(Handle, *mut c_uint) -> Answer,
    pub(crate) cpg_fd_get: unsafe extern "C" fn(Handle, *mut c_int) -> Answer,
    pub(crate) cpg_join: unsafe extern "C" fn(Handle, *const CpgName) -> Answer,
    pub(crate) cpg_mcast_joined:
        unsafe extern "C" fn(Handle, guarantee: c_uint, *const IoVec, c_uint) -> Answer,
    pub(crate) cpg_dispatch: unsafe extern "C" fn(Handle, c_uint) -> Answer,
    pub(crate) cpg_finalize: unsafe extern "C" fn(Handle) -> Answer,
    pub(crate) quorum_model_initialize:
        unsafe extern "C" fn(*mut Handle, model: c_uint, *mut QuorumModel, *mut u32, *mut c_void) -> Answer,
    pub(crate) quorum_trackstart: unsafe extern "C" fn(Handle, c_uint) -> Answer,
    pub(crate) quorum_fd_get: unsafe extern "C" fn(Handle, *mut c_int) -> Answer,
    pub(crate) quorum_dispatch: unsafe extern "C" fn(Handle, c_uint) -> Answer,
    pub(crate) quorum_finalize: unsafe extern "C" fn(Handle) -> Answer,
    pub(crate) votequorum_initialize: unsafe extern "C" fn(*mut Handle, *mut VoteCallbacks) -> Answer,
    pub(crate) votequorum_getinfo: unsafe extern "C" fn(Handle, nodeid: c_uint, *mut RawVoteInfo) -> Answer,
    pub(crate) votequorum_finalize: unsafe extern "C" fn(Handle) -> Answer,
    pub(crate) cmap_initialize: unsafe extern "C" fn(*mut Handle) -> Answer,
    pub(crate) cmap_get_uint32: unsafe extern "C" fn(Handle, key: *const c_char, *mut u32) -> Answer,
    pub(crate) cmap_finalize: unsafe extern "C" fn(Handle) -> Answer,
}

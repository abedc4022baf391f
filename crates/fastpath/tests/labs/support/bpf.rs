//! Just enough of BPF to load hand-made XDP programs and to attach or run them.

use libbpf_rs::libbpf_sys as sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct bpf_insn`: code, destination and source register, offset, immediate.
pub const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    code as u64
        | (dst as u64) << 8
        | (src as u64) << 12
        | (off as u16 as u64) << 16
        | (imm as u32 as u64) << 32
}

pub const LOAD_IMM64: u8 = 0x18;
pub const LOAD_U16: u8 = 0x69;
pub const LOAD_U32: u8 = 0x61;
pub const STORE_IMM32: u8 = 0x62;
pub const MOV: u8 = 0xbf;
pub const MOV_IMM: u8 = 0xb7;
pub const ADD_IMM: u8 = 0x07;
pub const JUMP: u8 = 0x05;
pub const IF_GREATER: u8 = 0x2d;
pub const IF_EQUAL: u8 = 0x15;
pub const IF_NOT_EQUAL: u8 = 0x55;
pub const CALL: u8 = 0x85;
pub const EXIT: u8 = 0x95;

pub const XDP_DROP: i32 = 1;
pub const XDP_PASS: i32 = 2;

/// Loads an XDP program that takes packets in several pieces too.
pub fn load(code: &[u64]) -> OwnedFd {
    // SAFETY: zeroes mean "not given" in every member.
    let mut options: sys::bpf_prog_load_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of::<sys::bpf_prog_load_opts>() as sys::size_t;
    options.prog_flags = sys::BPF_F_XDP_HAS_FRAGS;
    // SAFETY: name, license, code and options outlive the call.
    let program = unsafe {
        sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_XDP,
            c"ttxd".as_ptr(),
            c"GPL".as_ptr(),
            code.as_ptr().cast(),
            code.len() as u64,
            &raw mut options,
        )
    };
    owned(program, "bpf_prog_load")
}

/// Attaches a program to an interface, natively, until the link is dropped.
pub fn attach(program: &OwnedFd, ifindex: u32) -> OwnedFd {
    // SAFETY: no options.
    let link =
        unsafe { sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, sys::BPF_XDP, std::ptr::null()) };
    owned(link, "bpf_link_create")
}

/// A map from queues to sockets.
pub fn socket_map() -> OwnedFd {
    // SAFETY: the name outlives the call; no options.
    let map = unsafe {
        sys::bpf_map_create(sys::BPF_MAP_TYPE_XSKMAP, c"ttxd".as_ptr(), 4, 4, 64, std::ptr::null())
    };
    owned(map, "bpf_map_create")
}

/// Enters a socket into such a map.
pub fn set_socket(map: &OwnedFd, queue: u32, socket: BorrowedFd<'_>) {
    let value = socket.as_raw_fd();
    let (key, value) = (std::ptr::from_ref(&queue).cast(), std::ptr::from_ref(&value).cast());
    // SAFETY: key and value are four octets each, as the map was made.
    let result = unsafe { sys::bpf_map_update_elem(map.as_raw_fd(), key, value, 0) };
    assert_eq!(result, 0, "bpf_map_update_elem: {}", io::Error::last_os_error());
}

/// Makes the kernel run the program on `count` live copies of a frame, which go where the program
/// says.
pub fn run_live(program: &OwnedFd, frame: &[u8], count: u32) {
    // SAFETY: zeroes mean "not given" in every member.
    let mut options: sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of::<sys::bpf_test_run_opts>() as u64;
    options.data_in = frame.as_ptr().cast();
    options.data_size_in = frame.len() as u32;
    options.repeat = count as i32;
    options.flags = sys::BPF_F_TEST_XDP_LIVE_FRAMES;
    options.batch_size = 64;
    // SAFETY: frame and options outlive the call.
    let result = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    assert_eq!(result, 0, "bpf_prog_test_run_opts: {}", io::Error::last_os_error());
}

fn owned(fd: i32, call: &str) -> OwnedFd {
    assert!(fd >= 0, "{call}: {}", io::Error::last_os_error());
    // SAFETY: just opened, and without another owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

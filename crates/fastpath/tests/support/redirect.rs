//! An XDP program that stamps every IP packet with one class and redirects it to the socket of its queue; all else,
//! and packets of queues without a socket, go to the kernel.

use libbpf_rs::libbpf_sys as sys;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The program on an interface, until dropped.
#[derive(Debug)]
pub struct Redirect {
    sockets: OwnedFd,
    _program: OwnedFd,
    _link: OwnedFd,
}

impl Redirect {
    /// Attaches the program natively.
    pub fn attach(ifindex: u32, stamp: [u8; 4]) -> Self {
        let name = CString::new("sockets").unwrap();
        // SAFETY: the name outlives the call; no options.
        let map = unsafe {
            sys::bpf_map_create(sys::BPF_MAP_TYPE_XSKMAP, name.as_ptr(), 4, 4, 64, std::ptr::null())
        };
        let sockets = owned(map, "bpf_map_create");
        let code = program(sockets.as_raw_fd(), stamp);
        let license = CString::new("GPL").unwrap();
        // SAFETY: name, license and code outlive the call; no options.
        let program = unsafe {
            sys::bpf_prog_load(
                sys::BPF_PROG_TYPE_XDP,
                name.as_ptr(),
                license.as_ptr(),
                code.as_ptr().cast(),
                code.len() as u64,
                std::ptr::null_mut(),
            )
        };
        let program = owned(program, "bpf_prog_load");
        // SAFETY: no options.
        let link = unsafe {
            sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, sys::BPF_XDP, std::ptr::null())
        };
        Self { sockets, _program: program, _link: owned(link, "bpf_link_create") }
    }

    /// Makes packets of a queue go to a socket.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) {
        let value = socket.as_raw_fd();
        // SAFETY: key and value are four octets each, as the map was made.
        let result = unsafe {
            sys::bpf_map_update_elem(
                self.sockets.as_raw_fd(),
                std::ptr::from_ref(&queue).cast(),
                std::ptr::from_ref(&value).cast(),
                0,
            )
        };
        assert_eq!(result, 0, "bpf_map_update_elem: {}", io::Error::last_os_error());
    }
}

fn owned(fd: i32, call: &str) -> OwnedFd {
    assert!(fd >= 0, "{call}: {}", io::Error::last_os_error());
    // SAFETY: just opened, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// `struct bpf_insn`: code, destination and source register, offset, immediate.
const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    code as u64
        | (dst as u64) << 8
        | (src as u64) << 12
        | (off as u16 as u64) << 16
        | (imm as u32 as u64) << 32
}

/// Jumps are relative to the next instruction; `PASS` is where the verdict is set to it.
fn program(map: i32, stamp: [u8; 4]) -> Vec<u64> {
    const LOAD_IMM64: u8 = 0x18;
    const LOAD_U16: u8 = 0x69;
    const LOAD_U32: u8 = 0x61;
    const STORE_IMM32: u8 = 0x62;
    const MOV: u8 = 0xbf;
    const MOV_IMM: u8 = 0xb7;
    const ADD_IMM: u8 = 0x07;
    const IF_GREATER: u8 = 0x2d;
    const IF_EQUAL: u8 = 0x15;
    const IF_NOT_EQUAL: u8 = 0x55;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const ADJUST_META: i32 = 54;
    const REDIRECT_MAP: i32 = 51;
    const XDP_PASS: i32 = 2;
    const PASS: i16 = 25;
    let to_pass = |from: i16| PASS - from - 1;
    vec![
        /*  0 */ insn(MOV, 6, 1, 0, 0),
        /*  1 */ insn(LOAD_U32, 2, 6, 0, 0), // data
        /*  2 */ insn(LOAD_U32, 3, 6, 4, 0), // data_end
        /*  3 */ insn(MOV, 4, 2, 0, 0),
        /*  4 */ insn(ADD_IMM, 4, 0, 0, 14),
        /*  5 */ insn(IF_GREATER, 4, 3, to_pass(5), 0),
        /*  6 */ insn(LOAD_U16, 5, 2, 12, 0),
        /*  7 */ insn(IF_EQUAL, 5, 0, 1, i32::from(0x0800u16.to_be())),
        /*  8 */ insn(IF_NOT_EQUAL, 5, 0, to_pass(8), i32::from(0x86ddu16.to_be())),
        /*  9 */ insn(MOV, 1, 6, 0, 0),
        /* 10 */ insn(MOV_IMM, 2, 0, 0, -4),
        /* 11 */ insn(CALL, 0, 0, 0, ADJUST_META),
        /* 12 */ insn(IF_NOT_EQUAL, 0, 0, to_pass(12), 0),
        /* 13 */ insn(LOAD_U32, 2, 6, 8, 0), // data_meta
        /* 14 */ insn(LOAD_U32, 3, 6, 0, 0), // data
        /* 15 */ insn(MOV, 4, 2, 0, 0),
        /* 16 */ insn(ADD_IMM, 4, 0, 0, 4),
        /* 17 */ insn(IF_GREATER, 4, 3, to_pass(17), 0),
        /* 18 */ insn(STORE_IMM32, 2, 0, 0, i32::from_ne_bytes(stamp)),
        /* 19 */ insn(LOAD_U32, 2, 6, 16, 0), // rx_queue_index
        /* 20 */ insn(LOAD_IMM64, 1, 1, 0, map),
        /*    */ insn(0, 0, 0, 0, 0),
        /* 22 */ insn(MOV_IMM, 3, 0, 0, XDP_PASS),
        /* 23 */ insn(CALL, 0, 0, 0, REDIRECT_MAP),
        // Falls over the verdict of PASS, which only jumps reach.
        /* 24 */
        insn(0x05, 0, 0, 1, 0),
        /* 25 */ insn(MOV_IMM, 0, 0, 0, XDP_PASS),
        /* 26 */ insn(EXIT, 0, 0, 0, 0),
    ]
}

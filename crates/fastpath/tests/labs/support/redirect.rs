//! An XDP program that stamps every IP packet with one class and redirects it to the socket of its
//! queue; all else, and packets of queues without a socket, go to the kernel.

use super::bpf::*;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

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
        let sockets = socket_map();
        let program = load(&program(sockets.as_raw_fd(), stamp));
        let link = attach(&program, ifindex);
        Self { sockets, _program: program, _link: link }
    }

    /// Makes packets of a queue go to a socket.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) {
        set_socket(&self.sockets, queue, socket);
    }
}

/// Jumps are relative to the next instruction; `PASS` is where the verdict is set to it.
fn program(map: i32, stamp: [u8; 4]) -> Vec<u64> {
    const ADJUST_META: i32 = 54;
    const REDIRECT_MAP: i32 = 51;
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
        /* 24 */ insn(JUMP, 0, 0, 1, 0),
        /* 25 */ insn(MOV_IMM, 0, 0, 0, XDP_PASS),
        /* 26 */ insn(EXIT, 0, 0, 0, 0),
    ]
}

//! Network namespaces, veth pairs and a minimal XDP program for tests with real sockets. They need
//! root.
#![allow(dead_code, unreachable_pub)]

pub mod bpf;
pub mod gateway;
pub mod namespace;
pub mod port;
pub mod redirect;
pub mod routed;
pub mod tunnel;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;

/// Runs a test on a thread in a network namespace of its own, which is gone when the thread ends.
///
/// # Panics
/// If the namespace cannot be made, and with the test's own panic.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        enter_new_namespace();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Moves the calling thread into a new network namespace with the loopback up.
pub fn enter_new_namespace() {
    // SAFETY: takes a flag only, and changes nothing but the calling thread.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    let error = std::io::Error::last_os_error();
    assert_eq!(result, 0, "this test needs root to make a network namespace: {error}");
    ip("link set lo up");
}

/// Runs `ip` in the calling thread's namespace.
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip of iproute2");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The next datagram of a socket with a time limit, which a machine that is stopped for a moment
/// does not end (signal(7)).
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Makes a veth pair, both ends up, without IPv6 so that nothing but the test sends.
pub fn veth(one: &str, other: &str) {
    veth_with((one, ""), (other, ""));
}

/// Like [`veth`], with options of each end.
pub fn veth_with((one, options): (&str, &str), (other, other_options): (&str, &str)) {
    ip(&format!("link add {one} {options} type veth peer name {other} {other_options}"));
    for end in [one, other] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1").expect("no IPv6");
        ip(&format!("link set {end} up"));
    }
}

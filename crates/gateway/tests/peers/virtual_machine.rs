//! A virtual machine behind our side: its virtio-net leaves checksums open, and a tap and a switch
//! hand them on so.

use crate::common::{Pair, SOON, Scenario};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener};
use testudo_lab::gateway::Kind;
use testudo_lab::guest::VirtualMachine;
use testudo_lab::topology::{Family, Side};
use testudo_lab::{Error, Result, wait_until};

/// Little enough for an emulated processor, and more than a window of TCP: some 290 kB.
const LINES: u32 = 50_000;

/// The machine sends its lines to the server, gets them back, and finds them as they were.
fn lines_come_back(pair: &Pair, machine: &VirtualMachine, server: IpAddr) {
    let listener = pair.t.server.enter(|| TcpListener::bind((server, 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::scope(|scope| {
        let returning = scope.spawn(|| return_all(&listener));
        let script = format!(
            "seq {LINES} >/tmp/sent\nnc {server} {port} </tmp/sent >/tmp/got\ncmp /tmp/sent /tmp/got"
        );
        machine.run(&script).unwrap();
        let octets = returning.join().unwrap().unwrap();
        assert!(octets > u64::from(LINES));
    });
}

/// Reads what comes by the first connection, and sends it back when that is all.
fn return_all(listener: &TcpListener) -> Result<u64> {
    let failed = || Error::io("return what the machine sends");
    listener.set_nonblocking(true).map_err(failed())?;
    let mut stream = wait_until("a connection from the machine", SOON, || match listener.accept() {
        Ok((stream, _)) => Ok(Ok(stream)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Err("none".into())),
        Err(error) => Err(failed()(error)),
    })?;
    let mut talk = || {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(SOON))?;
        let mut octets = Vec::new();
        stream.read_to_end(&mut octets)?;
        stream.write_all(&octets)?;
        stream.shutdown(Shutdown::Both)?;
        Ok(octets.len() as u64)
    };
    talk().map_err(failed())
}

#[test]
fn tcp_of_a_virtual_machine_crosses_the_tunnel() {
    let scenario = Scenario::new("virtio", Kind::Strongswan).large().neighbours_leave_checksums_open();
    let pair = scenario.start();
    let machine = VirtualMachine::start(&pair.t.client).unwrap();
    pair.up(Side::One);
    for family in [Family::V4, Family::V6] {
        let before = crate::checksums::filled(&pair);
        lines_come_back(&pair, &machine, Side::Two.host(family));
        assert!(crate::checksums::filled(&pair) - before > 10, "{family}");
    }
}

//! What a driver reports about an interface by ioctl(SIOCETHTOOL), in the current network
//! namespace.

use super::interface::named;
use super::socket;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// `struct ethtool_channels` of linux/ethtool.h.
#[repr(C)]
#[derive(Default)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_value`.
#[repr(C)]
#[derive(Default)]
struct Value {
    cmd: u32,
    data: u32,
}

/// `struct ethtool_cmd`, as far as the field of the speed.
#[repr(C)]
#[derive(Default)]
struct Settings {
    cmd: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    duplex_and_port: [u8; 2],
    addresses: [u8; 4],
    most_packets: [u32; 2],
    speed_high: u16,
    crossing: [u8; 2],
    partner_advertising: u32,
    reserved: [u32; 2],
}

/// `struct ethtool_drvinfo`; only the driver's name is read.
#[repr(C)]
struct DriverInfo {
    cmd: u32,
    driver: [u8; 32],
    versions_and_counts: [u32; 40],
}

/// A structure of an ethtool command.
///
/// # Safety
/// The type consists of numbers and is laid out as the kernel defines it for every command that is
/// put into it.
unsafe trait Question {}
// SAFETY: `repr(C)`, as linux/ethtool.h has it.
unsafe impl Question for Channels {}
// SAFETY: `repr(C)`, as linux/ethtool.h has it.
unsafe impl Question for Value {}
// SAFETY: `repr(C)`, as linux/ethtool.h has it.
unsafe impl Question for Settings {}
// SAFETY: `repr(C)`, as linux/ethtool.h has it.
unsafe impl Question for DriverInfo {}

const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Queues of an interface that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Number of receive queues.
    pub receive: u32,
    /// Number of send queues.
    pub send: u32,
}

/// The queues in use. A driver that does not report them has one of each.
pub(crate) fn queues(socket: &OwnedFd, interface: &str) -> io::Result<Queues> {
    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    if !ask(socket, interface, &mut channels)? {
        return Ok(Queues { receive: 1, send: 1 });
    }
    let Channels { rx, tx, combined, .. } = channels;
    Ok(Queues { receive: rx.saturating_add(combined), send: tx.saturating_add(combined) })
}

/// True if the interface is up and has a carrier now.
pub(crate) fn has_link(interface: &str) -> io::Result<bool> {
    let mut value = Value { cmd: ETHTOOL_GLINK, data: 0 };
    Ok(ask(&socket::datagram()?, interface, &mut value)? && value.data != 0)
}

/// The speed of an interface in Mb/s. `None` while it has no link, or if the driver does not report
/// it.
pub(crate) fn speed(socket: &OwnedFd, interface: &str) -> io::Result<Option<u32>> {
    let mut settings = Settings { cmd: ETHTOOL_GSET, ..Settings::default() };
    if !ask(socket, interface, &mut settings)? {
        return Ok(None);
    }
    let speed = u32::from(settings.speed_high) << 16 | u32::from(settings.speed);
    // SPEED_UNKNOWN is -1; old drivers set only its lower half.
    Ok(Some(speed).filter(|speed| ![0, 0xffff, u32::MAX].contains(speed)))
}

/// The name of an interface's driver. `None` if the kernel does not report it.
pub(crate) fn driver(socket: &OwnedFd, interface: &str) -> io::Result<Option<String>> {
    let mut info = DriverInfo { cmd: ETHTOOL_GDRVINFO, driver: [0; 32], versions_and_counts: [0; 40] };
    if !ask(socket, interface, &mut info)? {
        return Ok(None);
    }
    let name = info.driver.split(|octet| *octet == 0).next().unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(name).into_owned()).filter(|name| !name.is_empty()))
}

/// Sends one ethtool command. Returns false if the driver does not support it.
fn ask<T: Question>(socket: &OwnedFd, interface: &str, question: &mut T) -> io::Result<bool> {
    let mut request = named(interface)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
    // SAFETY: the request reads the name, and the command where `ifru_data` points. All structures
    // above are laid out as the kernel defines them, so it writes its answer inside a live one.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) };
    if result >= 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EOPNOTSUPP) { Ok(false) } else { Err(error) }
}

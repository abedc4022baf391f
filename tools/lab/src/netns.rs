//! Named network namespaces, as `ip netns` makes them: a mount below /run/netns. A run of all labs
//! makes thousands, and a process for each step costs more than the step.

use crate::{Error, Result};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Directory of named namespaces (ip-netns(8)).
pub(crate) const DIRECTORY: &str = "/run/netns";

/// A request (rtnetlink(7)) to set the first interface up: that of the loopback device, in every
/// namespace.
const LOOPBACK_UP: [[u8; 4]; 8] = {
    const RTM_NEWLINK: u16 = 16;
    const REQUEST_AND_ACK: u16 = 5;
    const UP: u32 = 1;
    let [kind, flags] = [RTM_NEWLINK.to_ne_bytes(), REQUEST_AND_ACK.to_ne_bytes()];
    [
        32u32.to_ne_bytes(),
        [kind[0], kind[1], flags[0], flags[1]],
        [0; 4],
        [0; 4],
        [0; 4],
        1u32.to_ne_bytes(),
        UP.to_ne_bytes(),
        UP.to_ne_bytes(),
    ]
};

/// Path of a namespace, for setns(2).
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// Makes a namespace with its loopback interface up.
pub(crate) fn add(name: &str) -> Result<()> {
    let path = path(name);
    fs::create_dir_all(DIRECTORY)
        .and_then(|()| share_directory())
        .map_err(Error::io(format!("prepare {DIRECTORY}")))?;
    File::create_new(&path).map_err(Error::io(format!("make {}", path.display())))?;
    let made = in_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        loopback_up()?;
        let own = Some("/proc/thread-self/ns/net");
        Ok(mount(own, &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
    });
    if made.is_err() {
        let _left = fs::remove_file(&path);
    }
    made.map_err(Error::io(format!("make namespace {name}")))
}

/// The first `ip netns add` of a machine mounts the directory once more upon itself, to share it, and
/// so hides the namespaces that are there. Does the same before there are any.
fn share_directory() -> io::Result<()> {
    let directory = File::open(DIRECTORY)?;
    directory.lock()?;
    let change = |from, flags| mount(from, DIRECTORY, None::<&str>, flags, None::<&str>);
    let share = || change(None, MsFlags::MS_SHARED | MsFlags::MS_REC);
    match share() {
        // It is no mount.
        Err(Errno::EINVAL) if fs::read_dir(DIRECTORY)?.next().is_none() => {
            change(Some(DIRECTORY), MsFlags::MS_BIND | MsFlags::MS_REC)?;
            Ok(share()?)
        }
        Err(Errno::EINVAL) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes the name. The namespace ends with the last process in it.
pub(crate) fn delete(name: &str) -> Result<()> {
    let path = path(name);
    umount2(&path, MntFlags::MNT_DETACH)
        .map_err(io::Error::from)
        .and_then(|()| fs::remove_file(&path))
        .map_err(Error::io(format!("delete namespace {name}")))
}

/// Runs a function in a separate thread inside the namespace of that name.
pub(crate) fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    let open = || Error::io(format!("enter namespace {name}"));
    let namespace = File::open(path(name)).map_err(open())?;
    in_thread(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).map_err(|e| open()(e.into()))?;
        Ok(work())
    })
}

/// A thread of its own, because the namespace is that of a thread.
fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn loopback_up() -> io::Result<()> {
    let socket =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    let kernel = NetlinkAddr::new(0, 0);
    sendto(socket.as_raw_fd(), LOOPBACK_UP.as_flattened(), &kernel, MsgFlags::empty())?;
    let mut answer = [0; 64];
    recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // Behind the header: the error, negative.
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Cmd;

    /// Somebody may look at something else meanwhile.
    #[test]
    fn a_namespace_is_still_there_after_ip_netns_has_made_and_removed_another() {
        let lab = crate::Lab::new("netns-beside").unwrap();
        let namespace = lab.namespace("ours").unwrap();
        let other = format!("{}-other", namespace.name());
        for command in ["add", "delete"] {
            Cmd::new("ip").args(["netns", command, &other]).run().unwrap();
        }
        namespace.enter(|| ()).unwrap();
        delete(namespace.name()).unwrap();
        add(namespace.name()).unwrap();
    }

    #[test]
    fn a_namespace_is_one_that_ip_netns_knows() {
        let lab = crate::Lab::new("netns").unwrap();
        let namespace = lab.namespace("ours").unwrap();
        let known = || Cmd::new("ip").args(["netns", "list"]).run().unwrap().stdout;
        let name = namespace.name().to_owned();
        assert!(known().contains(&name));
        let shown = Cmd::new("ip").args(["-n", &name, "address", "show"]).run().unwrap().stdout;
        assert!(shown.starts_with("1: lo: <LOOPBACK,UP,LOWER_UP>") && !shown.contains("\n2: "), "{shown}");
        let again = add(&name).unwrap_err().to_string();
        assert!(again.contains("exists"), "{again}");
        drop(namespace);
        assert!(!known().contains(&name) && !path(&name).exists());
    }
}

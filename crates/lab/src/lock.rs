//! One lab at a time on a machine.
//!
//! The lock is an abstract Unix socket name: the kernel frees it when its owner dies, and no file stays behind.
//! Whoever holds it owns every lab object on the machine, so whatever is there at that moment is a leftover.

use crate::{Error, Result, interrupt};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

const NAME: &str = "testudo-lab";
const POLL: Duration = Duration::from_millis(100);

/// Held as long as it lives.
#[derive(Debug)]
pub(crate) struct Lock {
    _listener: UnixListener,
}

impl Lock {
    /// Waits until no other lab is there, at most `limit`.
    pub(crate) fn wait(limit: Duration) -> Result<Self> {
        Self::wait_for(NAME, limit)
    }

    fn wait_for(name: &str, limit: Duration) -> Result<Self> {
        let address = SocketAddr::from_abstract_name(name).map_err(Error::io("name the lab's lock"))?;
        let start = Instant::now();
        loop {
            interrupt::check()?;
            match UnixListener::bind_addr(&address) {
                Ok(listener) => return Ok(Self { _listener: listener }),
                Err(e) if e.kind() == ErrorKind::AddrInUse && start.elapsed() < limit => sleep(POLL),
                Err(e) if e.kind() == ErrorKind::AddrInUse => {
                    let what = format!("the lab that process {} holds", holder(&address));
                    return Err(Error::Timeout { what, after: limit, last: String::new() });
                }
                Err(e) => return Err(Error::io("take the lab's lock")(e)),
            }
        }
    }
}

fn holder(address: &SocketAddr) -> String {
    let pid = || -> io::Result<i32> {
        let stream = UnixStream::connect_addr(address)?;
        Ok(getsockopt(&stream, PeerCredentials)?.pid())
    };
    pid().map_or_else(|_| "?".into(), |pid| pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_waits_for_the_first_and_names_it() {
        let name = format!("testudo-lab-test-{}", std::process::id());
        let first = Lock::wait_for(&name, Duration::ZERO).unwrap();
        let refused = Lock::wait_for(&name, Duration::from_millis(150)).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {} holds", std::process::id())), "{refused}");
        drop(first);
        Lock::wait_for(&name, Duration::ZERO).unwrap();
    }
}

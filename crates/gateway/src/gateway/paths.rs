//! What clients of VICI say of paths while they use them. The other nodes of a cluster are not
//! told.

use super::Gateway;
use crate::datapath::{HOLD, Released};
use crate::error::{Error, Result};
use std::net::IpAddr;
use testudo_ike::output::LogLevel;

impl Gateway {
    /// A client says what the path to a peer takes.
    pub(crate) fn path_mtu_told(&mut self, remote: IpAddr, mtu: u16, holder: &str) -> Result<()> {
        if !self.data.sends_to(remote) {
            return Err(Error::NoSaTowards(remote));
        }
        let (mtu, is_news) = self.data.hold_path_mtu(remote, holder, mtu).ok_or(Error::TooManyPathMtus)?;
        if is_news {
            let line = format!("the path to {remote} takes packets of {mtu} octets, as {holder:?} says");
            self.log(None, None, LogLevel::Info, line);
        }
        Ok(())
    }

    /// A client says nothing of any path any more.
    pub(crate) fn path_mtus_untold(&mut self, holder: &str) {
        let released = self.data.release_path_mtus(holder);
        self.log_released(released, "has ended");
    }

    /// Forgets what clients have not repeated.
    pub(crate) fn expire_path_mtus(&mut self) {
        let expired = self.data.expire_path_mtus();
        self.log_released(expired, &format!("has been silent for {} seconds", HOLD.as_secs()));
    }

    fn log_released(&mut self, released: Vec<Released>, why: &str) {
        for Released { remote, holder, mtu } in released {
            let line = format!("the path to {remote} takes packets of {mtu} octets again: {holder:?} {why}");
            self.log(None, None, LogLevel::Info, line);
        }
    }
}

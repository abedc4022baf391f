//! Who runs the command.

use nix::unistd::{Uid, User, getuid};
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};

/// The variable in which sudo(8) tells its caller.
const SUDO_UID: &str = "SUDO_UID";

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) uid: u32,
    /// None if the user database does not have it.
    pub(super) name: Option<String>,
}

/// The caller is not known.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{SUDO_UID}: found {0:?}, expected the number of a user")]
pub(super) struct NoCaller(OsString);

impl Caller {
    /// Of this process: the user who called sudo if root runs it by sudo. Root itself can set the
    /// variable too; root may do everything anyway.
    pub(super) fn find() -> Result<Self, NoCaller> {
        let uid = real_uid(getuid(), std::env::var_os(SUDO_UID))?;
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        Ok(Self { uid, name: user.map(|user| user.name) })
    }
}

fn real_uid(uid: Uid, sudo: Option<OsString>) -> Result<u32, NoCaller> {
    match sudo {
        Some(sudo) if uid.is_root() => sudo.to_str().and_then(|sudo| sudo.parse().ok()).ok_or(NoCaller(sudo)),
        // Any other user can set the variable to anything.
        _ => Ok(uid.as_raw()),
    }
}

impl Display for Caller {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} (uid {})", self.uid),
            None => write!(f, "uid {}", self.uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sudo_tells_the_caller_to_root_alone() {
        let of = |uid, sudo: Option<&str>| real_uid(Uid::from_raw(uid), sudo.map(OsString::from));
        assert_eq!(of(0, None), Ok(0));
        assert_eq!(of(0, Some("1000")), Ok(1000));
        assert_eq!(of(1001, Some("1000")), Ok(1001));
        assert_eq!(of(0, Some("alice")), Err(NoCaller("alice".into())));
    }
}

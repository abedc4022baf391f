//! What can go wrong with corosync's libraries.

use std::fmt;

/// Why there is no library, or why a call of one failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A library cannot be loaded, as a rule because it is not installed.
    #[error(
        "cannot load corosync's library {file}: {reason}; install Debian's package {package}, which comes with corosync"
    )]
    Library {
        /// The file that the dynamic linker was asked for.
        file: &'static str,
        /// The package that has it.
        package: &'static str,
        /// The dynamic linker's words.
        reason: String,
    },
    /// A library lacks a function.
    #[error(
        "corosync's library {file} has no function {function} ({reason}); install package {package} of corosync 3.1 or later"
    )]
    Function {
        /// The library.
        file: &'static str,
        /// The package that has it.
        package: &'static str,
        /// What it lacks.
        function: &'static str,
        /// The dynamic linker's words.
        reason: String,
    },
    /// A call failed.
    #[error("{0}")]
    Call(Status),
}

/// What a call answers: a `cs_error_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub(crate) u32);

impl Status {
    /// The daemon cannot be reached.
    pub const LIBRARY: Self = Self(2);
    /// Not now: a membership is formed, too much is under way, or nothing waits to be told.
    pub const TRY_AGAIN: Self = Self(6);
    /// The user of this process is not allowed to.
    pub const ACCESS: Self = Self(11);
    /// There is no such thing.
    pub const NOT_EXIST: Self = Self(12);
    /// The name of a group is longer than corosync allows.
    pub const NAME_TOO_LONG: Self = Self(13);
    /// There is such a thing already.
    pub const EXIST: Self = Self(14);
    /// The user of this process is not allowed to.
    pub const SECURITY: Self = Self(100);

    const OK: Self = Self(1);

    /// What a function answered, as a result.
    pub(crate) fn check(answer: u32) -> Result<(), Error> {
        if Self(answer) == Self::OK { Ok(()) } else { Err(Error::Call(Self(answer))) }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "cs_error_t {}", self.0),
        }
    }
}

/// As corosync's manual pages and tools name them.
pub(crate) const NAMES: [(u32, &str); 30] = [
    (1, "CS_OK"),
    (2, "CS_ERR_LIBRARY"),
    (3, "CS_ERR_VERSION"),
    (4, "CS_ERR_INIT"),
    (5, "CS_ERR_TIMEOUT"),
    (6, "CS_ERR_TRY_AGAIN"),
    (7, "CS_ERR_INVALID_PARAM"),
    (8, "CS_ERR_NO_MEMORY"),
    (9, "CS_ERR_BAD_HANDLE"),
    (10, "CS_ERR_BUSY"),
    (11, "CS_ERR_ACCESS"),
    (12, "CS_ERR_NOT_EXIST"),
    (13, "CS_ERR_NAME_TOO_LONG"),
    (14, "CS_ERR_EXIST"),
    (15, "CS_ERR_NO_SPACE"),
    (16, "CS_ERR_INTERRUPT"),
    (17, "CS_ERR_NAME_NOT_FOUND"),
    (18, "CS_ERR_NO_RESOURCES"),
    (19, "CS_ERR_NOT_SUPPORTED"),
    (20, "CS_ERR_BAD_OPERATION"),
    (21, "CS_ERR_FAILED_OPERATION"),
    (22, "CS_ERR_MESSAGE_ERROR"),
    (23, "CS_ERR_QUEUE_FULL"),
    (24, "CS_ERR_QUEUE_NOT_AVAILABLE"),
    (25, "CS_ERR_BAD_FLAGS"),
    (26, "CS_ERR_TOO_BIG"),
    (27, "CS_ERR_NO_SECTIONS"),
    (28, "CS_ERR_CONTEXT_NOT_FOUND"),
    (30, "CS_ERR_TOO_MANY_GROUPS"),
    (100, "CS_ERR_SECURITY"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_corosyncs_name() {
        assert_eq!(Status::check(1), Ok(()));
        assert_eq!(Status::check(6), Err(Error::Call(Status::TRY_AGAIN)));
        for (status, name) in [
            (Status::LIBRARY, "CS_ERR_LIBRARY"),
            (Status::TRY_AGAIN, "CS_ERR_TRY_AGAIN"),
            (Status::ACCESS, "CS_ERR_ACCESS"),
            (Status::NOT_EXIST, "CS_ERR_NOT_EXIST"),
            (Status::NAME_TOO_LONG, "CS_ERR_NAME_TOO_LONG"),
            (Status::EXIST, "CS_ERR_EXIST"),
            (Status::SECURITY, "CS_ERR_SECURITY"),
            (Status(29), "cs_error_t 29"),
        ] {
            assert_eq!(Error::Call(status).to_string(), name);
        }
    }
}

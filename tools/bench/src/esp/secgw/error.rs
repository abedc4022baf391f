//! Why there are no figures of DPDK's ipsec-secgw, or no more.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;
use testudo_crypto::CryptoError;

/// Why the gateway is not measured.
#[derive(Debug, thiserror::Error)]
pub(in crate::esp) enum SecgwError {
    /// The program is missing, or a file for it cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The program, or the directory of the file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// There is no temporary directory.
    #[error("a directory for it: {0}")]
    Directory(io::Error),
    /// Its packets can be made for AEADs only.
    #[error("{0} is no AEAD")]
    NoAead(&'static str),
    /// The cipher library refuses the key.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// One of the two programs is not measured.
    #[error("{program}: {source}")]
    Program {
        /// The program.
        program: String,
        /// The reason.
        source: ProgramError,
    },
}

/// Why a program is not measured.
#[derive(Debug, thiserror::Error)]
pub(in crate::esp) enum ProgramError {
    /// The program cannot be started.
    #[error(transparent)]
    Start(io::Error),
    /// The program has ended.
    #[error("{status}: {last_line}")]
    Ended {
        /// Its exit status.
        status: ExitStatus,
        /// The last line of its output.
        last_line: String,
    },
    /// The program does not send.
    #[error("no packet sent in {} s: {last_line}", limit.as_secs())]
    Silent {
        /// How long it had for its first packet.
        limit: Duration,
        /// The last line of its output.
        last_line: String,
    },
    /// The program cannot be stopped or continued.
    #[error(transparent)]
    Signal(nix::Error),
    /// The program or the kernel does not give the counters.
    #[error("no counters: {0}")]
    Unanswered(nix::Error),
    /// The answer of the program lacks the counters.
    #[error("no counters: {answer}")]
    Answer {
        /// The answer.
        answer: String,
    },
    /// No stretch has been measured.
    #[error("it was not measured")]
    Unmeasured,
    /// A round had less than two counts.
    #[error("too short")]
    TooShort,
    /// Not all received packets were sent.
    #[error("{sent} packets sent of {received}")]
    Lost {
        /// Packets sent.
        sent: u64,
        /// Packets received.
        received: u64,
    },
    /// The frames that were sent have another length.
    #[error("frames of {found:.0} octets, expected {expected:.0}")]
    FrameLength {
        /// The mean length of the frames sent.
        found: f64,
        /// The mean length that they should have.
        expected: f64,
    },
}

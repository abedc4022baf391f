//! `testudo status`: asks the daemon over VICI, and shows tunnels and counters to people or as JSON.

mod sa;
mod snapshot;
mod table;
mod text;

use snapshot::Snapshot;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use testudo_vici::Error;

/// Arguments of `testudo status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// The daemon's VICI socket.
    #[arg(long, value_name = "PATH", default_value = "/run/testudo/vici.sock")]
    socket: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum StatusError {
    #[error("cannot connect to testudod at {}: {error}\n{}", socket.display(), advice(error))]
    Connect { socket: PathBuf, error: io::Error },
    #[error("testudod at {} does not answer within {} seconds", socket.display(), snapshot::TIMEOUT.as_secs())]
    Silent { socket: PathBuf },
    #[error("testudod at {}: {error}", socket.display())]
    Answer { socket: PathBuf, error: Error },
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Shows the status; failures go to standard error.
pub(crate) fn run(args: &StatusArgs) -> ExitCode {
    match show(args) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough: `testudo status | head`.
        Err(StatusError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testudo status: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(args: &StatusArgs) -> Result<(), StatusError> {
    let socket = &args.socket;
    let mut client =
        snapshot::connect(socket).map_err(|error| StatusError::Connect { socket: socket.clone(), error })?;
    let snapshot = Snapshot::take(&mut client).map_err(|error| answer_error(socket, error))?;
    let shown =
        if args.json { serde_json::to_string_pretty(&snapshot)? + "\n" } else { text::format(&snapshot) };
    Ok(io::stdout().lock().write_all(shown.as_bytes())?)
}

fn answer_error(socket: &Path, error: Error) -> StatusError {
    let socket = socket.to_owned();
    match &error {
        Error::Io(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            StatusError::Silent { socket }
        }
        _ => StatusError::Answer { socket, error },
    }
}

/// What to do about a daemon that cannot be reached.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => {
            "There is no such socket. Is testudod running? Another path is given with --socket; \
             testudod takes it from [vici] socket in testudo.toml."
        }
        ErrorKind::ConnectionRefused => {
            "The socket is there, but nobody listens: testudod has ended without cleaning up. Start it again."
        }
        ErrorKind::PermissionDenied => "The socket belongs to root: run this as root.",
        _ => "Another path is given with --socket.",
    }
}

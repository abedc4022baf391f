//! Asks the daemon over VICI, and prints its answer or why there is none.

use serde::Serialize;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use testudo_terminal::progress::Progress;
use testudo_vici::Error;
use testudo_vici::client::Client;

/// The daemon's VICI socket, unless testudo.toml says otherwise.
pub(crate) const SOCKET: &str = "/run/testudo/vici.sock";
/// How long the daemon may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Arguments of a command that asks the daemon.
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    /// The daemon's VICI socket.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// How long the daemon may take to answer. One that starts answers once it is ready.
    #[arg(skip = TIMEOUT)]
    patience: Duration,
}

impl DaemonArgs {
    /// With this socket.
    pub(crate) fn of(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), json: false, patience: TIMEOUT }
    }

    /// The same, and the daemon may take so much longer.
    pub(crate) fn waiting(&self, more: Duration) -> Self {
        Self { socket: self.socket.clone(), json: self.json, patience: TIMEOUT.saturating_add(more) }
    }
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum ShowError {
    #[error("cannot connect to testudod at {}: {error}\n{}", socket.display(), advice(error))]
    Connect { socket: PathBuf, error: io::Error },
    #[error("testudod at {} does not answer within {} seconds", socket.display(), patience.as_secs())]
    Silent { socket: PathBuf, patience: Duration },
    #[error("testudod at {}: {error}", socket.display())]
    Answer { socket: PathBuf, error: Error },
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The user, for the daemon's log: the one who has become root by sudo, or else the present one.
pub(crate) fn user() -> Option<String> {
    let named = |variable| std::env::var(variable).ok().filter(|name: &String| !name.is_empty());
    named("SUDO_USER").or_else(|| named("USER"))
}

/// Asks, and prints the answer as JSON or for people; failures go to standard error, with the
/// command's name. While the daemon is slow, or the command waits for something, a progress line
/// says so.
pub(crate) fn show<T: Serialize>(
    command: &str,
    args: &DaemonArgs,
    ask: impl FnOnce(&mut Client, &Progress) -> Result<T, Error>,
    format: impl FnOnce(&T) -> String,
) -> ExitCode {
    match try_show(args, ask, format) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough: `testudo status | head`.
        Err(ShowError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => failed(command, &error),
    }
}

/// Asks, and prints only why there is no answer.
pub(crate) fn ask<T>(
    command: &str,
    args: &DaemonArgs,
    ask: impl FnOnce(&mut Client, &Progress) -> Result<T, Error>,
) -> Result<T, ExitCode> {
    answer(args, ask).map_err(|error| failed(command, &error))
}

fn failed(command: &str, error: &ShowError) -> ExitCode {
    eprintln!("testudo {command}: {error}");
    ExitCode::FAILURE
}

fn try_show<T: Serialize>(
    args: &DaemonArgs,
    ask: impl FnOnce(&mut Client, &Progress) -> Result<T, Error>,
    format: impl FnOnce(&T) -> String,
) -> Result<(), ShowError> {
    let answer = answer(args, ask)?;
    let shown = if args.json { serde_json::to_string_pretty(&answer)? + "\n" } else { format(&answer) };
    Ok(io::stdout().lock().write_all(shown.as_bytes())?)
}

fn answer<T>(
    args: &DaemonArgs,
    ask: impl FnOnce(&mut Client, &Progress) -> Result<T, Error>,
) -> Result<T, ShowError> {
    let socket = &args.socket;
    let mut client = connect(args).map_err(|error| ShowError::Connect { socket: socket.clone(), error })?;
    let progress = Progress::of_waiting();
    progress.begin("waiting for testudod to answer", 0);
    ask(&mut client, &progress).map_err(|error| answer_error(args, error))
}

fn connect(args: &DaemonArgs) -> io::Result<Client> {
    let stream = UnixStream::connect(&args.socket)?;
    stream.set_read_timeout(Some(args.patience))?;
    stream.set_write_timeout(Some(args.patience))?;
    Ok(Client::over(stream))
}

fn answer_error(args: &DaemonArgs, error: Error) -> ShowError {
    let (socket, patience) = (args.socket.clone(), args.patience);
    match &error {
        Error::Io(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            ShowError::Silent { socket, patience }
        }
        _ => ShowError::Answer { socket, error },
    }
}

/// Advice about a daemon that cannot be reached.
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

//! The guest's shell, which `init` offers on the lab's own link.

use crate::{Error, Namespace, Result};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::time::Duration;

/// For the connection, and again for each part of the output: the emulator may have to wait for a
/// processor.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// The port of `init`.
const PORT: u16 = 7;
const SHELL: SocketAddrV4 = SocketAddrV4::new(super::ADDRESS, PORT);

/// Whether it accepts a connection within `limit`; otherwise the error.
pub(super) fn answers(namespace: &Namespace, limit: Duration) -> Result<std::result::Result<(), String>> {
    let connected = namespace.enter(|| TcpStream::connect_timeout(&SHELL.into(), limit))?;
    Ok(connected.map(drop).map_err(|error| format!("the guest's shell: {error}")))
}

/// Runs a script and returns its output. Fails unless it succeeds.
pub(super) fn run(namespace: &Namespace, script: &str) -> Result<String> {
    let whole = format!("(\nset -e\n{script}\n) </dev/null 2>&1; printf '\\n%s' $?; exit\n");
    let talk = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&SHELL.into(), COMMAND_LIMIT)?;
        stream.set_read_timeout(Some(COMMAND_LIMIT))?;
        stream.write_all(whole.as_bytes())?;
        let mut output = String::new();
        stream.read_to_string(&mut output)?;
        stream.shutdown(Shutdown::Both)?;
        Ok(output)
    };
    let answer = namespace.enter(talk)?;
    let output = answer.map_err(Error::io("talk to the guest's shell"))?;
    match output.rsplit_once('\n') {
        Some((said, "0")) => Ok(said.to_owned()),
        Some((said, status)) => Err(Error::Command {
            command: format!("[guest] {script}"),
            status: format!("exit code {status}"),
            output: said.to_owned(),
        }),
        None => Err(Error::unexpected("the guest's shell", "an exit code", output)),
    }
}

//! The Unix socket of VICI: accepts clients and moves octets between them and [`Server`]. Knows
//! nothing of commands.

use crate::error::Error;
use mio::net::{UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use nix::sys::stat::{Mode, umask};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use testudo_ike::output::Time;
use testudo_vici::control::Control;
use testudo_vici::server::{ClientId, Server};
use zeroize::Zeroizing;

/// The listening socket; removed from the file system on drop.
pub(crate) struct ViciSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Tokens from here on belong to clients.
    first_token: usize,
    streams: BTreeMap<ClientId, Client>,
}

struct Client {
    stream: UnixStream,
    /// The poller is edge-triggered: more may wait until a read says otherwise.
    readable: bool,
}

/// The client is gone, or has broken the protocol.
struct Over;

impl ViciSocket {
    /// Listens at `path`, readable by root alone: whoever connects may load keys.
    pub(crate) fn open(path: &Path, registry: &Registry, token: usize) -> Result<Self, Error> {
        let failed = |action: &str| Error::io(format!("{action} the VICI socket {}", path.display()));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed("make the directory of"))?;
        }
        remove_stale(path)?;
        let mut listener = bind_private(path).map_err(failed("bind"))?;
        registry.register(&mut listener, Token(token), Interest::READABLE).map_err(failed("poll"))?;
        Ok(Self { listener, path: path.to_owned(), first_token: token + 1, streams: BTreeMap::new() })
    }

    /// True if the token is that of a client.
    pub(crate) fn owns(&self, token: Token) -> bool {
        token.0 >= self.first_token
    }

    /// Accepts every client that waits.
    pub(crate) fn accept(&mut self, server: &mut Server, registry: &Registry) {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => {
                    tracing::warn!("VICI: cannot accept a client: {e}");
                    return;
                }
            };
            let id = match server.connect() {
                Ok(id) => id,
                Err(e) => {
                    tracing::warn!("VICI: {e}");
                    continue;
                }
            };
            let interest = Interest::READABLE | Interest::WRITABLE;
            let token = Token(self.first_token + id.0 as usize);
            if let Err(e) = registry.register(&mut stream, token, interest) {
                tracing::warn!("VICI: cannot poll a client: {e}");
                server.disconnect(id);
                continue;
            }
            self.streams.insert(id, Client { stream, readable: true });
        }
    }

    /// A client's stream became ready for something.
    pub(crate) fn ready(&mut self, token: Token) {
        let id = ClientId((token.0 - self.first_token) as u64);
        if let Some(client) = self.streams.get_mut(&id) {
            client.readable = true;
        }
    }

    /// Writes once to every client and reads once from it. True if there is more to do at once,
    /// which is left for the next turn: a client that reads as fast as its answer is made must keep
    /// nobody else waiting.
    pub(crate) fn pump(&mut self, server: &mut Server, now: Time, control: &mut dyn Control) -> bool {
        let ids: Vec<ClientId> = self.streams.keys().copied().collect();
        let mut more = false;
        for id in ids {
            // Clients may have sent thousands of commands already.
            if !control.takes_commands() {
                return true;
            }
            let Some(client) = self.streams.get_mut(&id) else { continue };
            match client.pump(id, server, now, control) {
                Ok(progress) => more |= progress,
                Err(Over) => {
                    server.disconnect(id);
                    self.streams.remove(&id);
                }
            }
        }
        more
    }
}

impl Client {
    /// True if something was done, so that there may be more.
    fn pump(
        &mut self,
        id: ClientId,
        server: &mut Server,
        now: Time,
        control: &mut dyn Control,
    ) -> Result<bool, Over> {
        let wrote = self.write(id, server, now, control)?;
        let read = self.read(id, server, now, control)?;
        Ok(wrote || read || server.is_busy(id))
    }

    fn write(
        &mut self,
        id: ClientId,
        server: &mut Server,
        now: Time,
        control: &mut dyn Control,
    ) -> Result<bool, Over> {
        let output = server.poll_output(id, now, control).map_err(|e| {
            tracing::warn!("VICI: client {}: {e}", id.0);
            Over
        })?;
        if output.is_empty() {
            return Ok(false);
        }
        match self.stream.write(output) {
            Ok(0) => Err(Over),
            Ok(len) => {
                server.sent(id, len);
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(_) => Err(Over),
        }
    }

    fn read(
        &mut self,
        id: ClientId,
        server: &mut Server,
        now: Time,
        control: &mut dyn Control,
    ) -> Result<bool, Over> {
        if !self.readable || !server.wants_input(id) {
            return Ok(false);
        }
        // Secrets pass through here.
        let mut buffer = Zeroizing::new([0; 16384]);
        match self.stream.read(buffer.as_mut_slice()) {
            Ok(0) => Err(Over),
            Ok(len) => {
                let received = buffer.get(..len).unwrap_or_default();
                server.receive(id, received, now, control).map_err(|e| {
                    tracing::warn!("VICI: client {}: {e}", id.0);
                    Over
                })?;
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(false)
            }
            Err(_) => Err(Over),
        }
    }
}

/// Removes a socket that a crash has left over. A socket at which a process answers is in use.
fn remove_stale(path: &Path) -> Result<(), Error> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(Error::ViciInUse(path.to_owned())),
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)
            .map_err(Error::io(format!("remove the stale VICI socket {}", path.display()))),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(Error::ViciUnusable { path: path.to_owned(), source }),
    }
}

/// Binds a socket that is root's alone from its first moment: with a later restriction others could
/// connect in between. The umask is the process's: no thread that makes files may run yet.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let before = umask(Mode::S_IXUSR | Mode::S_IRWXG | Mode::S_IRWXO);
    let bound = UnixListener::bind(path);
    umask(before);
    bound
}

impl Drop for ViciSocket {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_file(&self.path) {
            tracing::warn!("cannot remove the VICI socket {}: {e}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests;

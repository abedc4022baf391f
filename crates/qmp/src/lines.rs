//! Lines of bounded length from a socket, each with a deadline.

use crate::Error;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest line that is accepted. QEMU's longest answers, such as its schema, have a quarter
/// of that.
pub const MAX_LINE: usize = 1 << 20;

/// The receiving side of a connection.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Received and not yet returned.
    buffer: Vec<u8>,
    /// Octets of `buffer` that contain no line feed.
    searched: usize,
}

impl Lines {
    /// The next line without its line feed; `None` at the deadline.
    pub(crate) fn next(&mut self, stream: &UnixStream, deadline: Instant) -> Result<Option<Vec<u8>>, Error> {
        let mut chunk = [0; 8192];
        loop {
            if let Some(line) = self.take() {
                return Ok(Some(line));
            }
            if self.buffer.len() > MAX_LINE {
                return Err(Error::LineTooLong);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left < Duration::from_micros(1) {
                return Ok(None);
            }
            stream.set_read_timeout(Some(left))?;
            match (&*stream).read(&mut chunk) {
                Ok(0) => return Err(Error::Closed),
                Ok(len) => self.buffer.extend_from_slice(chunk.get(..len).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(at) = unsearched.iter().position(|octet| *octet == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let mut line: Vec<u8> = self.buffer.drain(..=self.searched + at).collect();
        self.searched = 0;
        line.pop();
        Some(line)
    }
}

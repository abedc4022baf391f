//! The log on stderr.
//!
//! A handshake leads to some lines, and whoever reads them (journald) is woken by each write. So the control thread's lines
//! wait for the end of its turn, and go together. What tells of trouble does not wait, nor does anything that another thread
//! says; whatever came before goes before.

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::{Level, Metadata};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::debug_fn;

/// More does not wait, however long a turn is.
const MOST: usize = 64 << 10;

/// Lines that wait.
static HELD: Mutex<Vec<u8>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread's lines wait.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// Starts the log.
pub(crate) fn start(level: Level) {
    let fields = debug_fn(|out, field, value| {
        let mut out = Escaping(out);
        if field.name() != "message" {
            write!(out, "{field}=")?;
        }
        write!(out, "{value:?}")
    });
    tracing_subscriber::fmt()
        .fmt_fields(fields.delimited(" "))
        .with_max_level(level)
        .with_writer(Stderr)
        .with_target(false)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .init();
}

/// From now on this thread's lines wait for [`flush`], for as long as the value lives.
pub(crate) fn hold() -> Holding {
    HOLDS.set(true);
    Holding
}

/// See [`hold`].
pub(crate) struct Holding;

impl Drop for Holding {
    fn drop(&mut self) {
        HOLDS.set(false);
        flush();
    }
}

/// Writes what waits.
pub(crate) fn flush() {
    write_out(&mut held(), &mut io::stderr().lock());
}

fn held() -> MutexGuard<'static, Vec<u8>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_out(held: &mut Vec<u8>, out: &mut impl Write) {
    if !held.is_empty() {
        // Nobody can be told that the log is gone.
        let _ = out.write_all(held);
        held.clear();
    }
}

/// Takes lines, each in one piece.
struct Stderr;

/// A line on its way.
struct Line {
    waits: bool,
}

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { waits: false }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        Line { waits: *meta.level() >= Level::INFO && HOLDS.get() }
    }
}

impl Line {
    fn put(&self, held: &mut Vec<u8>, line: &[u8], out: &mut impl Write) {
        held.extend_from_slice(line);
        if !self.waits || held.len() >= MOST {
            write_out(held, out);
        }
    }
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(&mut held(), line, &mut io::stderr().lock());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Shows what could drive a terminal: text of peers gets into lines. The library does so too, but octet by octet, which costs
/// as much as all the rest of a line.
struct Escaping<W>(W);

impl<W: fmt::Write> fmt::Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive(drives_terminals) {
            let mut plain = piece.chars();
            match plain.next_back().filter(|last| drives_terminals(*last)) {
                Some(last) => write!(self.0, "{}{}", plain.as_str(), last.escape_default())?,
                None => self.0.write_str(piece)?,
            }
        }
        Ok(())
    }
}

fn drives_terminals(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_says_does_not_drive_a_terminal() {
        let mut out = String::new();
        for piece in ["a \u{1b}[2J", "\r\u{7f}b", "\tü\u{9b}\n"] {
            Escaping(&mut out).write_str(piece).unwrap();
        }
        assert_eq!(out, "a \\u{1b}[2J\\r\\u{7f}b\tü\\u{9b}\n");
    }

    #[test]
    fn ordinary_lines_go_together_and_before_what_is_urgent() {
        let (mut held, mut out) = (Vec::new(), Vec::new());
        Line { waits: true }.put(&mut held, b"one\n", &mut out);
        Line { waits: true }.put(&mut held, b"two\n", &mut out);
        assert_eq!(out, b"", "they wait");
        Line { waits: false }.put(&mut held, b"trouble\n", &mut out);
        assert_eq!((held.as_slice(), out.as_slice()), (&b""[..], &b"one\ntwo\ntrouble\n"[..]));
    }

    #[test]
    fn no_more_waits_than_there_is_room_for() {
        let (mut held, mut out) = (Vec::new(), Vec::new());
        let line = [b'x'; 1000];
        (0..100).for_each(|_| Line { waits: true }.put(&mut held, &line, &mut out));
        assert!(held.len() < MOST && out.len() >= MOST);
        write_out(&mut held, &mut out);
        assert_eq!((held.len(), out.len()), (0, 100_000));
    }

    #[test]
    fn lines_wait_only_while_they_are_held_and_only_those_of_that_thread() {
        assert!(!HOLDS.get());
        let holding = hold();
        assert!(HOLDS.get());
        assert!(!std::thread::spawn(|| HOLDS.get()).join().unwrap());
        drop(holding);
        assert!(!HOLDS.get());
    }
}

//! Lines on their way to stderr, and the thread that writes them.
//!
//! Only that thread waits for the reader of the log. All others leave a line in a buffer of fixed
//! size and go on. A line without room is counted, and the log says how many were lost as soon as
//! the reader goes on.

use std::io::{ErrorKind, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines from the threads of the daemon to the one that writes.
pub(super) struct Queue {
    state: Mutex<State>,
    /// The writer has something to do.
    wake: Condvar,
    /// The writer has nothing left to do.
    idle: Condvar,
    /// Octets that may wait.
    capacity: usize,
    /// With this many octets, lines no longer wait for the end of a turn.
    batch: usize,
}

struct State {
    waiting: Vec<u8>,
    /// The writer has to begin.
    due: bool,
    /// The writer holds lines that are not written yet.
    writing: bool,
    /// Lines without room that the log has not told of yet.
    lost: u64,
}

impl Queue {
    pub(super) const fn new(capacity: usize, batch: usize) -> Self {
        let state = State { waiting: Vec::new(), due: false, writing: false, lost: 0 };
        Self { state: Mutex::new(state), wake: Condvar::new(), idle: Condvar::new(), capacity, batch }
    }

    /// Leaves one line, whole. `urgent`: it is written now, with all lines before it; else at the
    /// next [`Queue::flush`].
    pub(super) fn push(&self, line: &[u8], urgent: bool) {
        let mut state = self.lock();
        if state.waiting.len() + line.len() > self.capacity {
            state.lost += 1;
        } else {
            state.waiting.extend_from_slice(line);
        }
        if urgent || state.waiting.len() >= self.batch {
            self.begin(&mut state);
        }
    }

    /// Has the lines that wait written now.
    pub(super) fn flush(&self) {
        self.begin(&mut self.lock());
    }

    fn begin(&self, state: &mut State) {
        if !state.due && state.has_work() {
            state.due = true;
            self.wake.notify_one();
        }
    }

    /// Waits until everything is written, at most for `limit`. True if it is.
    pub(super) fn finish(&self, limit: Duration) -> bool {
        self.flush();
        let busy = |state: &mut State| state.writing || state.has_work();
        let waited = self.idle.wait_timeout_while(self.lock(), limit, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// The writer: never returns. `loss` is the line that tells how many lines were lost.
    pub(super) fn write_to(&self, out: &mut impl Write, loss: impl Fn(u64) -> String) -> ! {
        let mut lines = Vec::new();
        loop {
            let lost = self.take(&mut lines);
            // The lost lines came after those that had room.
            if lost > 0 {
                lines.extend_from_slice(loss(lost).as_bytes());
            }
            write_all(out, &lines);
            lines.clear();
        }
    }

    /// Waits for lines and takes all of them. Gives how many were lost.
    fn take(&self, lines: &mut Vec<u8>) -> u64 {
        let mut state = self.lock();
        state.writing = false;
        if !state.has_work() {
            self.idle.notify_all();
        }
        while !state.due {
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.due = false;
        state.writing = true;
        std::mem::swap(&mut state.waiting, lines);
        std::mem::take(&mut state.lost)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_work(&self) -> bool {
        !self.waiting.is_empty() || self.lost > 0
    }
}

/// An error ends the attempt: there is nowhere to report it. A reader may have made the shared
/// descriptor non-blocking: then the lines wait here.
fn write_all(out: &mut impl Write, mut lines: &[u8]) {
    while !lines.is_empty() {
        match out.write(lines) {
            Ok(0) => return,
            Ok(len) => lines = lines.get(len..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, pipe};
    use std::sync::Arc;

    const LONG: Duration = Duration::from_secs(60);

    fn start(queue: Queue, mut out: impl Write + Send + 'static) -> Arc<Queue> {
        let queue = Arc::new(queue);
        let writer = Arc::clone(&queue);
        std::thread::spawn(move || writer.write_to(&mut out, |lost| format!("lost {lost}\n")));
        queue
    }

    #[test]
    fn ordinary_lines_go_together_and_before_an_urgent_one() {
        let (reader, writer) = pipe().unwrap();
        let queue = start(Queue::new(1000, 100), writer);
        queue.push(b"one\n", false);
        queue.push(b"two\n", false);
        assert_eq!(queue.lock().waiting, b"one\ntwo\n", "they wait for the end of the turn");
        queue.push(b"trouble\n", true);
        let lines: Vec<String> = BufReader::new(reader).lines().take(3).map(Result::unwrap).collect();
        assert_eq!(lines, ["one", "two", "trouble"]);
        queue.push(b"end of turn\n", false);
        assert!(queue.finish(LONG));
        assert!(queue.lock().waiting.is_empty());
    }

    #[test]
    fn no_more_than_a_batch_waits_for_the_end_of_a_turn() {
        let (reader, writer) = pipe().unwrap();
        let queue = start(Queue::new(1000, 100), writer);
        (0..10).for_each(|n| queue.push(format!("line number {n}\n").as_bytes(), false));
        let lines = BufReader::new(reader).lines().take(8);
        assert_eq!(lines.last().unwrap().unwrap(), "line number 7");
    }

    #[test]
    fn nobody_waits_for_a_reader_that_is_stalled_and_losses_are_counted_and_told() {
        let (mut reader, writer) = pipe().unwrap();
        let queue = start(Queue::new(4096, 100), writer);
        let mut written = 0;
        let mut push = || {
            queue.push(format!("{written:0>99}\n").as_bytes(), written % 2 == 0);
            written += 1;
        };
        // Until the writer waits for the reader.
        push();
        while queue.finish(Duration::from_millis(200)) {
            push();
        }
        // Whoever waited for room would wait for ever.
        (0..10_000).for_each(|_| push());
        assert!(queue.lock().waiting.len() <= 4096);

        let reading = std::thread::spawn(move || {
            let (mut text, mut chunk) = (String::new(), [0; 4096]);
            while !text.ends_with("the end\n") {
                let len = reader.read(&mut chunk).unwrap();
                text.push_str(str::from_utf8(&chunk[..len]).unwrap());
            }
            text
        });
        assert!(queue.finish(LONG));
        queue.push(b"the end\n", true);
        let text = reading.join().unwrap();
        let lost: usize =
            text.lines().filter_map(|line| line.strip_prefix("lost ")?.parse::<usize>().ok()).sum();
        let told: Vec<usize> = text.lines().filter_map(|line| line.parse().ok()).collect();
        assert!(lost > 0 && told.is_sorted(), "{lost} lost");
        assert_eq!(told.len() + lost, written, "each line is either there or counted");
        let first_loss = text.lines().position(|line| line.starts_with("lost ")).unwrap();
        assert_eq!(told[..first_loss], (0..first_loss).collect::<Vec<_>>(), "what had room came before");
    }

    #[test]
    fn a_log_that_is_gone_holds_nobody_up() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let queue = start(Queue::new(1000, 100), writer);
        queue.push(b"nobody reads this\n", true);
        assert!(queue.finish(LONG));
    }

    #[test]
    fn a_descriptor_that_was_made_non_blocking_loses_nothing() {
        struct Reluctant(std::sync::mpsc::Sender<u8>, bool);
        impl Write for Reluctant {
            fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
                self.1 = !self.1;
                if self.1 {
                    return Err(ErrorKind::WouldBlock.into());
                }
                self.0.send(octets[0]).unwrap();
                Ok(1)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (sender, octets) = std::sync::mpsc::channel();
        let queue = start(Queue::new(1000, 100), Reluctant(sender, false));
        queue.push(b"all\n", true);
        assert!(queue.finish(LONG));
        assert_eq!(octets.try_iter().collect::<Vec<_>>(), b"all\n");
    }
}

//! A progress line on standard error: what a command is doing, how far it is and how long the rest
//! will take. It is drawn only if standard error is a terminal.
//!
//! A benchmark draws it between rows, rounds and repeats, in the measuring thread, and never during
//! a measurement. No thread redraws it meanwhile, because that would take processor time from the
//! measurement; so the line stands still during a long stretch. A command that only waits for the
//! daemon disturbs nothing. Its line appears after two seconds, and a thread redraws it each second
//! ([`Progress::of_waiting`]).
//!
//! The demos of `testudo-lab` have a progress display of their own: it writes a lasting line for
//! each step to standard output, as part of their report, while this line vanishes with its
//! command.

use crate::units::span;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A command that is done sooner shows no line while it waits.
const QUIET: Duration = Duration::from_secs(2);
/// Interval between two redraws of a waiting command's line.
const REDRAW: Duration = Duration::from_secs(1);
/// Least interval between two draws by [`Progress::reach`], whose callers call it whenever they
/// have a number.
const REACH: Duration = Duration::from_millis(250);

/// The progress line. It vanishes when this is dropped.
pub struct Progress {
    line: Line,
    ticker: Option<Ticker>,
}

/// The line, shared with the ticker.
#[derive(Clone)]
struct Line {
    bar: ProgressBar,
    state: Arc<Mutex<State>>,
}

/// The contents of the line.
struct State {
    doing: String,
    done: u64,
    /// Zero if unknown.
    steps: u64,
    begun: Instant,
    drawn: Instant,
}

/// The thread that redraws the line of a waiting command.
struct Ticker {
    /// Dropped to end the thread.
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress {
    /// A line that is drawn only when its text changes.
    pub fn new() -> Self {
        Self { line: Line::new(ProgressDrawTarget::stderr()), ticker: None }
    }

    /// A line for a command that only waits: it appears after two seconds.
    pub fn of_waiting() -> Self {
        let line = Line::new(ProgressDrawTarget::hidden());
        let ticker = stderr().is_terminal().then(|| {
            let (line, (end, ended)) = (line.clone(), mpsc::channel());
            let thread = thread::spawn(move || {
                let mut wait = QUIET;
                while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    if wait == QUIET {
                        line.bar.set_draw_target(ProgressDrawTarget::stderr());
                    }
                    line.draw(&line.state());
                    wait = REDRAW;
                }
            });
            Ticker { end, thread }
        });
        Self { line, ticker }
    }

    /// Begins a task of this many steps of about equal length; zero if that is unknown.
    pub fn begin(&self, doing: impl Into<String>, steps: u64) {
        let mut state = self.line.state();
        *state = State { steps, ..State::new(doing.into()) };
        self.line.bar.set_style(style(steps));
        self.line.bar.set_length(steps);
        self.line.draw(&state);
    }

    /// Changes the text; the steps go on.
    pub fn doing(&self, doing: impl Into<String>) {
        let mut state = self.line.state();
        state.doing = doing.into();
        self.line.draw(&state);
    }

    /// One more step is done.
    pub fn step(&self) {
        let mut state = self.line.state();
        state.done += 1;
        self.line.draw(&state);
    }

    /// Sets the number of finished steps. May be called very often.
    pub fn reach(&self, done: u64) {
        let mut state = self.line.state();
        state.done = done;
        if state.drawn.elapsed() >= REACH {
            state.drawn = Instant::now();
            self.line.draw(&state);
        }
    }

    /// Calls `print` with the line removed.
    pub fn aside(&self, print: impl FnOnce()) {
        self.line.bar.suspend(print);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(Ticker { end, thread }) = self.ticker.take() {
            drop(end);
            // A thread that has panicked does not redraw any more.
            let _ = thread.join();
        }
        self.line.bar.finish_and_clear();
    }
}

impl Line {
    fn new(target: ProgressDrawTarget) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), target).with_style(style(0));
        Self { bar, state: Arc::new(Mutex::new(State::new(String::new()))) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, state: &State) {
        if !self.bar.is_hidden() && !state.doing.is_empty() {
            self.bar.set_position(state.done);
            self.bar.set_message(text(&state.doing, state.done, state.steps, state.begun.elapsed()));
            self.bar.tick();
        }
    }
}

impl State {
    fn new(doing: String) -> Self {
        let now = Instant::now();
        Self { doing, done: 0, steps: 0, begun: now, drawn: now }
    }
}

/// With a bar if the number of steps is known.
fn style(steps: u64) -> ProgressStyle {
    let template = if steps > 0 { "[{bar:20}] {wide_msg}" } else { "{wide_msg}" };
    let style = ProgressStyle::with_template(template);
    // The template is a constant, and a valid one.
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

fn text(doing: &str, done: u64, steps: u64, elapsed: Duration) -> String {
    let mut text = doing.to_owned();
    if steps > 0 {
        text += &format!(", {done} of {steps}");
    }
    text += &format!(", {}", span(elapsed.as_secs()));
    if let Some(left) = left(done, steps, elapsed) {
        text += &format!(", about {} left", span(left.as_secs_f64().ceil() as u64));
    }
    text
}

/// The time for the remaining steps if they take as long as the finished ones.
fn left(done: u64, steps: u64, elapsed: Duration) -> Option<Duration> {
    (done > 0 && done < steps).then(|| elapsed.mul_f64((steps - done) as f64 / done as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done() {
        let seconds = Duration::from_secs;
        assert_eq!(left(1, 4, seconds(10)), Some(seconds(30)));
        assert_eq!(left(3, 4, seconds(30)), Some(seconds(10)));
        assert_eq!(left(0, 4, seconds(10)), None, "nothing to estimate it by");
        assert_eq!(left(4, 4, seconds(10)), None, "nothing is left");
        assert_eq!(left(7, 0, seconds(10)), None, "no telling how many there are");
    }

    #[test]
    fn the_line_tells_what_is_known() {
        let text = |done, steps, seconds| text("64 octets", done, steps, Duration::from_secs(seconds));
        assert_eq!(text(0, 0, 3), "64 octets, 3s");
        assert_eq!(text(0, 8, 3), "64 octets, 0 of 8, 3s");
        assert_eq!(text(2, 8, 65), "64 octets, 2 of 8, 1m 5s, about 3m 15s left");
    }

    #[test]
    fn a_line_that_nobody_sees_does_no_harm() {
        let progress = Progress { line: Line::new(ProgressDrawTarget::hidden()), ticker: None };
        progress.begin("rows", 2);
        progress.step();
        progress.reach(2);
        progress.doing("the last row");
        let printed = Cell::new(false);
        progress.aside(|| printed.set(true));
        assert!(printed.get());
        let state = progress.line.state();
        assert_eq!((state.doing.as_str(), state.done, state.steps), ("the last row", 2, 2));
    }
}

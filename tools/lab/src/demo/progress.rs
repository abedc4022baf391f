//! Progress output of a demo: one line per step, with the time since the start.

use crate::{Error, Result};
use std::io::{self, Write};
use std::time::Instant;

/// Writes to standard output.
#[derive(Debug)]
pub struct Progress {
    start: Instant,
}

/// The result of a step.
#[derive(Debug)]
pub struct Done<T> {
    value: T,
    /// A text for the line of the step; may be empty.
    said: String,
}

impl<T> Done<T> {
    /// A result without a text.
    pub fn new(value: T) -> Self {
        Self { value, said: String::new() }
    }

    /// A result with a text for the line of the step.
    pub fn saying(value: T, said: impl Into<String>) -> Self {
        Self { value, said: said.into() }
    }
}

impl Progress {
    /// Begins now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Whole seconds since the start.
    pub fn seconds(&self) -> u64 {
        self.start.elapsed().as_secs()
    }

    /// A heading.
    pub fn title(&mut self, title: &str) -> Result<()> {
        self.say(&format!("\n== {title}\n"))
    }

    /// Prints the step's name, executes it, and prints its duration and its result.
    pub fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<Done<T>>) -> Result<T> {
        self.say(&format!("{:7.1} s  {name:<46} ", self.start.elapsed().as_secs_f64()))?;
        let begun = Instant::now();
        let outcome = work();
        let took = begun.elapsed().as_secs_f64();
        match outcome {
            Ok(Done { value, said }) => {
                self.say(&format!("{took:5.1} s  {said}\n"))?;
                Ok(value)
            }
            Err(error) => {
                self.say(&format!("{took:5.1} s  FAILED\n"))?;
                Err(error)
            }
        }
    }

    /// Prints a problem; the demo continues.
    pub fn complain(&mut self, problem: &str) -> Result<()> {
        self.say(&format!("{:7.1} s  ! {problem}\n", self.start.elapsed().as_secs_f64()))
    }

    fn say(&self, text: &str) -> Result<()> {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        written.map_err(Error::io("write to standard output"))
    }
}

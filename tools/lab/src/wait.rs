//! Waiting by polling, with a limit.

use crate::{Error, Result, interrupt};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest pause between two probes: most of them are processes of their own.
const MAX_PAUSE: Duration = Duration::from_millis(50);
/// A wait that has taken long already is not lengthened by more than this part of it.
const PART: u32 = 16;
/// Pauses stay short enough to see a state that lasts half a second.
const MAX_LATE_PAUSE: Duration = Duration::from_millis(200);

/// Calls `probe` until it returns a value. `Ok(Err(seen))` means not yet, with a description of the
/// current state; an error of the probe itself ends the wait.
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Result<std::result::Result<T, String>>,
) -> Result<T> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        interrupt::check()?;
        match probe()? {
            Ok(value) => return Ok(value),
            Err(last) if start.elapsed() >= limit => {
                return Err(Error::Timeout { what: what.into(), after: limit, last });
            }
            Err(_) => sleep(pause),
        }
        pause = (pause * 2).min((start.elapsed() / PART).clamp(MAX_PAUSE, MAX_LATE_PAUSE));
    }
}

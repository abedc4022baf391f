//! Chooses a mutant by a variable of the environment, and notes which are reached.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex};

static CHOSEN: LazyLock<u32> =
    LazyLock::new(|| std::env::var("MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0));

static NOTES: LazyLock<Option<Mutex<File>>> = LazyLock::new(|| {
    let path = std::env::var_os("MUTANTS_REACHED")?;
    File::create(path).ok().map(Mutex::new)
});

static REACHED: [AtomicBool; 1 << 16] = [const { AtomicBool::new(false) }; 1 << 16];

/// True if the mutant with this number is chosen.
pub fn on(number: u32) -> bool {
    if let Some(notes) = &*NOTES
        && REACHED.get(number as usize).is_some_and(|reached| !reached.swap(true, Relaxed))
        && let Ok(mut notes) = notes.lock()
    {
        // What is not noted counts as not reached.
        let _ = writeln!(notes, "{number}");
    }
    number == *CHOSEN
}

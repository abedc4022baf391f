//! The user's wish to stop, checked by everything in the lab that waits.
//!
//! Tests never call [`watch`]: in tests a signal ends the process, and the next lab sweeps.

use crate::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static WANTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGINT, SIGTERM and SIGHUP make every waiting lab operation end with
/// [`Error::Interrupted`].
pub fn watch() -> Result<()> {
    let flag = WANTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))
            .map_err(Error::io(format!("catch signal {signal}")))?;
    }
    Ok(())
}

/// Fails if a signal has come since [`watch`], except while this thread is cleaning up.
pub fn check() -> Result<()> {
    match WANTED.get() {
        Some(flag) if flag.load(Ordering::Relaxed) && SHIELDS.get() == 0 => Err(Error::Interrupted),
        _ => Ok(()),
    }
}

thread_local! {
    static SHIELDS: Cell<u32> = const { Cell::new(0) };
}

/// While it exists, waits of this thread are not interrupted: cleanup must finish.
#[must_use]
pub(crate) struct Shield {
    // Bound to the thread whose counter it has increased.
    _thread: PhantomData<*const ()>,
}

pub(crate) fn shield() -> Shield {
    SHIELDS.set(SHIELDS.get() + 1);
    Shield { _thread: PhantomData }
}

impl Drop for Shield {
    fn drop(&mut self) {
        SHIELDS.set(SHIELDS.get() - 1);
    }
}

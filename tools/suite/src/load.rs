//! Artificial load on all processors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, available_parallelism, spawn};

/// Threads that compute endlessly until this is dropped.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts that many threads, or one for each processor, at normal priority.
    pub(crate) fn start(threads: Option<usize>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = threads.unwrap_or_else(|| available_parallelism().map_or(1, usize::from));
        let burn = |_| {
            let stop = Arc::clone(&stop);
            spawn(move || {
                let work = AtomicU64::new(0);
                while !stop.load(Ordering::Relaxed) {
                    work.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = (0..threads).map(burn).collect();
        Self { stop, threads }
    }

    /// The number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that has panicked has ended, too.
            let _over = thread.join();
        }
    }
}

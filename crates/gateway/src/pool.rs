//! Threads that compute, so that the control thread need not wait.
//!
//! Jobs wait in one list, and results in another. The control thread is woken once for all results
//! since its last look, because a wake-up costs about as much as a result. While more jobs wait, it
//! is not woken for each single result.

use mio::Waker;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long a result may wait for others before control is woken. A result does not wait while a
/// long job runs.
const MAX_RESULT_DELAY: Duration = Duration::from_micros(500);

/// What wakes the control thread.
pub(crate) fn waking(waker: Arc<Waker>) -> impl Fn() + Send + Sync + 'static {
    move || {
        if let Err(error) = waker.wake() {
            tracing::error!("cannot wake the control thread: {error}");
        }
    }
}

/// The threads, the jobs `J` that wait for them, and their results `D`. Dropping the pool ends each
/// thread after its present job, and drops the jobs that wait.
pub(crate) struct Pool<J, D> {
    shared: Arc<PoolState<J, D>>,
    threads: Vec<JoinHandle<()>>,
}

struct PoolState<J, D> {
    work: Mutex<Work<J>>,
    ready: Condvar,
    done: Mutex<Results<D>>,
    /// Wakes control: there are results.
    wake: Box<dyn Fn() + Send + Sync>,
}

struct Results<D> {
    list: Vec<D>,
    /// When the oldest result came.
    since: Option<Instant>,
    /// Control has been woken for them.
    told: bool,
}

struct Work<J> {
    waiting: VecDeque<J>,
    /// Threads that have nothing to do.
    idle: usize,
    closed: bool,
}

impl<J: Send + 'static, D: Send + 'static> Pool<J, D> {
    /// Starts `threads` threads, called `name`-0 and so on. Each calls `begin` first, then `run`
    /// for each job. Before a job for which `takes_long` is true, control is woken for the results
    /// that wait.
    pub(crate) fn start(
        name: &str,
        threads: usize,
        begin: impl Fn() + Clone + Send + 'static,
        takes_long: fn(&J) -> bool,
        run: impl Fn(J) -> D + Clone + Send + 'static,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let work = Work { waiting: VecDeque::new(), idle: 0, closed: false };
        let shared = Arc::new(PoolState {
            work: Mutex::new(work),
            ready: Condvar::new(),
            done: Mutex::new(Results { list: Vec::new(), since: None, told: false }),
            wake: Box::new(wake),
        });
        let mut pool = Self { shared, threads: Vec::with_capacity(threads) };
        for number in 0..threads {
            let (shared, begin, run) = (Arc::clone(&pool.shared), begin.clone(), run.clone());
            let thread = Builder::new().name(format!("{name}-{number}")).spawn(move || {
                begin();
                while let Some(job) = shared.next() {
                    if takes_long(&job) {
                        shared.tell(Duration::ZERO);
                    }
                    shared.deliver(run(job));
                }
            })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// How many threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Queues jobs.
    pub(crate) fn submit(&self, jobs: impl IntoIterator<Item = J>) {
        let mut work = lock(&self.shared.work);
        let before = work.waiting.len();
        work.waiting.extend(jobs);
        let to_wake = work.idle.min(work.waiting.len() - before);
        drop(work);
        // Each wake-up is a system call.
        (0..to_wake).for_each(|_| self.shared.ready.notify_one());
    }

    /// Takes the results.
    pub(crate) fn done(&self) -> Vec<D> {
        let mut done = lock(&self.shared.done);
        (done.since, done.told) = (None, false);
        std::mem::take(&mut done.list)
    }
}

impl<J, D> PoolState<J, D> {
    /// Waits for work; `None` at the end.
    fn next(&self) -> Option<J> {
        let mut work = lock(&self.work);
        let mut told = false;
        loop {
            if work.closed {
                return None;
            }
            if let Some(job) = work.waiting.pop_front() {
                return Some(job);
            }
            // Before a thread sleeps, control is woken for all results.
            if !told {
                drop(work);
                self.tell(Duration::ZERO);
                told = true;
                work = lock(&self.work);
                continue;
            }
            work.idle += 1;
            work = self.ready.wait(work).unwrap_or_else(PoisonError::into_inner);
            work.idle -= 1;
        }
    }

    fn deliver(&self, result: D) {
        let mut done = lock(&self.done);
        done.list.push(result);
        done.since.get_or_insert_with(Instant::now);
        drop(done);
        self.tell(MAX_RESULT_DELAY);
    }

    /// Wakes control if it was not woken yet and the oldest result has waited for `min_age`.
    fn tell(&self, min_age: Duration) {
        let mut done = lock(&self.done);
        let tell = !done.told && done.since.is_some_and(|since| since.elapsed() >= min_age);
        done.told |= tell;
        drop(done);
        if tell {
            (self.wake)();
        }
    }
}

impl<J, D> Drop for Pool<J, D> {
    fn drop(&mut self) {
        let mut work = lock(&self.shared.work);
        work.closed = true;
        work.waiting.clear();
        drop(work);
        self.shared.ready.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that has panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// No thread panics with a list half changed, so a poisoned lock is usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    type Job = Box<dyn FnOnce() -> u32 + Send>;

    /// A pool, and what tells of its wake-ups.
    fn pool(threads: usize) -> (Pool<Job, u32>, Receiver<()>) {
        pool_of(threads, |_| false)
    }

    fn pool_of(threads: usize, takes_long: fn(&Job) -> bool) -> (Pool<Job, u32>, Receiver<()>) {
        let (wake, woken) = channel();
        let wake = Mutex::new(wake);
        let wake = move || lock(&wake).send(()).unwrap_or_default();
        (Pool::start("test", threads, || {}, takes_long, |job: Job| job(), wake).unwrap(), woken)
    }

    /// A job that takes until something is sent.
    fn blocked() -> (Sender<u32>, Job) {
        let (sender, receiver) = channel();
        (sender, Box::new(move || receiver.recv().unwrap_or_default()))
    }

    fn wait(woken: &Receiver<()>) {
        woken.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn who_submits_goes_on_while_a_job_takes_long() {
        let (pool, woken) = pool(2);
        let (release, slow) = blocked();
        pool.submit([slow]);
        pool.submit([Box::new(|| 2_u32) as Job]);
        wait(&woken);
        assert_eq!(pool.done(), [2], "the other thread does what is left");
        release.send(1).unwrap();
        wait(&woken);
        assert_eq!(pool.done(), [1]);
    }

    #[test]
    fn many_results_are_one_wake_up() {
        let (pool, woken) = pool(1);
        pool.submit((0..100_u32).map(|number| Box::new(move || number) as Job));
        while lock(&pool.shared.done).list.len() < 100 {
            std::thread::yield_now();
        }
        wait(&woken);
        assert_eq!(pool.done().len(), 100);
        drop(pool);
        assert!(woken.try_recv().is_err(), "nobody has looked in between");
    }

    #[test]
    fn a_result_does_not_wait_for_a_job_that_takes_long() {
        let (pool, woken) = pool_of(1, |_| true);
        let (release, slow) = blocked();
        pool.submit([Box::new(|| 1_u32) as Job, slow]);
        wait(&woken);
        assert_eq!(pool.done(), [1]);
        release.send(2).unwrap();
        wait(&woken);
        assert_eq!(pool.done(), [2]);
    }

    #[test]
    fn the_end_waits_for_what_is_at_work_and_drops_the_rest() {
        let (pool, _woken) = pool(1);
        let (release, slow) = blocked();
        let (held, count) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
        let (begun, at_work) = channel();
        let slow: Job = Box::new(move || {
            begun.send(()).unwrap();
            slow()
        });
        pool.submit([slow]);
        wait(&at_work);
        for _ in 0..5 {
            let (held, count) = (Arc::clone(&held), Arc::clone(&count));
            let job: Job = Box::new(move || {
                drop(held);
                count.fetch_add(1, Ordering::Relaxed) as u32
            });
            pool.submit([job]);
        }
        let shared = Arc::clone(&pool.shared);
        let ending = std::thread::spawn(move || drop(pool));
        while !lock(&shared.work).closed {
            std::thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&held), 1, "what a job held is dropped with it");
        release.send(0).unwrap();
        ending.join().unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}

//! Judges mutants: by the tests that reach them, the shortest first.

use crate::error::{Error, Result};
use crate::plant::Mutant;
use crate::program::{Kind, Run, Test};
use crate::{report, tell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A test without a mutant may take this long.
const LONGEST_TEST: Duration = Duration::from_secs(600);
/// A mutant that makes tests take this much longer does not end.
const SLOWER: u32 = 20;
/// At least so long, because a process may wait for a processor.
const LEAST_LIMIT: Duration = Duration::from_secs(30);
/// A process runs tests that take this long, and each further one five times as long: most mutants
/// are killed by the first.
const FIRST_RUN: Duration = Duration::from_millis(300);

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A test fails, or does not end.
    Killed,
    /// The tests that ran pass.
    Lived,
    /// No test reaches it.
    Unreached,
}

/// A mutant, and how it was judged.
#[derive(Debug)]
pub(crate) struct Judged<'a> {
    pub(crate) mutant: &'a Mutant,
    pub(crate) verdict: Verdict,
    /// Number of tests that ran.
    pub(crate) ran: usize,
    /// Number of tests that reach it.
    pub(crate) reached_by: usize,
}

/// Which tests reach which mutants, and how long they take.
#[derive(Debug)]
pub(crate) struct Plan {
    directory: PathBuf,
    known: Vec<Known>,
    /// For each mutant the tests that reach it, by their place in `known`, the shortest first.
    reaching: BTreeMap<u32, Vec<usize>>,
    /// Tests that fail without a mutant.
    pub(crate) failing: Vec<Test>,
}

/// A test that has run alone.
#[derive(Debug)]
struct Known {
    test: Test,
    time: Duration,
    reached: BTreeSet<u32>,
}

impl Plan {
    /// Runs each test alone, without a mutant.
    pub(crate) fn of(tests: Vec<Test>, directory: &Path, jobs: usize) -> Result<Self> {
        let notes = tempfile::tempdir().map_err(Error::io("make a directory"))?;
        let ran = in_parallel(&tests, jobs, |test| {
            let file = tempfile::NamedTempFile::new_in(notes.path()).map_err(Error::io("make a file"))?;
            let run = Run {
                tests: vec![test],
                directory,
                variable: ("MUTANTS_REACHED", file.path().display().to_string()),
                limit: LONGEST_TEST,
            };
            let begin = Instant::now();
            let passes = run.passes()?;
            let time = begin.elapsed();
            let text = fs::read_to_string(file.path()).map_err(Error::io("read what a test has reached"))?;
            let reached = text.lines().filter_map(|line| line.parse().ok()).collect();
            Ok((passes, Known { test: test.clone(), time, reached }))
        })?;
        let (passing, failing): (Vec<_>, Vec<_>) = ran.into_iter().partition(|(passes, _)| *passes);
        let mut known: Vec<Known> = passing.into_iter().map(|(_, known)| known).collect();
        known.sort_by_key(|known| known.time);
        let mut reaching: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (place, known) in known.iter().enumerate() {
            known.reached.iter().for_each(|mutant| reaching.entry(*mutant).or_default().push(place));
        }
        let failing = failing.into_iter().map(|(_, known)| known.test).collect();
        Ok(Self { directory: directory.to_owned(), known, reaching, failing })
    }

    /// Judges the mutants, each by tests that take `most` at most, and by all worlds. Those that
    /// live are reported as they are found.
    pub(crate) fn judge(&self, mutants: &[Mutant], most: Duration, jobs: usize) -> Result<Vec<Verdict>> {
        let done = AtomicUsize::new(0);
        in_parallel(mutants, jobs, |mutant| {
            let judged = self.judge_one(mutant, most)?;
            if judged.verdict != Verdict::Killed {
                report(&judged)?;
            }
            let done = done.fetch_add(1, Relaxed) + 1;
            if done.is_multiple_of(50) {
                tell(&format!("{done} of {}", mutants.len()))?;
            }
            Ok(judged.verdict)
        })
    }

    fn judge_one<'a>(&self, mutant: &'a Mutant, most: Duration) -> Result<Judged<'a>> {
        let reaching = self.reaching.get(&mutant.number).map(Vec::as_slice).unwrap_or_default();
        let chosen = self.choose(reaching, most);
        let mut verdict = if reaching.is_empty() { Verdict::Unreached } else { Verdict::Lived };
        let mut ran = 0;
        for some in self.runs(&chosen) {
            ran += some.len();
            if self.is_killed(mutant, some)? {
                verdict = Verdict::Killed;
                break;
            }
        }
        Ok(Judged { mutant, verdict, ran, reached_by: reaching.len() })
    }

    /// Tests that take `most` at most, then all worlds. Half of the time goes to the shortest tests,
    /// half to those that reach the fewest mutants, which are likely to be about the code in question.
    fn choose(&self, reaching: &[usize], most: Duration) -> Vec<usize> {
        let is_world = |place: &usize| matches!(self.known[*place].test.kind, Kind::World(_));
        let (worlds, reaching): (Vec<usize>, Vec<usize>) = reaching.iter().partition(|place| is_world(place));
        let mut special = reaching.clone();
        special.sort_by_key(|place| self.known[*place].reached.len());
        let mut chosen = BTreeSet::new();
        let mut time = Duration::ZERO;
        for (order, limit) in [(&reaching, most / 2), (&special, most)] {
            for place in order {
                let longer = time + self.known[*place].time;
                if longer <= limit && chosen.insert(*place) {
                    time = longer;
                }
            }
        }
        // A test that alone takes longer is better than none.
        if chosen.is_empty() {
            chosen.extend(reaching.first());
        }
        chosen.into_iter().chain(worlds).collect()
    }

    /// Divides tests into runs.
    fn runs<'a>(&self, mut chosen: &'a [usize]) -> Vec<&'a [usize]> {
        let mut runs = Vec::new();
        let mut limit = FIRST_RUN;
        while !chosen.is_empty() {
            let mut time = Duration::ZERO;
            let fitting = chosen.iter().take_while(|place| {
                time += self.known[**place].time;
                time <= limit
            });
            let (run, rest) = chosen.split_at(fitting.count().max(1));
            runs.push(run);
            chosen = rest;
            limit *= 5;
        }
        runs
    }

    /// True if one of these tests fails with the mutant.
    fn is_killed(&self, mutant: &Mutant, tests: &[usize]) -> Result<bool> {
        let mut groups: BTreeMap<_, Vec<&Known>> = BTreeMap::new();
        for known in tests.iter().map(|place| &self.known[*place]) {
            groups.entry(known.test.group()).or_default().push(known);
        }
        for known in groups.values() {
            let time: Duration = known.iter().map(|known| known.time).sum();
            let run = Run {
                tests: known.iter().map(|known| &known.test).collect(),
                directory: &self.directory,
                variable: ("MUTANT", mutant.number.to_string()),
                limit: LEAST_LIMIT + time * SLOWER,
            };
            if !run.passes()? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Does something with each item, several at a time; the results have the order of the items.
fn in_parallel<'a, T: Sync, R: Send>(
    items: &'a [T],
    jobs: usize,
    work: impl Fn(&'a T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<R>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Relaxed);
                    let Some(item) = items.get(place) else { break };
                    let result = work(item);
                    if result.is_err() {
                        next.store(items.len(), Relaxed);
                    }
                    if let Ok(mut results) = results.lock() {
                        results.push((place, result));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests;

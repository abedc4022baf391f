use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tempfile::TempDir;

/// Long enough on a busy machine for what should happen.
const SOON: Duration = Duration::from_secs(30);
/// How long a lab that shares waits for another one, unless two have met before.
const MEETING: Duration = Duration::from_millis(500);
const HELD: &str = "TESTUDO_LAB_TEST_LOCK";
/// Places of the machine in the tests.
const PLACES: u8 = 2;
const SHARED: Company = Company::Places(1);

/// A queue for the test only.
struct Queue {
    dir: TempDir,
}

impl Queue {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("lock")
    }

    fn wait(&self, company: Company, limit: Duration) -> Result<Lock> {
        Lock::wait_at(&self.path(), PLACES, company, limit)
    }

    fn now(&self, company: Company) -> Result<Lock> {
        self.wait(company, Duration::ZERO)
    }

    /// Waits until that many labs are in it, waiting or running.
    fn await_tickets(&self, count: usize) {
        wait_until("tickets", SOON, || {
            let looker = Lock { file: File::open(self.path()).unwrap(), slots: 0..0 };
            let tickets = looker.tickets(0..END)?;
            Ok(if tickets.len() == count { Ok(()) } else { Err(format!("{tickets:?}")) })
        })
        .unwrap();
    }
}

#[test]
fn the_second_waits_for_the_first_and_names_it() {
    let queue = Queue::new();
    let first = queue.now(Company::Alone).unwrap();
    assert_eq!(first.slots(), 0..SLOTS);
    for company in [Company::Alone, SHARED] {
        let refused = queue.wait(company, Duration::from_millis(150)).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {} holds", std::process::id())), "{refused}");
    }
    drop(first);
    queue.now(Company::Alone).unwrap();
}

#[test]
fn sharing_labs_have_a_slot_each() {
    let queue = Queue::new();
    let first = queue.now(SHARED).unwrap();
    let second = queue.now(SHARED).unwrap();
    assert_eq!((first.slots(), second.slots()), (0..1, 1..2));
    for company in [Company::Alone, SHARED] {
        assert!(matches!(queue.now(company), Err(Error::Timeout { .. })), "{company:?}");
    }
    drop(first);
    assert!(queue.now(Company::Alone).is_err());
    let third = queue.now(SHARED).unwrap();
    assert_eq!(third.slots(), 0..1);
    drop((second, third));
    queue.now(Company::Alone).unwrap();
}

#[test]
fn on_one_processor_nobody_shares() {
    let queue = Queue::new();
    let enter = || Lock::wait_at(&queue.path(), 1, SHARED, Duration::ZERO);
    let first = enter().unwrap();
    assert!(enter().is_err());
    drop(first);
    enter().unwrap();
}

/// A lab of two places leaves two of four: for another one, or for two small ones.
#[test]
fn a_lab_takes_as_many_places_as_it_says() {
    let queue = Queue::new();
    let enter = |places| Lock::wait_at(&queue.path(), 4, Company::Places(places), Duration::ZERO);
    let large = enter(2).unwrap();
    let small = enter(1).unwrap();
    assert!(enter(2).is_err());
    let another = enter(1).unwrap();
    assert!(enter(1).is_err());
    drop((small, another));
    let second = enter(2).unwrap();
    assert_eq!((large.slots(), second.slots()), (0..1, 1..2));
    drop((large, second));
    // More places than there are means all.
    let all = enter(9).unwrap();
    assert!(enter(1).is_err());
    drop(all);
    enter(4).unwrap();
}

/// Small labs that come later do not delay a large one, even if there is a place for them before it
/// can enter.
#[test]
fn a_large_lab_is_not_overtaken_by_small_ones() {
    let queue = Queue::new();
    let enter = |places, limit| Lock::wait_at(&queue.path(), 4, Company::Places(places), limit);
    let holder = enter(3, Duration::ZERO).unwrap();
    thread::scope(|scope| {
        let large = scope.spawn(|| enter(2, SOON).unwrap());
        queue.await_tickets(2);
        assert!(enter(1, Duration::ZERO).is_err());
        drop(holder);
        large.join().unwrap();
    });
}

/// A lab that gives up leaves no gap, and does not block the labs after it.
#[test]
fn a_lab_that_gives_up_is_not_waited_for() {
    let queue = Queue::new();
    let first = queue.now(SHARED).unwrap();
    assert!(queue.now(Company::Alone).is_err());
    let second = queue.now(SHARED).unwrap();
    drop((first, second));
}

/// A waiting lone lab is not overtaken by labs that could share with the holder, and they are not
/// overtaken by a later lone one.
#[test]
fn labs_enter_in_order_of_arrival() {
    use Company::Alone;
    use SHARED as Shared;
    let queue = Queue::new();
    let holder = queue.now(Shared).unwrap();
    let order = Mutex::new(Vec::new());
    let wanted = [Alone, Shared, Alone, Alone, Shared, Alone];
    thread::scope(|scope| {
        for (number, company) in wanted.into_iter().enumerate() {
            let (queue, order) = (&queue, &order);
            scope.spawn(move || {
                let _lock = queue.wait(company, SOON).unwrap();
                order.lock().unwrap().push(number);
            });
            // One after the other takes its ticket.
            queue.await_tickets(number + 2);
        }
        assert!(order.lock().unwrap().is_empty());
        drop(holder);
    });
    assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4, 5]);
}

/// Threads come and go at random, like two test programs: a lone lab is never beside another, and
/// there are never too many.
#[test]
fn a_lone_lab_is_never_beside_another() {
    let queue = Queue::new();
    let (alone, shared, most) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let slots = Mutex::new([false; SLOTS as usize]);
    let visit = |company: Company| {
        let lock = queue.wait(company, SOON).unwrap();
        let count = if company == Company::Alone { &alone } else { &shared };
        count.fetch_add(1, Ordering::SeqCst);
        for slot in lock.slots() {
            let taken = std::mem::replace(&mut slots.lock().unwrap()[usize::from(slot)], true);
            assert!(!taken, "slot {slot} is somebody else's");
        }
        thread::sleep(Duration::from_millis(3));
        // Runs until at least two that share have met, whatever the scheduler does.
        let begun = Instant::now();
        while company != Company::Alone && most.load(Ordering::SeqCst) < 2 && begun.elapsed() < MEETING {
            most.fetch_max(shared.load(Ordering::SeqCst), Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
        }
        let inside = (alone.load(Ordering::SeqCst), shared.load(Ordering::SeqCst));
        assert!(matches!(inside, (1, 0) | (0, 1..=2)), "{inside:?}");
        most.fetch_max(inside.1, Ordering::SeqCst);
        for slot in lock.slots() {
            slots.lock().unwrap()[usize::from(slot)] = false;
        }
        count.fetch_sub(1, Ordering::SeqCst);
    };
    thread::scope(|scope| {
        for number in 0..8 {
            let visit = &visit;
            scope.spawn(move || {
                for round in 0..10 {
                    visit(if (number + round) % 3 == 0 { Company::Alone } else { SHARED });
                }
            });
        }
    });
    assert_eq!(most.into_inner(), 2, "nobody has shared");
}

/// Runs as a separate process, started by the test below.
#[test]
#[ignore = "another test starts it in a process of its own"]
fn helper_that_holds_a_lab_until_it_is_killed() {
    let Some(path) = std::env::var_os(HELD) else { return };
    let _lock = Lock::wait_at(Path::new(&path), PLACES, SHARED, SOON).unwrap();
    thread::sleep(Duration::from_secs(600));
}

#[test]
fn the_ticket_of_a_killed_process_and_its_slot_are_free() {
    let queue = Queue::new();
    let first = queue.now(SHARED).unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "lock::tests::helper_that_holds_a_lab_until_it_is_killed"])
        .env(HELD, queue.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    queue.await_tickets(2);
    let refused = wait_until("the victim to be inside", SOON, || match queue.now(SHARED) {
        Ok(_) => Ok(Err("it is not".into())),
        Err(refused) => Ok(Ok(refused.to_string())),
    });
    let refused = refused.unwrap();
    assert!(refused.contains(&victim.id().to_string()), "{refused}");
    kill(Pid::from_raw(victim.id().cast_signed()), Signal::SIGKILL).unwrap();
    victim.wait().unwrap();
    let second = queue.now(SHARED).unwrap();
    assert_eq!((first.slots(), second.slots()), (0..1, 1..2));
    drop((first, second));
    queue.now(Company::Alone).unwrap();
}

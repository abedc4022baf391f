//! Several workers, whose pipelines do as the test says.

use super::*;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_fastpath::fib::Fib;
use testudo_fastpath::frame::{ChunkSize, FramePool};
use testudo_fastpath::port::fake::FakePort;
use testudo_fastpath::tun::Tun;
use testudo_fastpath::worker::{Pipeline, Worker, WorkerConfig};
use testudo_ipsec::dataplane::{Command, Config, Dataplane, Item, Sources};
use testudo_ipsec::number::WorkerId;

/// Notes what it is told, and waits before it does anything while the test holds the lock.
#[derive(Default)]
struct Scripted {
    told: Arc<Mutex<Vec<u16>>>,
    /// Before it tells anything too.
    waits: bool,
    events: Vec<Event>,
}

impl Pipeline for Scripted {
    fn outbound(&mut self, _: &mut [Item<'_>], _: &Sources) {}
    fn inbound(&mut self, _: &mut [Item<'_>]) {}
    fn judge(&mut self, _: &mut [Item<'_>], _: &Sources) {}
    fn give_up_early(&mut self, _: u64) {}
    fn set_now(&mut self, _: u64) {}
    fn set_open(&mut self, _: bool) {}

    fn apply(&mut self, command: Command) -> Option<Garbage> {
        let mut told = self.told.lock().unwrap_or_else(|broken| broken.into_inner());
        match command {
            Command::SetSenderId(sender) => told.push(sender.0),
            Command::TakeIn(floors) => return Some(Garbage::TakenIn(floors)),
            Command::TakeNotes => return Some(Garbage::Noted(Box::default(), 0)),
            _ => panic!("the script says so"),
        }
        None
    }

    fn drain_events(&mut self, sink: impl FnMut(Event)) {
        let _waited = self.waits.then(|| self.told.lock());
        self.events.drain(..).for_each(sink);
    }
}

fn start(scripts: Vec<Scripted>) -> Workers {
    let running = |(id, script): (u8, Scripted)| {
        let pool = FramePool::new(64, ChunkSize::K2).unwrap();
        let fib = Arc::new(Fib::builder().build());
        let worker: Worker<FakePort, Tun, Scripted> =
            Worker::new(WorkerConfig::new(id), Vec::new(), None, pool, fib, script).unwrap();
        let counted = Dataplane::new(&Config::new(WorkerId::new(id).unwrap(), None, 0));
        Running::new(WorkerHandle::spawn(worker).unwrap(), Arc::clone(counted.counters()), None)
    };
    Workers::new((0..).zip(scripts).map(running).collect())
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn sender(number: u16) -> WorkerCommand {
    WorkerCommand::Ipsec(Command::SetSenderId(SenderId(number)))
}

#[test]
fn all_are_told_the_same_in_the_same_order_however_much_it_is() {
    let told: [Arc<Mutex<Vec<u16>>>; 3] = std::array::from_fn(|_| Arc::default());
    let scripts = told.iter().map(|told| Scripted { told: Arc::clone(told), ..Scripted::default() });
    let mut workers = start(scripts.collect());
    // More than the queue of a worker holds, and one of them is slow.
    let slow = told[1].lock().unwrap();
    (0..10_000).for_each(|number| workers.queue(sender(number)));
    assert!(!workers.flush(), "for the slow one some wait here");
    wait_for("the others go on", || {
        workers.flush();
        [0, 2].iter().all(|n: &usize| told[*n].lock().unwrap().len() == 10_000)
    });
    assert!(!workers.is_flushed());
    drop(slow);
    wait_for("the slow one has all", || workers.flush() && told[1].lock().unwrap().len() == 10_000);
    assert!(told.iter().all(|told| told.lock().unwrap().is_sorted()));
    workers.stop().unwrap();
}

#[test]
fn a_mark_counts_when_the_last_worker_has_come_by_it() {
    let (slow, scripts) = (Scripted::default(), vec![Scripted::default(), Scripted::default()]);
    let held = Arc::clone(&slow.told);
    let mut workers = start(scripts.into_iter().chain([slow]).collect());
    let waits = held.lock().unwrap();
    let mark = || WorkerCommand::Ipsec(Command::TakeNotes);
    workers.queue(mark());
    workers.queue(WorkerCommand::Ipsec(Command::TakeIn(Box::new([(Spi(256), 1)]))));
    workers.queue(mark());
    workers.flush();
    wait_for("two of three", || {
        assert!(workers.reports().noted.is_empty());
        workers.0[..2].iter().all(|worker| worker.noted.len() == 2)
    });
    drop(waits);
    let mut marks = 0;
    wait_for("the last", || {
        marks += workers.reports().noted.len();
        marks == 2
    });
    workers.stop().unwrap();
}

#[test]
fn what_several_tell_alike_is_told_once() {
    let spi = |number| Event::Carried { spi: Spi(number) };
    let moved = Event::AddressChanged { spi: Spi(300), remote: "192.0.2.9:4500".parse().unwrap() };
    let low = |rate| Event::SequenceLow { spi: Spi(400), rate };
    let events = [vec![spi(300), Event::IvLow, low(5)], vec![low(6), Event::IvLow, moved, spi(301)]];
    let mut scripts = events.map(|events| Scripted { events, ..Scripted::default() });
    // Events are ordered by time: the second worker starts to report after the first has finished.
    scripts[1].waits = true;
    let second = Arc::clone(&scripts[1].told);
    let waits = second.lock().unwrap();
    let mut workers = start(scripts.into());
    wait_for("the first has told", || workers.0[0].handle.counters().totals().turns > 1);
    drop(waits);
    wait_for("the second has told", || workers.0[1].handle.counters().totals().turns > 1);
    let told: Vec<Event> = workers.reports().events.into_iter().filter_map(ipsec).collect();
    assert_eq!(told, [spi(300), Event::IvLow, low(5), moved, spi(301)]);
    workers.stop().unwrap();
}

/// The worker that heard of a peer last says where the peer is.
#[test]
fn what_they_tell_comes_in_the_order_in_which_it_came_up() {
    let moved = |host: u8| Event::AddressChanged { spi: Spi(300), remote: ([192, 0, 2, host], 4500).into() };
    let slow = Arc::new(Mutex::new(Vec::new()));
    let waits = slow.lock().unwrap();
    let first = Scripted { told: Arc::clone(&slow), waits: true, events: vec![moved(2)] };
    let mut workers = start(vec![first, Scripted { events: vec![moved(1)], ..Scripted::default() }]);
    wait_for("the second has told", || workers.0[1].handle.counters().totals().turns > 1);
    drop(waits);
    wait_for("the first has told", || workers.0[0].handle.counters().totals().turns > 1);
    let told: Vec<Event> = workers.reports().events.into_iter().filter_map(ipsec).collect();
    assert_eq!(told, [moved(1), moved(2)]);
    workers.stop().unwrap();
}

fn ipsec(event: WorkerEvent) -> Option<Event> {
    if let WorkerEvent::Ipsec(event) = event { Some(event) } else { None }
}

#[test]
fn one_that_has_ended_is_named() {
    let workers = start(vec![Scripted::default(), Scripted::default()]);
    workers.check().unwrap();
    workers.0[1].handle.send(WorkerCommand::Ipsec(Command::ForgetSenderId)).unwrap();
    wait_for("its end", || workers.check().is_err());
    assert_eq!(workers.check().unwrap_err().to_string(), "worker 1 has ended: see the log above");
    assert!(workers.stop().unwrap_err().to_string().contains("worker 1 panicked: the script says so"));
}

#[test]
fn notes_of_all_workers_come_latest_first() {
    let note = |digest| Note { shard: Shard(1), digest };
    let list = |digests: &[u64], room| {
        let blank = note(0);
        let mut notes: Vec<Note> = digests.iter().copied().map(note).collect();
        notes.resize(room, blank);
        (notes.into_boxed_slice(), digests.len())
    };
    let each = [list(&[1, 2, 3], 3), list(&[], 4), list(&[11], 4)];
    let digests: Vec<u64> = latest_first(&each).iter().map(|note| note.digest).collect();
    assert_eq!(digests, [3, 11, 2, 1]);
}

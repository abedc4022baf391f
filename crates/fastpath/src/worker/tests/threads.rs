//! The worker on its thread, as control sees it.

use super::*;
use nix::poll::{PollFd, PollFlags, poll};
use std::time::{Duration, Instant};
use testudo_base::spi::SenderId;

/// Less than an idle worker sleeps in a test.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) fn wait_for(handle: &WorkerHandle, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: {:?}", handle.counters().totals());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_readable(handle: &WorkerHandle) -> bool {
    becomes_readable(handle, Duration::ZERO)
}

fn becomes_readable(handle: &WorkerHandle, within: Duration) -> bool {
    let mut fds = [PollFd::new(handle.fd(), PollFlags::POLLIN)];
    loop {
        match poll(&mut fds, u16::try_from(within.as_millis()).unwrap()) {
            // A machine that is stopped for a moment (signal(7)).
            Err(nix::Error::EINTR) => {}
            ready => return ready.unwrap() == 1,
        }
    }
}

#[test]
fn a_sleeping_worker_wakes_for_a_command_and_gives_garbage_back() {
    let handle = WorkerHandle::spawn(worker(full_fib())).unwrap();
    wait_for(&handle, "sleep", || handle.counters().totals().sleeps > 0);
    handle.send(WorkerCommand::Fib(full_fib())).unwrap();
    assert!(becomes_readable(&handle, LIMIT), "garbage makes the descriptor readable");
    assert!(matches!(handle.collect().collect::<Vec<_>>()[..], [WorkerGarbage::Fib(_)]));
    assert!(!is_readable(&handle), "until there is more");
    assert!(!handle.is_finished());
    assert_eq!(handle.stop().unwrap(), 0);
}

#[test]
fn commands_are_applied_in_order() {
    let handle = WorkerHandle::spawn(worker(full_fib())).unwrap();
    for number in 0..1000 {
        handle.send(WorkerCommand::Ipsec(Command::SetSenderId(SenderId(number)))).unwrap();
    }
    let mut seen = Vec::new();
    wait_for(&handle, "garbage", || {
        seen.extend(handle.collect().map(|garbage| match garbage {
            WorkerGarbage::Ipsec(Garbage::SenderId(sender)) => sender.0,
            other => panic!("{other:?}"),
        }));
        seen.len() == 1000
    });
    assert_eq!(seen, (0..1000).collect::<Vec<u16>>());
    assert_eq!(handle.stop().unwrap(), 0);
}

#[test]
fn a_worker_whose_garbage_nobody_collects_stops_taking_commands() {
    let mut worker = worker(full_fib());
    let mut refused = 0;
    for number in 0..20_000u32 {
        let command = WorkerCommand::Ipsec(Command::SetSenderId(SenderId(number as u16)));
        refused += u32::from(worker.delivery.channel.commands.push(command).is_err());
        if number % 100 == 0 {
            worker.turn(u64::from(number));
        }
    }
    assert!(refused > 0, "both queues are bounded");
    let mut seen = 0;
    while worker.delivery.channel.garbage.pop().is_some() {
        seen += 1;
        worker.turn(30_000);
    }
    assert_eq!(seen + refused, 20_000, "and nothing is lost between them");
    check_and_close(worker);
}

#[test]
fn events_of_the_pipeline_reach_control() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().events = vec![Event::IvLow];
    let handle = WorkerHandle::spawn(worker).unwrap();
    assert!(becomes_readable(&handle, LIMIT));
    assert_eq!(
        handle.events().map(|(_, event)| event).collect::<Vec<_>>(),
        [WorkerEvent::Ipsec(Event::IvLow)]
    );
    assert_eq!(handle.stop().unwrap(), 0);
}

#[test]
fn taking_events_does_not_hide_garbage_nor_the_other_way_round() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().events = vec![Event::IvLow];
    worker.delivery.channel.commands.push(WorkerCommand::Fib(full_fib())).unwrap();
    let handle = WorkerHandle::spawn(worker).unwrap();
    assert!(becomes_readable(&handle, LIMIT));
    assert_eq!(handle.events().count(), 1);
    assert!(is_readable(&handle), "there is garbage still");
    assert_eq!(handle.collect().count(), 1);
    assert!(!is_readable(&handle));
    assert_eq!(handle.stop().unwrap(), 0);
}

#[test]
fn events_that_nobody_takes_are_counted() {
    let mut worker = worker(full_fib());
    for _ in 0..3 {
        worker.pipeline_mut().events = vec![Event::IvLow; 500];
        worker.turn(1);
    }
    assert_eq!(worker.counters().totals().events_lost, 3 * 500 - 1024);
    check_and_close(worker);
}

#[test]
fn a_panic_is_reported_not_swallowed() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(|_| panic!("the script says so"));
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 60, true), Class::Protect);
    let handle = WorkerHandle::spawn(worker).unwrap();
    assert!(becomes_readable(&handle, LIMIT), "control is woken");
    wait_for(&handle, "end", || handle.is_finished());
    let error = handle.stop().unwrap_err().to_string();
    assert_eq!(error, "worker 0 panicked: the script says so");
}

#[test]
fn dropping_the_handle_ends_the_thread() {
    let handle = WorkerHandle::spawn(worker(full_fib())).unwrap();
    let counters = Arc::clone(handle.counters());
    drop(handle);
    assert_eq!(Arc::strong_count(&counters), 1, "the thread has let go of its counters");
}

#[test]
fn a_worker_keeps_to_its_core() {
    let mut worker = worker(full_fib());
    worker.config.cpu = Some(0);
    let handle = WorkerHandle::spawn(worker).unwrap();
    wait_for(&handle, "sleep", || handle.counters().totals().sleeps > 0);
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let pinned = tasks.filter(|task| {
        let read = |file| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        read("comm").trim() == "worker-0" && read("status").contains("Cpus_allowed_list:\t0\n")
    });
    assert!(pinned.count() >= 1);
    assert_eq!(handle.stop().unwrap(), 0);
}

#[test]
fn collecting_garbage_lets_waiting_commands_go_on() {
    let mut worker = worker(full_fib());
    let mut sent = 0u32;
    let command = |number: u32| WorkerCommand::Ipsec(Command::SetSenderId(SenderId(number as u16)));
    // Until there is no room for garbage, and none for commands that would make more.
    for _ in 0..2 {
        while worker.delivery.channel.commands.push(command(sent)).is_ok() {
            sent += 1;
        }
        worker.turn(0);
    }
    while worker.delivery.channel.commands.push(command(sent)).is_ok() {
        sent += 1;
    }
    assert!(worker.delivery.channel.garbage.is_full());
    let handle = WorkerHandle::spawn(worker).unwrap();
    wait_for(&handle, "sleep", || handle.counters().totals().sleeps > 0);
    let mut seen = 0;
    // A worker that slept although there was room again would not be awake within the limit.
    wait_for(&handle, "garbage", || {
        seen += handle.collect().count() as u32;
        seen == sent
    });
    assert_eq!(handle.stop().unwrap(), 0);
}

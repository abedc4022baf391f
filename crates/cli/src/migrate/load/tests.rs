use super::*;
use crate::migrate::scripted;
use std::path::PathBuf;

fn worked(milliseconds: u64) -> Processors {
    Processors { count: 4, busy: Duration::from_millis(milliseconds) }
}

#[test]
fn half_of_four_processors_is_half() {
    let second = Duration::from_secs(1);
    assert_eq!(per_cent(worked(1000), worked(3000), second), 50);
    assert_eq!(per_cent(worked(1000), worked(1000), second), 0);
    assert_eq!(per_cent(worked(1000), worked(9000), second), 100, "the answer came late");
    assert_eq!(per_cent(worked(1000), worked(900), second), 0, "it has started again");
    assert_eq!(per_cent(worked(0), worked(0), Duration::ZERO), 0);
}

fn daemon(answers: Vec<Option<Processors>>) -> (tempfile::TempDir, PathBuf) {
    let answers = answers.into_iter().map(|answer| answer.map(Processors::to_message)).collect();
    scripted::daemon(COMMAND, answers, |arguments| assert_eq!(*arguments, Message::new()))
}

#[test]
fn each_host_has_its_own_and_one_that_does_not_tell_has_none() {
    let (_source, source) = daemon(vec![Some(worked(0)), Some(worked(2000)), Some(worked(2000))]);
    let (_silent, silent) = daemon(vec![None]);
    let mut loads = Loads::begin([(Side::Source, &*source), (Side::Destination, &*silent)]);
    for _ in 0..2 {
        loads.posts.iter_mut().for_each(|post| post.ask(Duration::from_secs(1)));
    }
    // Nothing has passed since the begin that would be worth a part.
    loads.latest = Instant::now();
    let expected = HostLoad { side: Side::Source, processors: 4, peak: 50, each_second: vec![50, 0] };
    assert_eq!(loads.end(), [expected]);
}

#[test]
fn a_daemon_that_ends_keeps_what_it_has_told() {
    let (_dir, socket) = daemon(vec![Some(worked(0)), Some(worked(400))]);
    let mut loads = Loads::begin([(Side::Destination, &*socket)]);
    for _ in 0..3 {
        loads.posts.iter_mut().for_each(|post| post.ask(Duration::from_secs(1)));
    }
    loads.latest = Instant::now();
    assert_eq!(loads.end().iter().map(|load| &load.each_second).collect::<Vec<_>>(), [&vec![10]]);
}

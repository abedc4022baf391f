use super::*;

const PHASES: [Phase; 5] = [Phase::None, Phase::Active, Phase::Completed, Phase::Failed, Phase::Cancelled];

fn states() -> [State; 5] {
    let stopped = State::Stopped("paused".to_owned());
    [State::Running, State::Incoming, stopped, State::Gone, State::Unknown("late".to_owned())]
}

fn every_situation() -> Vec<Situation> {
    let mut all = Vec::new();
    for source in states() {
        for destination in states() {
            for (sent, received) in PHASES.iter().flat_map(|sent| PHASES.map(|received| (*sent, received))) {
                for fenced in [false, true] {
                    let (source, destination) = (source.clone(), destination.clone());
                    all.push(Situation { source, destination, sent, received, fenced });
                }
            }
        }
    }
    all
}

/// Whatever the situation: nothing is started beside one that runs or may run, nothing is stopped
/// unless both run, and the end is that exactly one runs.
#[test]
fn no_step_lets_two_run_or_stops_the_only_one() {
    let all = every_situation();
    for now in &all {
        let running = [&now.source, &now.destination].map(|state| *state == State::Running);
        let unknown = [&now.source, &now.destination].iter().any(|state| matches!(state, State::Unknown(_)));
        match decide(now) {
            Step::Done(Side::Source) => assert_eq!(running, [true, false], "{now:?}"),
            Step::Done(Side::Destination) => assert_eq!(running, [false, true], "{now:?}"),
            Step::Continue(_) => assert!(running == [false, false] && !unknown, "{now:?}"),
            Step::Stop(side) => {
                assert_eq!((running, side), ([true, true], Side::Source), "{now:?}");
                assert_eq!(now.received, Phase::Completed, "{now:?}");
            }
            Step::Fence => {
                assert!(!now.fenced && now.destination == State::Incoming, "{now:?}");
            }
            Step::Wait => assert!([now.sent, now.received].iter().any(|phase| *phase != Phase::None)),
            Step::Stuck(_) => {}
        }
        if unknown {
            assert!(matches!(decide(now), Step::Stuck(_)), "{now:?}");
        }
    }
    assert_eq!(all.len(), 5 * 5 * 25 * 2);
}

/// A source that goes on must not meet a destination that starts later.
#[test]
fn a_destination_that_waits_is_fenced_before_the_source_counts_as_the_one() {
    for source in [State::Running, State::Stopped("paused".to_owned())] {
        for sent in [Phase::Failed, Phase::Cancelled] {
            let now = Situation {
                source: source.clone(),
                destination: State::Incoming,
                sent,
                received: Phase::Active,
                fenced: false,
            };
            assert_eq!(decide(&now), Step::Fence, "{now:?}");
            let then = match source {
                State::Running => Step::Done(Side::Source),
                _ => Step::Continue(Side::Source),
            };
            assert_eq!(decide(&Situation { fenced: true, ..now }), then);
        }
    }
}

#[test]
fn the_one_with_the_newest_state_goes_on() {
    let stopped = || State::Stopped("postmigrate".to_owned());
    let of = |source, destination, sent, received| {
        decide(&Situation { source, destination, sent, received, fenced: true })
    };
    let (completed, failed) = (Phase::Completed, Phase::Failed);
    assert_eq!(of(stopped(), stopped(), completed, completed), Step::Continue(Side::Destination));
    assert_eq!(of(stopped(), stopped(), failed, completed), Step::Continue(Side::Destination));
    assert_eq!(of(stopped(), stopped(), failed, failed), Step::Continue(Side::Source));
    assert_eq!(of(stopped(), State::Gone, failed, Phase::None), Step::Continue(Side::Source));
    assert_eq!(of(State::Gone, stopped(), Phase::None, completed), Step::Continue(Side::Destination));
    assert_eq!(of(State::Running, State::Gone, failed, Phase::None), Step::Done(Side::Source));
    assert_eq!(of(stopped(), State::Running, completed, completed), Step::Done(Side::Destination));
    assert_eq!(of(State::Running, State::Running, failed, completed), Step::Stop(Side::Source));
}

/// The destination may have written to disks since.
#[test]
fn an_older_state_is_not_continued() {
    let now = Situation {
        source: State::Stopped("postmigrate".to_owned()),
        destination: State::Gone,
        sent: Phase::Completed,
        received: Phase::None,
        fenced: false,
    };
    assert!(matches!(decide(&now), Step::Stuck(_)));
    let never = Situation { sent: Phase::None, destination: State::Incoming, ..now };
    assert!(matches!(decide(&never), Step::Stuck(_)), "its operator has stopped it");
}

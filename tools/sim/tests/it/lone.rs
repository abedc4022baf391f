//! Tests of the world and its checks, with a gateway that is not in a cluster.

use std::rc::Rc;
use testudo_sim::checks::Invariant;
use testudo_sim::faults::Kind;
use testudo_sim::lone::{Flaw, Lone};
use testudo_sim::random::Random;
use testudo_sim::scenario::{Lasting, Scenario};
use testudo_sim::world::{Outcome, World};

fn run(seed: u64, flaw: Flaw, kinds: &[Kind]) -> Outcome {
    let mut scenario = Scenario::random(seed);
    scenario.nodes = 1;
    // There is no other gateway to replace one that has failed permanently.
    scenario.lasting = Lasting::None;
    // And nobody to relay for.
    scenario.routed = None;
    scenario.only = kinds.to_vec();
    World::new(
        scenario,
        Rc::new(move |scenario, birth| {
            let mut random = Random::new(seed ^ birth.boot);
            Box::new(Lone::new(birth.now, &scenario.manners, flaw, &mut random))
        }),
    )
    .run()
}

const BEARABLE: [Kind; 6] =
    [Kind::Weather, Kind::PauseHost, Kind::PauseProcess, Kind::Port, Kind::ViewStorm, Kind::EngineCrash];

#[test]
fn a_lone_gateway_lives_through_what_one_can_live_through() {
    for seed in 0..20 {
        let outcome = run(seed, Flaw::None, &BEARABLE);
        assert!(outcome.violations.is_empty(), "{outcome}");
        assert!(outcome.counters["packets delivered"] > 100, "{:?}", outcome.counters);
    }
}

#[test]
fn a_seed_does_the_same_again() {
    let [first, second] = [0, 1].map(|_| run(7, Flaw::None, &BEARABLE));
    assert_eq!((first.steps, first.digest), (second.steps, second.digest));
    assert_ne!(first.digest, run(8, Flaw::None, &BEARABLE).digest);
}

#[test]
fn clear_text_is_seen() {
    let outcome = run(1, Flaw::Clear, &BEARABLE);
    assert_eq!(outcome.violations[0].invariant, Invariant::Clear, "{outcome}");
}

#[test]
fn a_packet_that_is_taken_in_twice_is_seen() {
    let outcome = run(1, Flaw::Twice, &BEARABLE);
    assert_eq!(outcome.violations[0].invariant, Invariant::Accepted, "{outcome}");
}

#[test]
fn the_same_ivs_again_are_seen() {
    // A gateway that starts again with its old sender ID, and peers with SAs that it does not
    // know: nothing is repeated. After a rollback, numbers are repeated.
    let caught = (0..200).any(|seed| {
        let outcome = run(seed, Flaw::None, &[Kind::Rollback]);
        outcome.violations.iter().any(|violation| violation.invariant == Invariant::Iv)
    });
    assert!(caught);
}

//! An IKE SA without a child has no future: only IKE_AUTH brings one, so the peer must begin anew.

use crate::common::{Weather, World};
use std::time::Duration;
use testudo_ike::config::{EspProposal, TsSpec};
use testudo_ike::endpoint::{IkeSaState, Target};
use testudo_ike::output::{Event, Reason};
use testudo_ipsec::sa::EspAlgorithm;

fn established(world: &World) -> [usize; 2] {
    let up = |host: &crate::common::world::Host| {
        host.sas().iter().filter(|sa| sa.state == IkeSaState::Established && sa.children.is_empty()).count()
    };
    [0, 1].map(|index| up(&world.hosts[index]))
}

/// TS_UNACCEPTABLE and NO_PROPOSAL_CHOSEN.
#[test]
fn an_ike_sa_whose_child_was_refused_goes() {
    let esp = |algorithm| -> Vec<EspProposal> { vec![crate::common::build::esp_proposal(algorithm)] };
    for refusal in 0..2 {
        let mut world = World::pair_with(1, Weather::FAIR, |index, connection| {
            let child = &mut connection.children[0];
            if index == 1 && refusal == 0 {
                child.local_ts = vec![TsSpec::Fixed(crate::common::build::ts("10.200.0.0-10.200.0.255"))];
            } else if index == 1 {
                child.proposals = esp(EspAlgorithm::Aes256Gcm16);
            }
        });
        world.initiate(0);
        world.run_secs(9);
        assert!(matches!(world.hosts[0].results()[0], Err(Reason::Notify(_))));
        assert_eq!(established(&world), [1, 1], "there is time to look at it");
        world.run_secs(2);
        assert_eq!(established(&world), [0, 0]);
        // An attempt under other conditions begins with a new IKE SA, on both sides.
        let now = world.now;
        let right = crate::common::connection(("192.0.2.2", "sun"), ("192.0.2.1", "moon"));
        world.hosts[1].load(now, right);
        world.initiate(0);
        world.run_secs(100);
        world.assert_tunnel();
        assert!(world.hosts.iter().all(|host| host.endpoint.states().count() == 1));
    }
}

#[test]
fn an_ike_sa_whose_last_child_was_deleted_goes() {
    for deleter in 0..2 {
        let mut world = World::pair(2, Weather::FAIR);
        world.initiate(0);
        world.run_secs(1000);
        world.assert_tunnel();
        let target = Target::ChildName { connection: None, child: "net".into() };
        let now = world.now;
        world.hosts[deleter].endpoint.terminate(now, &target, false).unwrap();
        world.settle(deleter);
        world.run_secs(9);
        assert_eq!(established(&world), [1, 1]);
        world.run_secs(60);
        world.assert_nothing_left();
        let why = |host: &crate::common::world::Host| -> Vec<String> {
            let down = |event: &Event| match event {
                Event::IkeDown(_, reason) => Some(reason.to_string()),
                _ => None,
            };
            host.events.iter().filter_map(down).collect()
        };
        let reasons = [0, 1].map(|index| why(&world.hosts[index]));
        assert!(reasons.iter().flatten().any(|why| why == "it carried no CHILD_SA"), "{reasons:?}");
    }
}

/// The wait is part of the state.
#[test]
fn a_takeover_does_not_start_the_wait_anew() {
    let mut world = World::pair(3, Weather::FAIR);
    world.initiate(0);
    world.run_secs(1);
    let id = world.hosts[0].sas()[0].children[0].id;
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &Target::Child(id), false).unwrap();
    world.settle(0);
    for _ in 0..10 {
        world.run(Duration::from_millis(900));
        let now = world.now;
        for host in &mut world.hosts {
            host.take_over(now);
        }
    }
    assert_eq!(established(&world), [1, 1]);
    world.run_secs(2);
    assert_eq!(established(&world), [0, 0]);
}

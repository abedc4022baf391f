//! The output of `log.level = "debug"` for each exchange.

use crate::scenarios::common::{Weather, World};
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::output::{Event, LogLevel};

/// A tunnel with a child that is renewed, between hosts that log details or not.
fn world(details: bool) -> World {
    let config = EndpointConfig { details, ..EndpointConfig::default() };
    let mut world = World::pair_of(["192.0.2.1", "192.0.2.2"], 1, Weather::FAIR, config, |_, _| {});
    world.establish();
    let (now, child) = (world.now, world.hosts[0].sas()[0].children[0].id);
    assert!(world.hosts[0].endpoint.rekey_child(now, child));
    world.settle(0);
    world.run_secs(2);
    world
}

fn details(world: &World, host: usize) -> Vec<&str> {
    let lines = world.hosts[host].events.iter().filter_map(|event| match event {
        Event::Log { level: LogLevel::Detail, message, .. } => Some(message.as_str()),
        _ => None,
    });
    lines.collect()
}

#[test]
fn each_message_is_shown_on_both_sides_with_proposals_and_selectors() {
    let world = world(true);
    for (exchange, id, parts) in [
        ("IKE_SA_INIT", 0, &["SA(IKE:AES_GCM_16_128/", "KE(", "Nonce"][..]),
        ("IKE_AUTH", 1, &["AUTH(", "SA(ESP:AES_GCM_16_128/", "TSi(10.109.0.0/16)", "TSr(10.115.0.0/16)"]),
        ("CREATE_CHILD_SA", 2, &["SA(ESP:", "N(REKEY_SA)", "TSi(10.109.0.0/16)"]),
    ] {
        for kind in ["request", "response"] {
            let parts: Vec<&&str> =
                parts.iter().filter(|part| kind == "request" || !part.contains("REKEY")).collect();
            let (sender, receiver) = if kind == "request" { (0, 1) } else { (1, 0) };
            for (host, way) in [(sender, "sending"), (receiver, "received")] {
                let begin = format!("{way} {exchange} {kind} {id} [");
                let line = details(&world, host).into_iter().find(|line| line.starts_with(&begin));
                let line = line.unwrap_or_else(|| panic!("no {begin}: {:#?}", details(&world, host)));
                assert!(parts.iter().all(|part| line.contains(**part)), "{line}");
            }
        }
    }
    let narrowed = "child net of site is for 10.115.0.0/16 === 10.109.0.0/16: narrowed to 10.115.0.0/16 === 10.109.0.0/16";
    assert!(details(&world, 1).contains(&narrowed), "{:#?}", details(&world, 1));
}

/// Formatting is not free: without a reader there is no cost.
#[test]
fn nothing_of_it_is_made_where_nobody_asks() {
    let world = world(false);
    let shown = |host: usize| details(&world, host).iter().filter(|line| line.contains(" [")).count();
    assert_eq!([shown(0), shown(1)], [0, 0]);
}

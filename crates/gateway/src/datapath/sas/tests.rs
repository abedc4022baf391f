//! Which outbound SA the worker is told to use.

use super::*;
use std::net::SocketAddr;
use testudo_base::lane::Spread;
use testudo_ipsec::number::Stripe;
use testudo_ipsec::sa::{Encapsulation, EspAlgorithm, HeaderCopy, KeyMaterial, Mode, Mss};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

const POLICY: PolicyId = PolicyId(3);
const MTU: u16 = 1500;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn params(number: u32) -> ChildSaParams {
    let any = AddrRange::new("10.0.0.0".parse().unwrap(), "10.255.255.255".parse().unwrap()).unwrap();
    let ts = vec![TrafficSelector::all(any)];
    ChildSaParams {
        spi_in: Spi(0x0100_0000 + number),
        spi_out: Spi(0x0200_0000 + number),
        algorithm: EspAlgorithm::Aes128Gcm16,
        key_in: KeyMaterial(vec![1; 20]),
        key_out: KeyMaterial(vec![2; 20]),
        esn: true,
        replay_window: 64,
        local_ts: ts.clone(),
        remote_ts: ts,
        local: addr("192.0.2.1:4500"),
        remote: addr("192.0.2.2:20000"),
        encapsulation: Encapsulation::Udp,
        mode: Mode::Tunnel,
        copy: HeaderCopy::default(),
    }
}

/// Agreed for these selectors, with nothing out of the ordinary.
fn agreed<'a>(params: &'a ChildSaParams, selectors: &'a SelectorPair) -> Agreed<'a> {
    Agreed { params, selectors, configured: None, mss: Mss::Auto, icmp: false, spread: None }
}

fn install(sas: &mut Sas, policy: PolicyId, number: u32, activation: Activation) -> ChildSaId {
    let (child, params) = (ChildSaId(number.into()), params(number));
    let selectors = SelectorPair::new(&params.local_ts, &params.remote_ts);
    sas.install(child, policy, agreed(&params, &selectors), activation, MTU, Library::AwsLc).unwrap();
    child
}

/// The SPIs of the outbound SAs that the commands make the policy's, and to whom they send.
fn set(commands: &[Command]) -> Vec<(Spi, IpAddr)> {
    let outbound = commands.iter().filter_map(|command| match command {
        Command::SetOutbound(POLICY, sa) => Some((sa.spi(), sa.remote())),
        _ => None,
    });
    outbound.collect()
}

fn moved(sas: &mut Sas, child: ChildSaId, remote: &str) -> Vec<(Spi, IpAddr)> {
    let path = Path { local: addr("192.0.2.1:4500"), remote: addr(remote) };
    set(&sas.update(child, path, MTU).unwrap())
}

/// A peer behind a NAT moves while its old IKE SA is on its way out: what that one carried has a
/// successor, whose place it must not take again.
#[test]
fn what_has_a_successor_does_not_come_back_by_moving() {
    let mut sas = Sas::default();
    let places = ["192.0.2.2:20000", "192.0.2.3:20001", "192.0.2.4:20002"];
    let [first, second, third] = places.map(|place| addr(place).ip());
    let old = install(&mut sas, POLICY, 1, Activation::WithPolicy);
    assert_eq!(set(&sas.take_waiting()), [(params(1).spi_out, first)]);
    let new = install(&mut sas, POLICY, 2, Activation::SharedPolicy);
    assert_eq!(moved(&mut sas, new, places[1]), [], "it waits for its turn");
    assert_eq!(set(&sas.switch(old, new)), [(params(2).spi_out, second)]);
    assert_eq!(moved(&mut sas, old, places[2]), []);
    assert_eq!(moved(&mut sas, new, places[2]), [(params(2).spi_out, third)]);
}

/// What carries other selectors than the one that it renews has another policy; the peer need not
/// be ready for it yet.
#[test]
fn another_policy_goes_through_the_old_one_until_the_turn_of_the_new() {
    let other = PolicyId(4);
    let of_other = |commands: &[Command]| -> Vec<Spi> {
        let outbound = commands.iter().filter_map(|command| match command {
            Command::SetOutbound(policy, sa) if *policy == other => Some(sa.spi()),
            _ => None,
        });
        outbound.collect()
    };
    let mut sas = Sas::default();
    let old = install(&mut sas, POLICY, 1, Activation::WithPolicy);
    sas.take_waiting();
    for (number, switched) in [(2, false), (3, true)] {
        let new = install(&mut sas, other, number, Activation::After(old));
        assert_eq!(of_other(&sas.take_waiting()), [params(1).spi_out]);
        if switched {
            assert_eq!(of_other(&sas.switch(old, new)), [params(number).spi_out]);
        }
        let cleared = sas.remove(new);
        let stands_in = |command: &Command| matches!(command, Command::ClearOutbound(policy, spi) if *policy == other && *spi == params(1).spi_in);
        assert_eq!(cleared.iter().any(stands_in), !switched, "nothing of it stays behind");
    }
}

/// What the index finds is what a walk through all finds, wherever they have moved.
#[test]
fn a_path_is_that_of_all_sas_to_one_address_and_of_no_other() {
    let mut sas = Sas::default();
    let children: Vec<ChildSaId> =
        (1..=9).map(|number| install(&mut sas, POLICY, number, Activation::WithPolicy)).collect();
    let places = ["192.0.2.2:20000", "192.0.2.3:20001", "192.0.2.4:20002"];
    for (child, place) in children.iter().zip(places.iter().cycle()) {
        moved(&mut sas, *child, place);
    }
    sas.remove(children[0]);
    sas.set_path_mtu(addr(places[0]).ip(), 1280);
    for (number, (child, place)) in children.iter().zip(places.iter().cycle()).enumerate() {
        let mtu = sas.installed.get(child).map(|sa| sa.outbound.path_mtu());
        let expected = if *place == places[0] { 1280 } else { MTU };
        assert_eq!(mtu, (number > 0).then_some(expected), "{child:?}");
    }
    for place in places {
        let walk = sas.installed.values().filter(|sa| sa.outbound.remote() == addr(place).ip()).count();
        assert_eq!(sas.towards(addr(place).ip()).count(), walk);
    }
    children.iter().for_each(|child| drop(sas.remove(*child)));
    assert!(
        sas.by_remote.is_empty() && sas.by_spi.is_empty() && sas.by_spi_out.is_empty() && sas.idle.is_empty()
    );
}

#[test]
fn high_water_marks_are_those_of_a_shard_and_traffic_is_looked_at_in_parts() {
    let mut sas = Sas::new(false);
    let first = 0x0100_0000;
    for number in [1, 2, 0x0100_0000, 0x01ff_ffff] {
        install(&mut sas, POLICY, number, Activation::WithPolicy);
    }
    let spis = |shard| sas.high_water_marks(Shard(shard)).map(|(spi, _)| spi.0).collect::<Vec<_>>();
    assert_eq!(spis(1), [first + 1, first + 2]);
    assert_eq!(spis(2), [2 * first, 2 * first + 0x00ff_ffff]);
    assert!(spis(0).is_empty() && spis(3).is_empty());
    let mut parts = Vec::new();
    let mut behind = None;
    while let Some(last) = sas.packets_of_some(behind, 3).last() {
        parts.push(sas.packets_of_some(behind, 3).len());
        behind = Some(last.child);
    }
    assert_eq!(parts, [3, 1]);
}

/// A spread SA sends with its stripes: with those that it has when its turn comes, and with each
/// later one.
#[test]
fn the_stripes_of_a_spread_sa_go_with_it() {
    let mut sas = Sas::new(true);
    let (child, params) = (ChildSaId(1), params(1));
    let selectors = SelectorPair::new(&params.local_ts, &params.remote_ts);
    let agreed = Agreed { spread: Some(Spread::PacketHash), ..agreed(&params, &selectors) };
    sas.install(child, POLICY, agreed, Activation::WithPolicy, MTU, Library::AwsLc).unwrap();
    let stripe = |number: u64| Stripe {
        first_row: number * 10,
        rows: 10,
        start: 1 + number * 30,
        classes: 3,
        class: 2,
    };
    let count = |commands: &[Command]| {
        let stripes = commands.iter().filter_map(|command| match command {
            Command::SetStripes(POLICY, spi, stripes) if *spi == params.spi_in => {
                Some(stripes.iter().count())
            }
            _ => None,
        });
        stripes.collect::<Vec<_>>()
    };
    // It waits for its policy.
    assert!(sas.add_stripe(child, stripe(0)).unwrap().is_empty());
    assert_eq!(count(&sas.take_waiting()), [1]);
    assert_eq!(count(&sas.add_stripe(child, stripe(1)).unwrap()), [2]);
    assert!(sas.add_stripe(child, Stripe { class: 3, ..stripe(2) }).is_err());
    let path = Path { local: addr("192.0.2.1:4500"), remote: addr("192.0.2.9:4500") };
    assert_eq!(count(&sas.update(child, path, MTU).unwrap()), [2]);
    assert!(sas.is_spread(child) && sas.next_rows(params.spi_in.shard()).eq([0]));
    sas.remove(child);
    assert!(!sas.is_spread(child) && sas.add_stripe(child, stripe(2)).unwrap().is_empty());
}

/// The SPIs of the outbound SAs that the commands make a worker's own.
fn own(commands: &[Command]) -> Vec<(u8, Spi)> {
    let outbound = commands.iter().filter_map(|command| match command {
        Command::SetOwnOutbound(worker, POLICY, sa) => Some((worker.get(), sa.spi())),
        _ => None,
    });
    outbound.collect()
}

fn cleared(commands: &[Command]) -> Vec<Spi> {
    let cleared = commands.iter().filter_map(|command| match command {
        Command::ClearOutbound(POLICY, spi) => Some(*spi),
        _ => None,
    });
    cleared.collect()
}

fn worker(number: u8) -> WorkerId {
    WorkerId::new(number).unwrap()
}

/// An SA for all workers, and beside it one for each of the workers 0 and 1.
fn for_workers() -> (Sas, [ChildSaId; 3]) {
    let mut sas = Sas::default();
    let for_all = install(&mut sas, POLICY, 1, Activation::WithPolicy);
    sas.take_waiting();
    let children = [0, 1].map(|number| {
        let child = install(&mut sas, POLICY, u32::from(number) + 2, Activation::SharedPolicy);
        let commands = sas.bind(child, worker(number));
        assert_eq!(own(&commands), [(number, params(u32::from(number) + 2).spi_out)]);
        assert_eq!(set(&commands), [], "it is for no other worker");
        child
    });
    (sas, [for_all, children[0], children[1]])
}

/// A worker's own SA is renewed, and the one for all: each successor has the same workers.
#[test]
fn a_successor_is_for_the_same_worker() {
    let (mut sas, [for_all, first, second]) = for_workers();
    let renewed = install(&mut sas, POLICY, 7, Activation::SharedPolicy);
    let commands = sas.switch(second, renewed);
    assert_eq!((own(&commands), set(&commands)), (vec![(1, params(7).spi_out)], Vec::new()));
    let renewed_for_all = install(&mut sas, POLICY, 8, Activation::SharedPolicy);
    let commands = sas.switch(for_all, renewed_for_all);
    assert_eq!(set(&commands).len(), 1);
    assert_eq!((own(&commands), cleared(&commands)), (Vec::new(), Vec::new()));
    // A peer that moves: each goes to its new place, at its worker.
    let path = Path { local: addr("192.0.2.1:4500"), remote: addr("192.0.2.3:20001") };
    assert_eq!(own(&sas.update(first, path, MTU).unwrap()), [(0, params(2).spi_out)]);
    assert_eq!(own(&sas.update(second, path, MTU).unwrap()), [], "it has a successor");
    assert_eq!(set(&sas.update(renewed_for_all, path, MTU).unwrap()).len(), 1);
}

/// The SA for all ends: a worker's own serves all. Its successor is then for all, at that worker too.
#[test]
fn a_workers_own_may_become_the_one_for_all() {
    let (mut sas, [for_all, first, _]) = for_workers();
    let commands = sas.switch(for_all, first);
    assert_eq!(cleared(&commands), [params(2).spi_in], "the worker sends by it as all others do");
    assert_eq!(set(&commands).len(), 1);
    assert!(matches!(commands[0], Command::ClearOutbound(..)), "{commands:?}");
    let renewed = install(&mut sas, POLICY, 7, Activation::SharedPolicy);
    let commands = sas.switch(first, renewed);
    assert_eq!((own(&commands), set(&commands).len()), (Vec::new(), 1));
}

/// A worker's own SA ends: it sends by the one for all, which stays for all.
#[test]
fn a_worker_returns_to_the_one_for_all() {
    let (mut sas, [for_all, first, _]) = for_workers();
    let commands = sas.switch(first, for_all);
    assert_eq!(own(&commands), []);
    assert_eq!(cleared(&commands), [params(2).spi_in]);
    assert_eq!(cleared(&sas.remove(first)), [params(2).spi_in]);
    let renewed = install(&mut sas, POLICY, 7, Activation::SharedPolicy);
    assert_eq!(set(&sas.switch(for_all, renewed)).len(), 1, "all send by its successor");
}

/// The peer has made more than there are workers: the newest one of a worker sends, and the one
/// before it if that goes.
#[test]
fn of_several_the_newest_sends() {
    let (mut sas, [_, first, _]) = for_workers();
    let more = install(&mut sas, POLICY, 9, Activation::SharedPolicy);
    assert_eq!(own(&sas.bind(more, worker(0))), [(0, params(9).spi_out)]);
    assert_eq!(own(&sas.remove(more)), [(0, params(2).spi_out)]);
    assert_eq!(own(&sas.remove(first)), []);
}

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use testudo_ipsec::selector::AddrRange;

fn anything(_: IpAddr) -> bool {
    true
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pool(name: &str, first: &str, last: &str) -> Pool {
    let addrs = AddrRange::new(addr(first), addr(last)).unwrap();
    Pool { name: name.into(), base: addr(first), addrs, dns: vec![], subnets: vec![] }
}

fn loaded(list: impl IntoIterator<Item = Pool>) -> Pools {
    let mut pools = Pools::default();
    list.into_iter().for_each(|pool| pools.load(pool).unwrap());
    pools
}

fn client(number: u64) -> LeaseOwner {
    LeaseOwner::new("gw", &Identity::Fqdn(format!("client-{number}")))
}

fn take(pools: &mut Pools, names: &[&str], who: u64, ike: u64) -> Option<IpAddr> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let any = Ipv4Addr::UNSPECIFIED.into();
    pools.lease(&names, any, &client(who), IkeSaId(ike), &anything).map(|lease| lease.addr)
}

fn give_back(pools: &mut Pools, pool: &str, text: &str, ike: u64) {
    pools.release(&Lease { pool: pool.into(), addr: addr(text) }, IkeSaId(ike));
}

#[test]
fn an_identity_keeps_its_address() {
    let mut pools = loaded([pool("a", "10.3.0.1", "10.3.0.9")]);
    assert_eq!(take(&mut pools, &["a"], 1, 1), Some(addr("10.3.0.1")));
    assert_eq!(take(&mut pools, &["a"], 2, 2), Some(addr("10.3.0.2")));
    give_back(&mut pools, "a", "10.3.0.1", 1);
    assert_eq!(take(&mut pools, &["a"], 3, 3), Some(addr("10.3.0.3")), "what nobody had comes first");
    assert_eq!(take(&mut pools, &["a"], 1, 4), Some(addr("10.3.0.1")));
}

/// Another spelling of its identity does not give a peer a second address.
#[test]
fn an_identity_has_one_address() {
    let mut pools = loaded([pool("a", "10.3.0.1", "10.3.0.9")]);
    let names = ["a".to_owned()];
    let dn = |text: &str| Identity::Dn(text.parse().unwrap());
    for (ike, ways) in [
        [Identity::Fqdn("sun".into()), Identity::Fqdn("SUN".into())],
        [Identity::Email("me@sun".into()), Identity::Email("Me@Sun".into())],
        [dn("O=a b, CN=sun"), dn("O=a  B, CN=SUN")],
    ]
    .iter()
    .enumerate()
    {
        let given = ways.iter().map(|way| {
            let ike = IkeSaId(ike as u64);
            pools
                .lease(&names, Ipv4Addr::UNSPECIFIED.into(), &LeaseOwner::new("gw", way), ike, &anything)
                .unwrap()
                .addr
        });
        let given: BTreeSet<IpAddr> = given.collect();
        assert_eq!(given.len(), 1, "{ways:?}");
    }
    assert_eq!(pools.0["a"].online(), 3);
}

/// Another connection may trust another CA, whose certificate for a name gives no right to leases
/// of this one.
#[test]
fn the_same_name_with_another_connection_is_another() {
    let mut pools = loaded([pool("a", "10.3.0.1", "10.3.0.2")]);
    let names = ["a".to_owned()];
    let name = Identity::Fqdn("sun".into());
    let lease = |pools: &mut Pools, connection: &str, ike: u64| {
        let owner = LeaseOwner::new(connection, &name);
        let lease = pools.lease(&names, Ipv4Addr::UNSPECIFIED.into(), &owner, IkeSaId(ike), &anything);
        lease.map(|lease| lease.addr)
    };
    assert_eq!(lease(&mut pools, "one", 1), Some(addr("10.3.0.1")));
    assert_eq!(lease(&mut pools, "two", 2), Some(addr("10.3.0.2")));
    assert_eq!(lease(&mut pools, "three", 3), None, "nor what is in use");
    let held = Lease { pool: "a".into(), addr: addr("10.3.0.1") };
    assert!(!pools.claim(&held, &LeaseOwner::new("two", &name), IkeSaId(4)), "nor can it be claimed");
    give_back(&mut pools, "a", "10.3.0.1", 1);
    assert_eq!(lease(&mut pools, "one", 5), Some(addr("10.3.0.1")), "it kept it");
}

#[test]
fn the_last_ike_sa_gives_the_address_back() {
    let mut pools = loaded([pool("a", "10.3.0.1", "10.3.0.1")]);
    assert_eq!(take(&mut pools, &["a"], 1, 1), take(&mut pools, &["a"], 1, 2));
    give_back(&mut pools, "a", "10.3.0.1", 1);
    assert_eq!(take(&mut pools, &["a"], 2, 3), None, "the other still has it");
    give_back(&mut pools, "a", "10.3.0.1", 2);
    assert_eq!(take(&mut pools, &["a"], 2, 3), Some(addr("10.3.0.1")));
    assert_eq!(take(&mut pools, &["a"], 1, 4), None, "and now it is another's");
}

#[test]
fn the_longest_offline_lease_is_reused_first() {
    let mut pools = loaded([pool("a", "10.3.0.1", "10.3.0.2")]);
    take(&mut pools, &["a"], 1, 1);
    take(&mut pools, &["a"], 2, 2);
    give_back(&mut pools, "a", "10.3.0.2", 2);
    give_back(&mut pools, "a", "10.3.0.1", 1);
    assert_eq!(take(&mut pools, &["a"], 3, 3), Some(addr("10.3.0.2")));
    assert_eq!(take(&mut pools, &["a"], 1, 4), Some(addr("10.3.0.1")));
}

#[test]
fn the_second_pool_serves_when_the_first_is_empty() {
    let mut pools = loaded([pool("a", "10.3.0.1", "10.3.0.1"), pool("b", "10.4.0.1", "10.4.0.9")]);
    assert_eq!(take(&mut pools, &["a", "b"], 1, 1), Some(addr("10.3.0.1")));
    assert_eq!(take(&mut pools, &["a", "b"], 2, 2), Some(addr("10.4.0.1")));
    give_back(&mut pools, "a", "10.3.0.1", 1);
    assert_eq!(take(&mut pools, &["a", "b"], 2, 3), Some(addr("10.4.0.1")), "where it was before");
    assert_eq!(take(&mut pools, &["a", "b"], 3, 4), Some(addr("10.4.0.2")), "before what is kept for others");
    assert_eq!(take(&mut pools, &["none"], 4, 5), None);
}

#[test]
fn families_do_not_mix_and_a_free_wish_is_granted() {
    let mut pools =
        loaded([pool("a", "10.3.0.1", "10.3.0.9"), pool("b", "fd00:3::", "fd00:3::ffff:ffff:ffff:ffff")]);
    let names = ["a".to_owned(), "b".to_owned()];
    let mut lease = |wish: &str, who: u64| {
        pools.lease(&names, addr(wish), &client(who), IkeSaId(who), &anything).unwrap().addr
    };
    assert_eq!(lease("fd00:3::7", 1), addr("fd00:3::7"));
    assert_eq!(lease("10.3.0.1", 2), addr("10.3.0.1"));
    assert_eq!(lease("10.3.0.1", 3), addr("10.3.0.2"), "another has it");
    assert_eq!(lease("10.9.9.9", 4), addr("10.3.0.3"), "it is not of the pool");
    for who in 5..20 {
        assert_ne!(lease("::", who), addr("fd00:3::7"), "the turn passes what is taken");
    }
}

#[test]
fn a_pool_ends_at_the_end_of_all_addresses() {
    let mut pools = loaded([pool("a", "255.255.255.254", "255.255.255.255")]);
    assert_eq!(take(&mut pools, &["a"], 1, 1), Some(addr("255.255.255.254")));
    assert_eq!(take(&mut pools, &["a"], 2, 2), Some(addr("255.255.255.255")));
    assert_eq!(take(&mut pools, &["a"], 3, 3), None);
}

#[test]
fn a_pool_in_use_can_be_neither_changed_nor_unloaded() {
    let mut pools = loaded([pool("a", "10.3.0.1", "10.3.0.9")]);
    take(&mut pools, &["a"], 1, 1);
    let online = Err(PoolError::Online { pool: "a".into(), online: 1 });
    assert_eq!(pools.load(pool("a", "10.4.0.1", "10.4.0.9")), online);
    assert_eq!(pools.unload("a"), online);
    let with_dns = Pool { dns: vec![addr("10.1.0.53")], ..pool("a", "10.3.0.1", "10.3.0.9") };
    assert_eq!(pools.load(with_dns.clone()), Ok(()));
    assert_eq!(pools.get("a"), Some(&with_dns));
    assert_eq!(take(&mut pools, &["a"], 1, 2), Some(addr("10.3.0.1")), "leases outlive a reload");
    give_back(&mut pools, "a", "10.3.0.1", 1);
    give_back(&mut pools, "a", "10.3.0.1", 2);
    assert_eq!(pools.load(pool("a", "10.4.0.1", "10.4.0.9")), Ok(()));
    assert_eq!((pools.unload("a"), pools.unload("a")), (Ok(()), Err(PoolError::Unknown("a".into()))));
}

#[test]
fn a_claim_takes_what_is_free_and_nothing_else() {
    let mut pools = loaded([pool("a", "10.3.0.1", "10.3.0.9")]);
    let lease = |text: &str| Lease { pool: "a".into(), addr: addr(text) };
    assert!(pools.claim(&lease("10.3.0.1"), &client(1), IkeSaId(1)));
    assert!(pools.claim(&lease("10.9.0.1"), &client(2), IkeSaId(2)), "nobody has it");
    assert!(!pools.claim(&lease("10.3.0.1"), &client(3), IkeSaId(3)));
    assert_eq!(take(&mut pools, &["a"], 1, 4), Some(addr("10.3.0.1")));
    assert_eq!(take(&mut pools, &["a"], 3, 5), Some(addr("10.3.0.2")));
    assert_eq!(pools.0["a"].online(), 2);
}

/// The number of offline leases is bounded, however large the pool is, and whatever addresses are
/// requested.
#[test]
fn absent_identities_are_forgotten_in_the_end() {
    let wishes: [fn(u64) -> Ipv6Addr; 2] = [
        |_| Ipv6Addr::UNSPECIFIED,
        |who| Ipv6Addr::new(0xfd00, 3, 0, 0, 1, (who >> 16) as u16, who as u16, 0),
    ];
    for wish in wishes {
        let mut pools = loaded([pool("a", "fd00:3::", "fd00:3::ffff:ffff:ffff:ffff")]);
        let names = ["a".to_owned()];
        for who in 0..MAX_OFFLINE as u64 + 100 {
            let ike = IkeSaId(who);
            let lease = pools.lease(&names, wish(who).into(), &client(who), ike, &anything).unwrap();
            pools.release(&lease, ike);
        }
        let leases = &pools.0["a"];
        assert_eq!((leases.by_addr.len(), leases.by_owner.len()), (MAX_OFFLINE, MAX_OFFLINE));
    }
}

/// The model: the owners of addresses, and the order in which they went offline.
#[derive(Default)]
struct Model {
    holders: HashMap<IpAddr, (u64, BTreeSet<u64>)>,
    left: Vec<IpAddr>,
}

#[derive(Clone, Debug)]
enum Step {
    Take { who: u64, ike: u64 },
    GiveBack { ike: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u64..8, 0_u64..12).prop_map(|(who, ike)| Step::Take { who, ike }),
        (0_u64..12).prop_map(|ike| Step::GiveBack { ike }),
    ]
}

proptest! {
    #[test]
    fn leases_are_as_in_a_plain_model(steps in proptest::collection::vec(step(), 0..80), size in 1_u8..6) {
        let mut pools = loaded([pool("a", "10.3.0.1", &format!("10.3.0.{size}"))]);
        let mut model = Model::default();
        let mut of_ike: HashMap<u64, IpAddr> = HashMap::new();
        for step in steps {
            match step {
                Step::Take { who, ike } if !of_ike.contains_key(&ike) => {
                    let known = model.holders.iter().find(|(_, (id, _))| *id == who).map(|(addr, _)| *addr);
                    let all = (1..=size).map(|n| addr(&format!("10.3.0.{n}")));
                    let free = all.clone().find(|addr| !model.holders.contains_key(addr));
                    let expected = known.or(free).or(model.left.first().copied());
                    let given = take(&mut pools, &["a"], who, ike);
                    prop_assert_eq!(given, expected);
                    if let Some(given) = given {
                        model.left.retain(|addr| *addr != given);
                        let holder = model.holders.entry(given).or_insert((who, BTreeSet::new()));
                        if holder.0 != who {
                            *holder = (who, BTreeSet::new());
                        }
                        holder.1.insert(ike);
                        of_ike.insert(ike, given);
                    }
                }
                Step::Take { .. } => {}
                Step::GiveBack { ike } => {
                    let Some(addr) = of_ike.remove(&ike) else { continue };
                    pools.release(&Lease { pool: "a".into(), addr }, IkeSaId(ike));
                    let users = &mut model.holders.get_mut(&addr).unwrap().1;
                    users.remove(&ike);
                    if users.is_empty() {
                        model.left.push(addr);
                    }
                }
            }
            let status = pools.0["a"].status();
            prop_assert_eq!(status.offline, model.left.len());
            prop_assert_eq!(status.online, model.holders.len() - model.left.len());
        }
    }
}

/// Two nodes lease out of one pool, each what is its own. What becomes a node's is found although
/// it was passed before.
#[test]
fn a_node_leases_what_is_its_own_and_knows_again_who_comes_back() {
    let mut pools = loaded([pool("p", "10.3.0.1", "10.3.0.4")]);
    let names = ["p".to_owned()];
    let even = |addr: IpAddr| number(addr).is_multiple_of(2);
    let lease = |pools: &mut Pools, who: u64, mine: &dyn Fn(IpAddr) -> bool| {
        let any = Ipv4Addr::UNSPECIFIED.into();
        pools.lease(&names, any, &client(who), IkeSaId(who), mine).map(|lease| lease.addr)
    };
    assert_eq!(lease(&mut pools, 1, &even), Some(addr("10.3.0.2")));
    assert_eq!(lease(&mut pools, 2, &even), Some(addr("10.3.0.4")));
    assert_eq!(lease(&mut pools, 3, &even), None, "the others are another node's");
    assert_eq!(lease(&mut pools, 1, &|_| false), Some(addr("10.3.0.2")), "it has it already");
    pools.begin_again();
    assert_eq!(lease(&mut pools, 3, &anything), Some(addr("10.3.0.1")));
}

#[test]
fn a_shortage_names_the_pools_of_the_family_that_was_asked_for() {
    let mut pools = loaded([pool("a", "10.3.0.1", "10.3.0.2"), pool("six", "fd00::1", "fd00::2")]);
    let names = ["a", "six", "gone"].map(str::to_owned);
    take(&mut pools, &["a"], 1, 1).unwrap();
    take(&mut pools, &["a"], 2, 2).unwrap();
    assert_eq!(
        pools.shortage(&names, &[addr("0.0.0.0")]),
        "2 of the 2 addresses of pool a are in use; pool gone is not loaded"
    );
    assert_eq!(
        pools.shortage(&names, &[addr("::")]),
        "0 of the 2 addresses of pool six are in use; pool gone is not loaded"
    );
}

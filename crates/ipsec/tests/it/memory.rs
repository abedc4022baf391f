//! The memory of a Child SA, so that tens of thousands fit (4 kB for an IKE SA with a Child SA).

use std::net::Ipv4Addr;
use std::sync::Arc;
use testudo_base::spi::Spi;
use testudo_crypto::{AeadKey, Library};
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::{
    ChildSaParams, Encapsulation, EspAlgorithm, HeaderCopy, InboundSa, KeyMaterial, Mode, OutboundSa,
};
use testudo_ipsec::selector::{AddrRange, SelectorPair, TrafficSelector};
use testudo_ipsec::spd::{Action, PolicyId, Rank, Spd};

const COUNT: u32 = 1000;
/// Octets of both halves and their policy, without the schedules of the keys.
const LIMIT: u64 = 1168;

fn params(number: u32) -> ChildSaParams {
    let ts = |addr: Ipv4Addr| {
        let addrs = AddrRange::new(addr.into(), addr.into()).unwrap();
        vec![TrafficSelector::all(addrs)]
    };
    ChildSaParams {
        spi_in: Spi(0x0100_0000 | number),
        spi_out: Spi(0x0200_0000 | number),
        algorithm: EspAlgorithm::Aes128Gcm16,
        key_in: KeyMaterial(vec![1; 20]),
        key_out: KeyMaterial(vec![2; 20]),
        esn: true,
        replay_window: 128,
        local_ts: ts(Ipv4Addr::new(192, 168, 77, 1)),
        remote_ts: ts(Ipv4Addr::from_bits(0x0a00_0000 | number)),
        local: "192.0.2.1:4500".parse().unwrap(),
        remote: "192.0.2.2:4500".parse().unwrap(),
        encapsulation: Encapsulation::Plain,
        mode: Mode::Tunnel,
        copy: HeaderCopy::default(),
    }
}

fn halves(number: u32, selectors: &SelectorPair) -> (Arc<InboundSa>, Arc<OutboundSa>) {
    let (params, library) = (params(number), Library::detect());
    let policy = PolicyId(number);
    let inbound = InboundSa::new(&params, policy, 1500, library).unwrap();
    let numbers = SequenceBlock::whole(params.esn);
    let outbound = OutboundSa::new(&params, policy, numbers, 1500, library).unwrap();
    (Arc::new(inbound.sharing(selectors)), Arc::new(outbound.sharing(selectors)))
}

#[test]
fn a_child_sa_with_its_policy_takes_little_memory() {
    // One-time allocations are not counted.
    drop(halves(0, &SelectorPair::new(&[], &[])));
    let mut kept = Vec::with_capacity(COUNT as usize);
    let mut spd = Spd::empty();
    let taken = allocation_counter::measure(|| {
        for number in 0..COUNT {
            let ChildSaParams { local_ts, remote_ts, .. } = params(number);
            let selectors = SelectorPair::new(&local_ts, &remote_ts);
            let rank = Rank { priority: 7, place: number.into(), part: 0 };
            spd.insert(rank, &selectors, Action::Protect(PolicyId(number))).unwrap();
            kept.push(halves(number, &selectors));
        }
    });
    let each = u64::try_from(taken.bytes_current).unwrap() / u64::from(COUNT);
    assert!(each <= LIMIT, "{each} octets a Child SA");
    assert!(each > 200, "{each} octets: the allocator was not watched");
}

#[test]
fn the_schedules_of_keys_come_with_the_first_packet() {
    let (inbound, outbound) = halves(1, &SelectorPair::new(&[], &[]));
    let taken = allocation_counter::measure(|| {
        inbound.expand_key().unwrap();
        outbound.expand_key().unwrap();
        // Once is enough.
        outbound.expand_key().unwrap();
    });
    let expected = 2 * AeadKey::schedule_len(Library::detect()) as u64;
    let found = u64::try_from(taken.bytes_current).unwrap();
    assert_eq!(found, expected);
}

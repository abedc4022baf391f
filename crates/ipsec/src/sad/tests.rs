//! Slots against a plain map.

use super::*;
use crate::number::SequenceBlock;
use crate::sa::{ChildSaParams, Encapsulation, EspAlgorithm, HeaderCopy, KeyMaterial, Mode};
use crate::selector::{AddrRange, TrafficSelector};
use crate::spd::PolicyId;
use proptest::prelude::*;
use std::collections::HashMap;
use testudo_base::spi::Shard;
use testudo_crypto::Library;

fn sa(spi: Spi) -> Arc<InboundSa> {
    let any = AddrRange::new("0.0.0.0".parse().unwrap(), "255.255.255.255".parse().unwrap()).unwrap();
    let any = vec![TrafficSelector::all(any)];
    let params = ChildSaParams {
        spi_in: spi,
        spi_out: Spi(0x1234),
        algorithm: EspAlgorithm::Aes128Gcm16,
        key_in: KeyMaterial(vec![1; 20]),
        key_out: KeyMaterial(vec![2; 20]),
        esn: true,
        replay_window: 64,
        local_ts: any.clone(),
        remote_ts: any,
        local: "192.0.2.1:0".parse().unwrap(),
        remote: "192.0.2.2:0".parse().unwrap(),
        encapsulation: Encapsulation::Plain,
        mode: Mode::Tunnel,
        copy: HeaderCopy::default(),
    };
    assert_eq!(SequenceBlock::whole(params.esn).next, 1);
    Arc::new(InboundSa::new(&params, PolicyId(0), 1500, Library::AwsLc).unwrap())
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(Spi),
    Remove(Spi),
}

fn step() -> impl Strategy<Value = Step> {
    // Two shards of which one has no slots, few slots, few tags: many collisions.
    let spi = (7u8..9, 0u16..4, 0u16..3)
        .prop_map(|(shard, slot, tag)| Spi::from_parts(Shard(shard), slot, tag).unwrap());
    prop_oneof![spi.clone().prop_map(Step::Insert), spi.prop_map(Step::Remove)]
}

proptest! {
    #[test]
    fn finds_like_a_map_from_slot_to_spi(steps in prop::collection::vec(step(), 0..60)) {
        let mut sad = Sad::new();
        let first = Spi::from_parts(Shard(7), 0, 0).unwrap();
        prop_assert!(sad.add_slots(Box::new(SlotBlock::of(first))).is_none());
        prop_assert!(sad.add_slots(Box::new(SlotBlock::of(first))).is_some());
        let mut model: HashMap<u16, Spi> = HashMap::new();
        for step in steps {
            match step {
                Step::Insert(spi) => match sad.insert(sa(spi)) {
                    Ok(replaced) => {
                        prop_assert_eq!(spi.shard(), Shard(7));
                        prop_assert_eq!(replaced.map(|sa| sa.spi()), model.insert(spi.slot(), spi));
                    }
                    Err(sa) => prop_assert_eq!((sa.spi(), sa.spi().shard()), (spi, Shard(8))),
                },
                Step::Remove(spi) => {
                    let removed = sad.remove(spi).map(|sa| sa.spi());
                    let held = model.get(&spi.slot()) == Some(&spi) && spi.shard() == Shard(7);
                    prop_assert_eq!(removed, held.then_some(spi));
                    if held {
                        model.remove(&spi.slot());
                    }
                }
            }
            for slot in 0..4 {
                for tag in 0..3 {
                    let spi = Spi::from_parts(Shard(7), slot, tag).unwrap();
                    let held = model.get(&slot) == Some(&spi);
                    prop_assert_eq!(sad.get(spi).map(InboundSa::spi), held.then_some(spi));
                }
            }
        }
    }
}

#[test]
fn every_spi_value_can_be_asked_for() {
    let sad = Sad::new();
    for value in [0, 1, 255, 256, u32::MAX] {
        assert!(sad.get(Spi(value)).is_none());
    }
}
